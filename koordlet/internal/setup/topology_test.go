// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kubeletopt"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// node0 is the memory of a node that has one mebibyte.
const node0 = "Node 0 MemTotal:        1024 kB\nNode 0 MemFree:         512 kB\nNode 0 Active(file):     0 kB\n" +
	"Node 0 Inactive(file):     0 kB\nNode 0 SReclaimable:     0 kB\n"

func TestReadMachine(t *testing.T) {
	t.Parallel()
	at := &config.Host{
		Proc: kerneltest.Lay(t, map[string]string{"cpuinfo": "vendor_id\t: AuthenticAMD\nmodel name\t: EPYC\n"}, ""),
		Sys: kerneltest.Lay(t, map[string]string{
			"devices/system/cpu/smt/active":     "1\n",
			"devices/system/node/node0/meminfo": node0,
		}, ""),
	}
	v := &node.View{Topology: topo.New([]topo.CPU{{ID: 0}}, topo.CPUs(0))}
	v.Kernel.RDT.L3CBM = 0xff
	m, err := readMachine(at, v)
	if err != nil {
		t.Fatal(err)
	}
	want := report.Machine{Memory: map[int]unit.Bytes{0: 1 << 20}, Model: "EPYC", Vendor: "AuthenticAMD", HyperThreads: true, L3Mask: 0xff}
	got := *m
	got.Topology = nil
	if d := cmp.Diff(want, got); d != "" || m.Topology != v.Topology {
		t.Errorf("(-want +got):\n%s", d)
	}
	m, err = readMachine(&config.Host{Proc: t.TempDir(), Sys: t.TempDir()}, v)
	if err == nil || m == nil || m.Topology == nil {
		t.Errorf("a machine that tells nothing: %+v, %v", m, err)
	}
}

