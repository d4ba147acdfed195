// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

var update = flag.Bool("update", false, "rewrite the wanted plans")

func each(t *testing.T, run func(t *testing.T, s *Scenario, version string)) {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, version := range s.Versions {
			t.Run(s.Name+"/"+version, func(t *testing.T) { run(t, &s, version) })
		}
	}
}

// TestPlans compares what the pure core decides, and the annotation that it makes, with the plan in the scenario.
func TestPlans(t *testing.T) {
	rewritten := map[string]*Scenario{}
	each(t, func(t *testing.T, s *Scenario, version string) {
		f := NewFake(t, s, version)
		all, err := f.Paper.All()
		if err != nil {
			t.Fatal(err)
		}
		got := all.String()
		for _, pr := range f.Paper.Problems {
			got += "problem " + pr + "\n"
		}
		if *update {
			if rewritten[s.Name] == nil {
				rewritten[s.Name] = s
			}
			rewritten[s.Name].SetPlan(version, got)
			return
		}
		if d := cmp.Diff(s.WantPlan[version], got); d != "" {
			t.Errorf("plan (-want +got):\n%s", d)
		}
		applied(t, s, version, f)
	})
	for name, s := range rewritten {
		if err := os.WriteFile(filepath.Join("testdata", name+".txtar"), s.Format(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFakeKernelState compares the wanted kernel state with a fake root, by the path of creation.
func TestFakeKernelState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Scenario, version string) {
		t.Parallel()
		f := NewFake(t, s, version)
		f.NRI(t.Context(), t)
		for _, w := range s.Want[version] {
			got, err := f.Read(w)
			if err != nil {
				t.Errorf("%s: %v", w, err)
			} else if got != w.Value {
				t.Errorf("%s: got %q", w, got)
			}
		}
	})
}

// TestCreationEqualsRepair is the conformance of the two paths: the same pods, once rewritten at creation and once
// repaired afterwards, end in the same kernel state.
func TestCreationEqualsRepair(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Scenario, version string) {
		t.Parallel()
		created, repaired := NewFake(t, s, version), NewFake(t, s, version)
		created.NRI(t.Context(), t)
		repaired.Reconcile(t.Context(), t)
		if diff := kerneltest.Diff(created.Tree.Snapshot(t), repaired.Tree.Snapshot(t)); diff != "" {
			t.Errorf("trees differ (created, repaired):\n%s", diff)
		}
		if d := cmp.Diff(created.procs.oom, repaired.procs.oom); d != "" {
			t.Errorf("oom_score_adj:\n%s", d)
		}
		if d := cmp.Diff(created.procs.group, repaired.procs.group); d != "" {
			t.Errorf("resctrl groups:\n%s", d)
		}
		if d := cmp.Diff(created.procs.policy, repaired.procs.policy); d != "" {
			t.Errorf("scheduling policies:\n%s", d)
		}
		if d := cmp.Diff(created.cookies.byPID, repaired.cookies.byPID); d != "" {
			t.Errorf("core-scheduling cookies:\n%s", d)
		}
		if d := cmp.Diff(created.procs.schemata, repaired.procs.schemata); d != "" {
			t.Errorf("schemata of resctrl groups:\n%s", d)
		}
	})
}

// applied: the annotation of every container says no more than the wanted plan, and all of it but what the request
// already held.
func applied(t *testing.T, s *Scenario, version string, f *Fake) {
	t.Helper()
	want := s.Applied(version)
	for _, pp := range f.Paper.Pods {
		for i, c := range pp.Containers {
			name := pp.Pod.FullName() + "/" + c.Name
			got := nri.Mark(f.Paper.View, pp.Plans[i], c, "test")
			if (got != nil) != (len(want[name]) > 0) {
				t.Fatalf("%s: annotation %v, plan %v", name, got, want[name])
			}
			if got == nil {
				continue
			}
			for knob, value := range got.Set {
				if want[name][knob] != value {
					t.Errorf("%s: annotation has %s = %q, plan %q", name, knob, value, want[name][knob])
				}
			}
			for knob, value := range want[name] {
				if _, ok := got.Set[knob]; !ok && !strings.HasPrefix(value, c.Base.Unified[knob]+" ") {
					t.Errorf("%s: annotation lacks %s = %q", name, knob, value)
				}
			}
		}
	}
}

func TestParseRefusesWhatWouldTestNothing(t *testing.T) {
	t.Parallel()
	const pods = "-- pods.yaml --\nname: web\nuid: u1\ncontainers:\n- name: app\n"
	for name, text := range map[string]string{
		"no comment":        pods,
		"no pods":           "about\n-- scenario.yaml --\ntopology: any\n",
		"unknown section":   "about\n" + pods + "-- wants.v1 --\n",
		"unknown key":       "about\n-- scenario.yaml --\ntopologie: any\n" + pods,
		"unknown topology":  "about\n-- scenario.yaml --\ntopology: vm9\n" + pods,
		"unknown container": "about\n" + pods + "-- want.v1 --\nweb/db cpu.shares 2\n",
		"unknown need":      "about\n-- scenario.yaml --\nneeds: [luck]\n" + pods,
		"empty pod cache":   "about\n-- pods.json --\n{}\n" + pods,
		"unknown version":   "about\n-- scenario.yaml --\nversions: [v2]\n" + pods + "-- want.v1 --\nweb cpu.shares 2\n",
	} {
		if _, err := Parse(name, []byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
