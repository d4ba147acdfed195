// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package status

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/unit"
)

func TestAgentSection(t *testing.T) {
	t.Parallel()
	milli, bytes, share := unit.MilliCPU(1500), unit.Bytes(1<<30), unit.Fraction(0.25)
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	want := &Agent{
		Sources: []Source{{Name: "pods", State: StateDegraded, Reason: "kubelet: connection refused", Since: at}},
		Loops:   []Loop{{Name: "suppress", State: StateActive, Decision: "10 CPUs 0-9", At: at}},
		Node:    Node{Name: "n", Capacity: Amounts{CPU: 32000, Memory: 1 << 36}, Used: Usage{CPU: &milli, Memory: &bytes}},
		Classes: []Class{{Name: "BE", Pods: 1, Used: Usage{CPU: &milli}}},
		Pods: []Pod{{
			Namespace: "d", Name: "p", UID: "u", Class: "BE", Used: Usage{CPU: &milli}, Throttled: &share, Pressure: Pressure{CPU: &share},
		}},
		BE:        BE{Mode: "cpuset", CPUs: "0-9", Limit: &milli, Allowance: &milli, Since: at},
		Evictions: []Eviction{{Time: at, Namespace: "d", Name: "q", Feature: "BEMemoryEvict", Outcome: OutcomeEvicted}},
		NodeSLO: &NodeSLO{Generation: 3, LeftOut: 1, Overrides: []Override{
			{Field: "cpuBurstStrategy.cpuBurstPercent", Value: "300", By: []Owner{{Manager: "kubectl-edit", Time: at}, {Manager: "argo"}}},
		}},
	}
	dir := t.TempDir()
	if err := Write(dir, "koordlet", Status{Agent: want}); err != nil {
		t.Fatal(err)
	}
	got, err := ReadAll(dir, "/proc")
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if d := cmp.Diff(want, got[0].Agent); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// However much there is, the file stays one that a reader takes, and the caller's value is not changed.
func TestAgentSectionIsBounded(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("ä", 4000)
	a := &Agent{BE: BE{Reason: text}, PodsLeftOut: 1, NodeSLO: &NodeSLO{LeftOut: 1}}
	for i := range 5000 {
		name := fmt.Sprint(i)
		a.Sources = append(a.Sources, Source{Name: name, Reason: text})
		a.Collectors = append(a.Collectors, Source{Name: name, Reason: text})
		a.Loops = append(a.Loops, Loop{Name: name, Decision: text, Err: text})
		a.Pods = append(a.Pods, Pod{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), UID: name})
		a.Evictions = append(a.Evictions, Eviction{Name: name, Reason: text})
		by := slices.Repeat([]Owner{{Manager: text}}, 9)
		a.NodeSLO.Overrides = append(a.NodeSLO.Overrides, Override{Field: text, Value: text, By: by})
	}
	dir := t.TempDir()
	if err := Write(dir, "koordlet", Status{Agent: a}); err != nil {
		t.Fatal(err)
	}
	entries, err := ReadAll(dir, "/proc")
	if err != nil || entries[0].Err != "" {
		t.Fatal(entries[0].Err, err)
	}
	got := entries[0].Agent
	if len(got.Sources) != MaxSources || len(got.Collectors) != MaxSources || len(got.Loops) != MaxLoops || len(got.Pods) != MaxPods {
		t.Errorf("%d sources, %d collectors, %d loops, %d pods", len(got.Sources), len(got.Collectors), len(got.Loops), len(got.Pods))
	}
	if got.PodsLeftOut != 5001-MaxPods || len(got.Evictions) != MaxEvictions || got.Evictions[MaxEvictions-1].Name != "4999" {
		t.Errorf("%d pods left out, last eviction %+v", got.PodsLeftOut, got.Evictions[len(got.Evictions)-1])
	}
	over := got.NodeSLO.Overrides
	if len(over) != MaxOverrides || got.NodeSLO.LeftOut != 5001-MaxOverrides || len(over[0].By) != maxOwners {
		t.Errorf("%d overrides, %d left out", len(over), got.NodeSLO.LeftOut)
	}
	for _, s := range []string{over[0].Field, over[0].Value, over[0].By[0].Manager, got.BE.Reason, got.Sources[0].Reason, got.Loops[0].Decision, got.Loops[0].Err, got.Evictions[0].Reason} {
		if len(s) > maxText || !utf8.ValidString(s) || !strings.HasSuffix(s, "ä…") {
			t.Errorf("%d bytes: %.20q … %q", len(s), s, s[len(s)-8:])
		}
	}
	if len(a.NodeSLO.Overrides) != 5000 || a.NodeSLO.Overrides[0].Field != text || len(a.NodeSLO.Overrides[0].By) != 9 || a.NodeSLO.Overrides[0].By[0].Manager != text {
		t.Error("the caller's overrides were changed")
	}
	if len(a.Pods) != 5000 || a.Sources[0].Reason != text || a.Evictions[4999].Reason != text || a.BE.Reason != text {
		t.Error("the caller's value was changed")
	}
	if st, err := os.Stat(entries[0].File); err != nil || st.Size() > 1<<20 {
		t.Errorf("%d bytes, %v", st.Size(), err)
	}
}
