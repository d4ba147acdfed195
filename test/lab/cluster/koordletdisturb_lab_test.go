// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// arrives runs the pod that is to be disturbed, on a CPU that it shares with the machine only.
func (n *governed) arrives(t *testing.T) {
	t.Helper()
	n.apply(t, "victim.yaml")
	n.victim = n.ready(t, "victim")
	n.pin(t, n.victim, quiet)
	n.since = n.ticked(t)
}

// podQuota is the quota of a pod's cgroup in µs per 100 ms, as the kernel has it; -1 for none.
func (n *governed) podQuota(pod cluster.Object) (int, error) {
	file, none := n.quotaFile()
	text, err := cgroups.Read(n.podDir(pod, "cpu"), file)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(text, " ")
	if first == none {
		return -1, nil
	}
	return strconv.Atoi(first)
}

// heldTo waits until a pod's quota lies between two values.
func (n *governed) heldTo(t *testing.T, pod cluster.Object, low, high int) (got int) {
	t.Helper()
	eventually(t, 60*time.Second, func() (err error) {
		if got, err = n.podQuota(pod); err == nil && (got < low || got > high) {
			err = fmt.Errorf("quota of %s is %d, want %d to %d", pod.Str("metadata", "name"), got, low, high)
		}
		return err
	})
	return got
}