// A machine that could be read in part is read again until it is whole, and told of once; one that is whole when its View's changes.
func TestMachineIsReadUntilItIsWhole(t *testing.T) {
	t.Parallel()
	at := &config.Host{Proc: t.TempDir(), Sys: kerneltest.Lay(t, map[string]string{"devices/system/node/node0/meminfo": node0}, "")}
	tell := func(model string) {
		if err := os.WriteFile(filepath.Join(at.Proc, "cpuinfo"), []byte("model name\t: "+model+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v := &node.View{Topology: topo.New([]topo.CPU{{ID: 0}}, topo.CPUs(0))}
	var k machine
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	for range 2 {
		if m := k.read(at, v, log); m.Model != "" || m.Memory[0] != 1<<20 {
			t.Errorf("without its processors: %+v", m)
		}
	}
	if got := strings.Count(text.String(), "not reported in full"); got != 1 {
		t.Errorf("told %d times: %s", got, text.String())
	}
	tell("EPYC")
	if m := k.read(at, v, log); m.Model != "EPYC" || !strings.Contains(text.String(), "is reported in full") {
		t.Errorf("whole: %+v, %s", m, text.String())
	}
	tell("Xeon")
	if m := k.read(at, v, log); m.Model != "EPYC" {
		t.Errorf("read again without need: %+v", m)
	}
	v.Kernel.RDT.L3CBM = 0xff // resctrl has been mounted
	if m := k.read(at, v, log); m.Model != "Xeon" || m.L3Mask != 0xff {
		t.Errorf("another cache mask: %+v", m)
	}
}

func TestReadCheckpoint(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{"good": `{"policyName":"static","entries":{"u":{"c":"2-3"}}}`, "half": `{"policyName":"sta`}, "")
	if c, err := readCheckpoint(filepath.Join(dir, "good")); err != nil || c.Policy != "static" || c.Entries["u"].String() != "2-3" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := readCheckpoint(filepath.Join(dir, "none")); err != nil || c.Policy != "" {
		t.Errorf("no kubelet: %+v, %v", c, err)
	}
	for _, name := range []string{"half", "."} {
		if c, err := readCheckpoint(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestKubeletCPUs: a checkpoint that is written anew is told with the next step; one that cannot be read leaves what is known and says so, and a
// kubelet that has gone ends it.
func TestKubeletCPUs(t *testing.T) {
	t.Parallel()
	const half = `{"policyName":"sta`
	k := kubeletCPUs{path: filepath.Join(t.TempDir(), "cpu_manager_state")}
	for i, step := range []struct{ file, want string }{
		{"", ""}, {`{"policyName":"static","entries":{"u":{"c":"2-3"}}}`, "2-3"}, {half, "2-3"},
		{`{"policyName":"static","entries":{"u":{"c":"2-5"}}}`, "2-5"}, {"", ""},
	} {
		_ = os.Remove(k.path) // the kubelet renames another one into its place
		if step.file != "" {
			if err := os.WriteFile(k.path, []byte(step.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			got, err := k.load()
			if got["u"].String() != step.want {
				t.Errorf("step %d: %s, want %s", i, got["u"], step.want)
			}
			if stale := step.file == half; stale != (err != nil) || stale && !strings.Contains(err.Error(), k.path) {
				t.Errorf("step %d: %v", i, err)
			}
		}
	}
}

func TestTopologySource(t *testing.T) {
	t.Parallel()
	if got := topologySource(true, nil, nil); got != nil {
		t.Errorf("%+v", got)
	}
	off := topologySource(false, nil, nil)
	if len(off) != 1 || off[0].State != status.StateOff || off[0].Reason == "" {
		t.Errorf("%+v", off)
	}
	w, err := report.NewTopology(report.TopologyOptions{API: nobody{}, Node: "n", Build: func() (report.Topology, bool) { return report.Topology{}, false }})
	if err != nil {
		t.Fatal(err)
	}
	if got := topologySource(true, w, nil); len(got) != 1 || got[0].State != status.StateActive {
		t.Errorf("%+v", got)
	}
	if got := topologySource(true, w, errors.New("no policyName")); len(got) != 1 || got[0].State != status.StateDegraded || got[0].Reason != "no policyName" {
		t.Errorf("what cannot be made: %+v", got)
	}
}

// How the kubelet's options are known is said where somebody is told of them.
func TestOptionsSource(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reported, asked bool
		s               *kubeletopt.State
		want            []status.Source
	}{
		"no report": {false, true, nil, nil},
		"off":       {true, false, nil, []status.Source{{Name: "kubelet-options", State: status.StateOff, Reason: "kubelet.queryConfig is false"}}},
		"at first":  {true, true, nil, []status.Source{{Name: "kubelet-options", State: status.StateDegraded, Reason: "not asked yet"}}},
		"known":     {true, true, &kubeletopt.State{Known: true, Since: since}, []status.Source{{Name: "kubelet-options", State: status.StateActive, Since: since}}},
		"refused": {true, true, &kubeletopt.State{Err: errors.New("403")}, []status.Source{
			{Name: "kubelet-options", State: status.StateDegraded, Reason: "403"},
		}},
	} {
		if d := cmp.Diff(c.want, optionsSource(c.reported, c.asked, c.s)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// What the kubelet keeps is the difference of what it was and what it offers, not of what the manager makes of it.
func TestKept(t *testing.T) {
	t.Parallel()
	n := &kube.Node{Capacity: amount.Amounts{CPU: 64000, Memory: 100}, Allocatable: amount.Amounts{CPU: 90000, Memory: 90}}
	if got := kept(n); got != (report.Figures{Memory: 10}) {
		t.Errorf("amplified: %+v", got)
	}
	n.Annotations = map[string]string{"node.koordinator.sh/raw-allocatable": `{"cpu":"61","memory":"80"}`}
	if got := kept(n); got != (report.Figures{CPU: 3000, Memory: 20}) {
		t.Errorf("%+v", got)
	}
	if got := kept(&kube.Node{}); got != (report.Figures{}) {
		t.Errorf("an unknown node: %+v", got)
	}
}

// nobody is an API server that is never asked.
type nobody struct{ report.ObjectWriter }
