// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
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

// TestCreationEqualsRepair is the conformance of the three paths: the same pods, once rewritten at creation by the plugin, once in the
// proxy's requests, and once repaired afterwards, end in the same kernel state, the wanted one. A fake root costs more than what is done
// on it, so each is looked at once.
func TestCreationEqualsRepair(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Scenario, version string) {
		t.Parallel()
		created, proxied, repaired := NewFake(t, s, version), NewFake(t, s, version), NewFake(t, s, version)
		created.NRI(t.Context(), t)
		proxied.CRI(t.Context(), t)
		repaired.Reconcile(t.Context(), t)
		created.holds(t, "with the plugin", s.Want[version])
		proxied.holds(t, "through the proxy", s.Want[version]) // variables and devices, too, which no tree has
		created.equals(t, "repaired", repaired)
		created.equals(t, "through the proxy", proxied)
	})
}

// holds compares the wanted lines with the fake.
func (f *Fake) holds(t *testing.T, way string, wants []Want) {
	t.Helper()
	for _, w := range wants {
		got, err := f.Read(w)
		if err != nil {
			t.Errorf("%s: %s: %v", way, w, err)
		} else if got != w.Value {
			t.Errorf("%s: %s: got %q", way, w, got)
		}
	}
}

// equals compares what two fakes have of the kernel's.
func (f *Fake) equals(t *testing.T, way string, other *Fake) {
	t.Helper()
	if diff := kerneltest.Diff(f.Tree.Snapshot(t), other.Tree.Snapshot(t)); diff != "" {
		t.Errorf("trees differ (created, %s):\n%s", way, diff)
	}
	for what, pair := range map[string][2]any{
		"oom_score_adj":              {f.procs.oom, other.procs.oom},
		"resctrl groups":             {f.procs.group, other.procs.group},
		"scheduling policies":        {f.procs.policy, other.procs.policy},
		"core-scheduling cookies":    {f.cookies.byPID, other.cookies.byPID},
		"schemata of resctrl groups": {f.procs.schemata, other.procs.schemata},
	} {
		if d := cmp.Diff(pair[0], pair[1]); d != "" {
			t.Errorf("%s (created, %s):\n%s", what, way, d)
		}
	}
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

// What a host with other CPUs or another cgroup version does not show has to be named.
func TestLost(t *testing.T) {
	t.Parallel()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if lost := Lost(all, HostVersion, HostTopology); len(lost) > 0 {
		t.Errorf("the lab's own host does not show %v", lost)
	}
	if d := cmp.Diff([]string{"caps-cpus-host", "cpuset-host", "unlabelled-host"}, Lost(all, "v1", "other")); d != "" {
		t.Errorf("not shown on four CPUs (-want +got):\n%s", d)
	}
	// A scenario of both versions runs on v2, too, and shows nothing of v1 there.
	if lost := Lost(all, "v2", HostTopology); !slices.Contains(lost, "batch") || !slices.Contains(lost, "cpuset-host") || slices.Contains(lost, "cpuset-lsr") {
		t.Errorf("not shown on cgroup v2: %v", lost)
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

// A machine has its own disk: what a scenario asks of DISK and wants of MAJ:MIN is then asked and wanted of that one, and of no other. The
// file still says DISK and MAJ:MIN when its plans are written anew.
func TestOnAnotherDisk(t *testing.T) {
	t.Parallel()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for i := range all {
		s := &all[i]
		text := string(s.Format())
		for version, plan := range s.WantPlan {
			s.SetPlan(version, plan)
		}
		if d := cmp.Diff(text, string(s.Format())); d != "" {
			t.Errorf("%s with its own plans (-was +is):\n%s", s.Name, d)
		}
		on, err := s.On(Disk{Name: "nvme0n1", Number: "259:3"})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, diskNumber) {
			named++
		} else if d := cmp.Diff(s.Want, on.Want); d != "" {
			t.Errorf("%s says nothing of disks, and wants something else on another (-paper +there):\n%s", s.Name, d)
		}
		for version, wants := range s.Want {
			for k, w := range wants {
				if want := strings.ReplaceAll(w.String(), "254:0", "259:3"); on.Want[version][k].String() != want {
					t.Errorf("%s: want %q, on the other disk %q", s.Name, want, on.Want[version][k])
				}
			}
			if want := strings.ReplaceAll(s.WantPlan[version], "254:0", "259:3"); on.WantPlan[version] != want {
				t.Errorf("%s: want the plan %q, on the other disk %q", s.Name, want, on.WantPlan[version])
			}
		}
		for k := range s.Pods {
			for key, value := range s.Pods[k].Annotations {
				if want := strings.ReplaceAll(value, "vda", "nvme0n1"); on.Pods[k].Annotations[key] != want {
					t.Errorf("%s: want %s to ask %q, on the other disk %q", s.Name, key, want, on.Pods[k].Annotations[key])
				}
			}
		}
		if want := strings.ReplaceAll(string(s.Strategy), "vda", "nvme0n1"); string(on.Strategy) != want {
			t.Errorf("%s: want the strategy %q, on the other disk %q", s.Name, want, on.Strategy)
		}
	}
	if named == 0 {
		t.Error("no scenario says MAJ:MIN: nothing was shown")
	}
}
