// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// watermarkFile is the kernel parameter that follows a node's state.
const watermarkFile = "/proc/sys/vm/watermark_scale_factor"

// keepWatermark is the parameter as it is, which it is again after the test whatever has happened.
func keepWatermark(t *testing.T) int {
	t.Helper()
	was := read(t, watermarkFile)
	n, err := strconv.Atoi(strings.TrimSpace(was))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if now, err := os.ReadFile(watermarkFile); err == nil && string(now) == was {
			return
		}
		if err := os.WriteFile(watermarkFile, []byte(was), 0o644); err != nil {
			t.Error(err)
		}
	})
	return n
}

func watermarkIs(t *testing.T, want int) error {
	t.Helper()
	if got := strings.TrimSpace(read(t, watermarkFile)); got != strconv.Itoa(want) {
		return fmt.Errorf("%s is %s, want %d", watermarkFile, got, want)
	}
	return nil
}

// unsound: a node that is short of memory lends nothing at once, says why, and gets everything back step by step. Its kernel begins to reclaim
// earlier meanwhile: the watermark of the ConfigMap reaches it by NodeSLO and koordlet, and what was there before is given back.
func (m *managed) unsound(t *testing.T) {
	before, _ := m.batchCPU(t)
	was := keepWatermark(t)
	raised := was%400 + 1 // the smallest step, within what the key takes
	m.tell(t, map[string]string{keyColocation: strings.Replace(lentConfig, "{", fmt.Sprintf(
		`{"extensions": {"koord-rt.dev/lending-health": {"recoverySeconds": 1, "memoryPressureWatermarkScaleFactor": %d}}, `, raised), 1)})
	// The kubelet takes it back when it looks at its node next.
	set := func(status string) {
		t.Helper()
		condition := map[string]any{"type": "MemoryPressure", "status": status, "reason": "Lab", "message": "said by the lab"}
		patch := map[string]any{"status": map[string]any{"conditions": []any{condition}}}
		if _, err := m.c.Admin().Patch(t.Context(), "/api/v1/nodes/"+m.k.Node+"/status", cluster.StrategicPatch, patch); err != nil {
			t.Fatal(err)
		}
	}
	short := func(most int64) error {
		cpu, ok := m.batchCPU(t)
		w, err := m.weight(t)
		if err == nil && (!ok || cpu >= before || w.Percent > most || len(w.Reasons) != 1 || w.Reasons[0] != protocol.UnsoundMemory) {
			err = fmt.Errorf("batch-cpu %d (%t), before %d; %+v, want at most %d %%", cpu, ok, before, w, most)
		}
		return err
	}
	begun := time.Now()
	eventually(t, 60*time.Second, func() error {
		set("True") // again, where the kubelet was faster than the manager
		return short(99)
	})
	fell := time.Since(begun)
	var reached time.Duration
	eventually(t, 60*time.Second, func() error {
		set("True")
		if err := watermarkIs(t, raised); err != nil {
			return err
		}
		reached = time.Since(begun) // before it is seen that all steps are still to come: the kubelet may have begun them while this had no CPU
		return short(0)
	})
	set("False")
	eventually(t, 30*time.Second, func() error {
		if w, err := m.weight(t); err == nil {
			return fmt.Errorf("it still says %+v", w)
		}
		return m.asCalculated(t)
	})
	back := time.Since(begun)
	eventually(t, 60*time.Second, func() error { return watermarkIs(t, was) })
	if all := fell + back - reached; all < 3*time.Second {
		t.Errorf("everything was back after %s, want four steps of a second", all)
	} else {
		t.Logf("nothing is lent %s after the pressure, the watermark is %d after %s, everything is lent again %s after that, and the watermark %d after %s",
			fell.Round(time.Millisecond), raised, reached.Round(time.Millisecond), (back - reached).Round(time.Millisecond), was, (time.Since(begun) - reached).Round(time.Millisecond))
	}
	m.tell(t, map[string]string{keyColocation: lentConfig})
}

// weight is what the node says of how much of the usual it lends; an error while it says nothing.
func (m *managed) weight(t *testing.T) (protocol.LendingWeight, error) {
	t.Helper()
	return protocol.ParseLendingWeight(m.node(t).Str("metadata", "annotations", protocol.AnnotationLendingWeight))
}

// evictedMuch: the steps before have evicted five pods, and three in an hour are tolerated. koordlet's reports count them, less is lent out of the node,
// and it says why. A koordlet that begins anew begins to count anew.
func (m *managed) evictedMuch(t *testing.T) {
	begun := time.Now()
	var w protocol.LendingWeight
	eventually(t, 90*time.Second, func() (err error) { // the interval of reports is 30 s
		if w, err = m.weight(t); err == nil && (w.Percent > 75 || !slices.Contains(w.Reasons, protocol.UnsoundEvictions)) {
			err = fmt.Errorf("the node lends %+v", w)
		}
		return err
	})
	t.Logf("%d %% is lent for %q, after %s", w.Percent, w.Reasons, time.Since(begun).Round(time.Millisecond))
}
