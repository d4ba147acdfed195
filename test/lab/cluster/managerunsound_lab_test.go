// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// unsound: a node that is short of memory lends nothing at once, says why, and gets everything back step by step.
func (m *managed) unsound(t *testing.T) {
	before, _ := m.batchCPU(t)
	m.tell(t, map[string]string{keyColocation: strings.Replace(lentConfig, "{", `{"extensions": {"koord-rt.dev/lending-health": {"recoverySeconds": 1}}, `, 1)})
	// The kubelet takes it back when it looks at its node next.
	set := func(status string) {
		t.Helper()
		condition := map[string]any{"type": "MemoryPressure", "status": status, "reason": "Lab", "message": "said by the lab"}
		patch := map[string]any{"status": map[string]any{"conditions": []any{condition}}}
		if _, err := m.c.Admin().Patch(t.Context(), "/api/v1/nodes/"+m.k.Node+"/status", cluster.StrategicPatch, patch); err != nil {
			t.Fatal(err)
		}
	}
	weight := func() (protocol.LendingWeight, error) {
		return protocol.ParseLendingWeight(m.node(t).Str("metadata", "annotations", protocol.AnnotationLendingWeight))
	}
	begun := time.Now()
	eventually(t, 60*time.Second, func() error {
		set("True") // again, where the kubelet was faster than the manager
		cpu, ok := m.batchCPU(t)
		w, err := weight()
		if err == nil && (!ok || cpu >= before || w.Percent >= 100 || len(w.Reasons) != 1 || w.Reasons[0] != protocol.UnsoundMemory) {
			err = fmt.Errorf("batch-cpu %d (%t), before %d; %+v", cpu, ok, before, w)
		}
		return err
	})
	fell := time.Since(begun)
	set("False")
	eventually(t, 30*time.Second, func() error {
		if w, err := weight(); err == nil {
			return fmt.Errorf("it still says %+v", w)
		}
		return m.asCalculated(t)
	})
	if all := time.Since(begun); all < 3*time.Second {
		t.Errorf("everything was back after %s, want four steps of a second", all)
	} else {
		t.Logf("nothing is lent %s after the pressure, everything again after %s", fell.Round(time.Millisecond), all.Round(time.Millisecond))
	}
	m.tell(t, map[string]string{keyColocation: lentConfig})
}