// happened are the interference events since then, oldest first: "namespace/pod: what".
func (n *governed) happened(t *testing.T, since time.Time) (out []string) {
	t.Helper()
	url := "http://koordlet/events?size=512&since=" + since.UTC().Format(time.RFC3339Nano)
	body, err := n.asks(t, url, http.Header{"Accept": {"application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Events []struct {
			Knob   string `json:"knob"`
			Reason string `json:"reason"`
			Target struct {
				Name string `json:"name"`
			} `json:"target"`
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("events: %v: %.300s", err, body)
	}
	for i := len(answer.Events) - 1; i >= 0; i-- {
		if e := &answer.Events[i]; e.Knob == "interference" {
			out = append(out, e.Target.Name+": "+e.Reason)
		}
	}
	return out
}

// tells waits for one of some events about a pod. It asks now and then only: answering is work, which would be measured too.
func (n *governed) tells(t *testing.T, since time.Time, pod string, whats ...string) string {
	t.Helper()
	var found string
	eventually(t, 60*time.Second, func() error {
		time.Sleep(400 * time.Millisecond)
		all := n.happened(t, since)
		for _, e := range all {
			for _, what := range whats {
				if strings.HasPrefix(e, "batch/"+pod+": "+what) {
					found = e
					return nil
				}
			}
		}
		return fmt.Errorf("no event %q about %s: %q", whats, pod, all)
	})
	return found
}

// TestClusterNodeMeasured is what measures the machine's own CPUs and memory of what koordlet does on a node: a best-effort pod that disturbs others is
// found and held, and an innocent one let go; and the right one goes where memory ends. No report of koordlet comes before its time without news, which
// who is held is, and nothing is denied to it.
func TestClusterNodeMeasured(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	n := govern(ctx, t)
	n.start(t)
	n.arrives(t)
	if _, err := n.c.Admin().Create(ctx, slos, cluster.Object{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": map[string]any{"name": n.k.Node},
	}); err != nil {
		t.Fatal(err)
	}
	n.opens(t)
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{{"interference", n.interference}, {"full", n.full}} {
		if !t.Run(s.name, s.test) {
			return
		}
	}
	list := n.reported(t)
	t.Logf("%d reports, %d of them with news between two intervals", len(list), n.paced(t, list))
	for _, c := range n.audit.calls(t, func(*call) bool { return true }) {
		n.allowed(t, &c)
	}
}

// opens leaves best effort nearly all CPUs, whatever others use.
func (n *governed) opens(t *testing.T) {
	n.patch(t, threshold(map[string]any{
		"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 100, "cpuSuppressMinPercent": 90,
		"memoryEvictThresholdPercent": 100,
	}))
	n.quotaWithin(t, 89, 100)
}

// interference: a best-effort pod computes on the CPU of an LS pod. It is found by how long that one waits, held to less, and
// let go when nobody is disturbed any more. When somebody else disturbs, a best-effort pod is tried and is innocent.
func (n *governed) interference(t *testing.T) {
	n.ticksTo(t, n.since+25) // 20 s of history, and what is lost at its ends
	begun := time.Now()
	defer func() {
		if t.Failed() {
			t.Logf("events: %q", n.happened(t, begun.Add(-time.Minute)))
		}
	}()
	stop, told := n.tried(t)
	if strings.Contains(told[len(told)-1], ": innocent") {
		// The machine's other guests can keep the victim from getting better. An innocent pod is left alone for five minutes.
		stop()
		t.Logf("tried again in five minutes: %q", told)
		time.Sleep(5*time.Minute + 10*time.Second)
		if stop, told = n.tried(t); strings.Contains(told[len(told)-1], ": innocent") {
			t.Fatalf("be-low is innocent: %q", told)
		}
	}
	n.extended(t)
	stop()
	told = append(told, n.tells(t, begun, "be-low", "released: nobody is disturbed any more"))
	n.heldTo(t, n.be, -1, -1)

	// In a cgroup of its own it weighs as much as all pods, however nice this test is.
	strange := filepath.Join(n.mount("cpu"), n.h.Cgroup, "strange")
	if err := os.MkdirAll(strange, 0o755); err != nil {
		t.Fatal(err)
	}
	second := time.Now()
	stop, foreign := n.spinIn(t, n.be, other), spin(t, quiet, strange)
	told = append(told, n.tells(t, second, "be-low", "suspected of disturbing others about cpu"))
	held := n.heldTo(t, n.be, 10000, 60000)
	told = append(told, n.tells(t, second, "be-low", "innocent, released"))
	n.heldTo(t, n.be, -1, -1)
	t.Logf("tried with %d µs, and free; all of it after %s:\n%s", held, time.Since(begun).Round(100*time.Millisecond), strings.Join(told, "\n"))
	foreign()
	stop()
	n.up(t)
}

// tried has a best-effort pod disturb, and waits for what koordlet tells, up to its verdict.
func (n *governed) tried(t *testing.T) (stop func(), told []string) {
	t.Helper()
	begun := time.Now()
	stop = n.spinIn(t, n.be, quiet)
	// Pressure and scheduling delay are both of it. Who is held for the one may end before it shows in the other; TestGuestNeighbours has each alone.
	told = []string{n.tells(t, begun, "victim", "disturbed: CPU"), n.tells(t, begun, "be-low", "suspected of disturbing others about cpu")}
	held := n.heldTo(t, n.be, 10000, 60000)
	t.Logf("held to %d µs after %s", held, time.Since(begun).Round(100*time.Millisecond))
	n.sees(t, `koord_rt_koordlet_pod_disturbed\{figure="now",[^}]*pod_name="victim"[^}]*\} .*`)
	return stop, append(told, n.tells(t, begun, "be-low", "guilty", "innocent, released"))
}

// extended: both stand in the NodeMetric, the one with what it suffers, the other with what it is held to, and their owners see it as events.
func (n *governed) extended(t *testing.T) {
	t.Helper()
	const key = "koord-rt.dev/interference"
	eventually(t, 30*time.Second, func() error {
		return errors.Join(n.told(t, "victim", "Disturbed", "Warning", "disturbed"), n.told(t, "be-low", "SuspectedOfDisturbing", "Normal", "suspected"))
	})
	eventually(t, 60*time.Second, func() error {
		got, err := n.c.Admin().Get(t.Context(), reports+"/"+n.k.Node)
		if err != nil {
			return err
		}
		var signal, state string
		list, _ := got.At("status", "podsMetric").([]any)
		for i := range list {
			switch got.Str("status", "podsMetric", i, "name") {
			case "victim":
				signal = got.Str("status", "podsMetric", i, "extensions", key, "disturbed", 0, "signal")
			case "be-low":
				state = got.Str("status", "podsMetric", i, "extensions", key, "held", 0, "state")
			}
		}
		if !strings.HasPrefix(signal, "CPU ") || state == "" {
			return fmt.Errorf("victim is disturbed by %q, be-low is held %q: %s", signal, state, got.Compact("status", "podsMetric"))
		}
		return nil
	})
}

// killed: what prediction has learned outlives a kill -9. What is in force stays so, and what the NodeSLO says meanwhile is in force
// five seconds after the start (M-1 of the documents).
func (n *governed) killed(t *testing.T) {
	kept := filepath.Join(n.dir, "state", "prediction", "prediction.json")
	eventually(t, 120*time.Second, func() error {
		if text, err := os.ReadFile(kept); err != nil || !strings.Contains(string(text), n.prod.Str("metadata", "uid")) {
			return fmt.Errorf("no checkpoint with prod: %w: %.300s", err, text)
		}
		return nil
	})
	if err := mostly(3, 5*time.Second, func(again bool) time.Duration {
		if again {
			n.patch(t, threshold(map[string]any{"cpuSuppressThresholdPercent": 100, "cpuSuppressMinPercent": 90}))
			n.quotaWithin(t, 89, 100)
		}
		return n.toldDead(t)
	}); err != nil {
		t.Errorf("from the start until the change was in force: %v", err)
	}
	n.sees(t, `koord_rt_koordlet_source_state\{source="nodeslo",state="active"\} 1`)
	eventually(t, 20*time.Second, func() error {
		if !strings.Contains(read(t, filepath.Join(n.dir, "koordlet.log")), "took up prediction models") {
			return fmt.Errorf("koordlet did not take up its models")
		}
		return nil
	})
	eventually(t, 60*time.Second, func() error { return n.remembers(t) })
	n.up(t)
}

// toldDead is how long after its start koordlet has in force what the NodeSLO said while it was dead, by kill -9.
func (n *governed) toldDead(t *testing.T) time.Duration {
	t.Helper()
	n.kill(t)
	n.patch(t, threshold(map[string]any{"cpuSuppressThresholdPercent": 60, "cpuSuppressMinPercent": nil}))
	if got, err := n.quota(); err != nil || got < 0 {
		t.Errorf("koordlet is dead, and the quota of the best-effort class is %d, %v", got, err)
	}
	n.reborn()
	n.quotaWithin(t, 0, 60)
	took := time.Since(n.again)
	t.Logf("what the NodeSLO said while koordlet was dead is in force %s after its start", took.Round(10*time.Millisecond))
	return took
}

// reborn starts koordlet again.
func (n *governed) reborn() {
	n.again = time.Now()
	n.births = append(n.births, n.again)
	n.start(n.outer)
}

// remembers: the first prediction of the second life is not that of somebody who knows nothing, which would be 0.
func (n *governed) remembers(t *testing.T) error {
	t.Helper()
	for _, c := range n.reported(t) {
		told := []any{"prodReclaimableMetric", "resource", "resources", "memory"}
		if text := c.status(t).Str(told...); c.At.After(n.again) && text != "" {
			t.Logf("first prediction %s after kill -9: %s of memory reclaimable", c.At.Sub(n.again).Round(time.Second), text)
			if amount(t, text) <= 0 {
				t.Errorf("after kill -9 nothing is reclaimable: %.600s", c.Request)
			}
			return nil
		}
	}
	return fmt.Errorf("no prediction has been told since kill -9")
}
