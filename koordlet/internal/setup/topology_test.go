// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// tree is a directory with these files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadMachine(t *testing.T) {
	t.Parallel()
	at := &config.Host{
		Proc: tree(t, map[string]string{"cpuinfo": "vendor_id\t: AuthenticAMD\nmodel name\t: EPYC\n"}),
		Sys: tree(t, map[string]string{
			"devices/system/cpu/smt/active": "1\n",
			"devices/system/node/node0/meminfo": "Node 0 MemTotal:        1024 kB\nNode 0 MemFree:         512 kB\nNode 0 Active(file):     0 kB\n" +
				"Node 0 Inactive(file):     0 kB\nNode 0 SReclaimable:     0 kB\n",
		}),
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

func TestReadCheckpoint(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"good": `{"policyName":"static","entries":{"u":{"c":"2-3"}}}`, "half": `{"policyName":"sta`})
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

func TestTopologySource(t *testing.T) {
	t.Parallel()
	if got := topologySource(true, nil); got != nil {
		t.Errorf("%+v", got)
	}
	off := topologySource(false, nil)
	if len(off) != 1 || off[0].State != status.StateOff || off[0].Reason == "" {
		t.Errorf("%+v", off)
	}
	w, err := report.NewTopology(report.TopologyOptions{API: nobody{}, Node: "n", Build: func() (report.Topology, bool) { return report.Topology{}, false }})
	if err != nil {
		t.Fatal(err)
	}
	if got := topologySource(true, w); len(got) != 1 || got[0].State != status.StateActive {
		t.Errorf("%+v", got)
	}
}

// nobody is an API server that is never asked.
type nobody struct{ report.ObjectWriter }
