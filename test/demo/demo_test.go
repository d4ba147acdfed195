// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// The pods are valid, and the owner of a CPU comes last and takes the last one; on one CPU nothing is pinned.
func TestPods(t *testing.T) {
	t.Parallel()
	for _, m := range []machine{{cpus: []int{0}}, {cpus: []int{0, 1}, disk: "/dev/vda"}, {cpus: []int{4, 5, 63}}} {
		all := pods(m)
		for _, p := range all {
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
			for key := range p.Annotations {
				if !strings.HasPrefix(key, protocol.DomainKoordinator) && !strings.Contains(key, "."+protocol.DomainKoordinator) {
					t.Errorf("%s: annotation %s is not Koordinator's", p.Name, key)
				}
			}
		}
		db := all[len(all)-1]
		got, pinned := db.Annotations[protocol.AnnotationResourceStatus]
		want := map[int]string{1: "", 2: `{"cpuset":"1"}`, 3: `{"cpuset":"63"}`}[len(m.cpus)]
		if got != want || pinned != (len(m.cpus) > 1) || db.Labels[protocol.LabelQoSClass] != "LSR" {
			t.Errorf("%v: %s has %q, want %q", m, db.Name, got, want)
		}
		if _, ok := all[1].Annotations[protocol.AnnotationBlkIOQOS]; ok != (m.disk != "") {
			t.Errorf("%v: disk limit is %v", m, ok)
		}
	}
}

func TestStrategyIsValid(t *testing.T) {
	t.Parallel()
	if _, err := strategy.Parse([]byte(strategyFile)); err != nil {
		t.Error(err)
	}
}

// Every knob with a file is looked at once, and one file holds its knobs together.
func TestSights(t *testing.T) {
	t.Parallel()
	for _, v2 := range []bool{false, true} {
		var files []string
		for _, s := range sights(v2) {
			if slices.Contains(files, s.file) {
				t.Errorf("v2=%v: %s is listed twice", v2, s.file)
			}
			files = append(files, s.file)
			if (s.controller == "") != (v2 || s.file == fileOOM || s.file == fileSched) {
				t.Errorf("v2=%v: %s has controller %q", v2, s.file, s.controller)
			}
			if s.file == "cpu.max" && !slices.Equal(s.knobs, []plan.Knob{plan.CPUQuota, plan.CPUPeriod}) {
				t.Errorf("cpu.max holds %v", s.knobs)
			}
		}
		for _, want := range map[bool][]string{false: {"cpu.shares", "cpu.cfs_quota_us", fileOOM}, true: {"cpu.weight", "memory.high", fileSched}}[v2] {
			if !slices.Contains(files, want) {
				t.Errorf("v2=%v: %s is not looked at", v2, want)
			}
		}
	}
}

func TestHuman(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"memory.max", "268435456", "256 MiB"}, {"memory.max", "max", "no limit"}, {"memory.min", "4096", "4 KiB"}, {"memory.min", "5000", "5000"},
		{"memory.limit_in_bytes", "9223372036854771712", "no limit"}, {"cpu.cfs_quota_us", "-1", "no limit"}, {"cpu.max", "max 100000", "no limit"}, {"cpu.max", "50000 100000", "50000 of 100000 us"},
		{"cpu.shares", "1048576", "1048576"}, {"io.max", "", "-"}, {"cpuset.cpus", "", "inherited"},
		{"io.max", "254:0 rbps=max wbps=1 riops=max wiops=max", "254:0 wbps=1"}, {"memory.high", "80527360", "76.8 MiB"}, {"oom_score_adj", "-1", "-1"},
	} {
		if got := human(c[0], c[1]); got != c[2] {
			t.Errorf("%s %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestCompareShowsOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &demo{screen: &screen{out: &out, width: 100}}
	d.tree.Unified = "/sys/fs/cgroup"
	r := &kubelet.Running{Pod: pods(machine{})[1]}
	at := func(container, file string) place { return place{pod: "job", container: container, file: file} }
	before := reading{at("work", "cpu.weight"): "1", at("work", "memory.max"): "max", at("", "cpu.weight"): "1", at("", "cpu.idle"): "0"}
	now := reading{at("work", "cpu.weight"): "59", at("work", "memory.max"): "max", at("", "cpu.weight"): "0", at("", "cpu.idle"): "1"}
	d.compare(r, before, now, []setting{
		{Level: "container", Name: "default/job/work", Knob: "cpu.shares", Owner: "batch", Reason: "batch-cpu request 500m"},
		{Level: "pod", Name: "default/job", Knob: "cpu.idle", Owner: "cpu-identity", Reason: "class BE"},
	})
	want := `
  job/work  class BE
             value       without us  in the kernel now  why
  container  cpu.weight  1           59                 batch: batch-cpu request 500m
  pod        cpu.weight  1           0                  side effect of another value of this cgroup
             cpu.idle    0           1                  cpu-identity: class BE
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestWrapAndBreak(t *testing.T) {
	t.Parallel()
	if got := wrap("one two three", 8); !slices.Equal(got, []string{"one two", "three"}) {
		t.Errorf("wrap: %q", got)
	}
	if got := wrap("", 8); !slices.Equal(got, []string{""}) {
		t.Errorf("wrap of nothing: %q", got)
	}
	text := `{"a":1,"bb":2,"ccc":3}`
	if got := breakAfterCommas(text, 10); !slices.Equal(got, []string{`{"a":1,`, `"bb":2,`, `"ccc":3}`}) || strings.Join(got, "") != text {
		t.Errorf("break: %q", got)
	}
}

func TestWholeDisk(t *testing.T) {
	t.Parallel()
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "block", "vda"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := wholeDisk(sys, t.TempDir()); got != "" {
		t.Errorf("a disk without a device node was taken: %s", got)
	}
}
