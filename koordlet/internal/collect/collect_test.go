// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	beUID = "7712850e-5c1a-4f6e-9be2-37f0c2f3a001"
	lsUID = "1f4e6a70-93f5-4b8e-8a54-0d7e0f1b2002"
)

// targets of the recorded machines.
func targets(v node.CgroupVersion) Targets {
	be, ls := "/kubepods/besteffort/pod"+beUID, "/kubepods/burstable/pod"+lsUID
	ctr := func(pod, id string) Container { return Container{id, pod + "/" + id} }
	if v == node.CgroupV2 {
		be = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(beUID, "-", "_") + ".slice"
		ls = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(lsUID, "-", "_") + ".slice"
		ctr = func(pod, id string) Container { return Container{id, pod + "/cri-containerd-" + id + ".scope"} }
	}
	t := Targets{
		Pods: []Pod{
			{UID: beUID, Cgroup: be, QoS: protocol.QoSBE, Priority: protocol.PriorityBatch, Containers: []Container{ctr(be, "b1c0de")}},
			{UID: lsUID, Cgroup: ls, QoS: protocol.QoSLS, Priority: protocol.PriorityProd, PID: 4321, Containers: []Container{ctr(ls, "a0f001"), ctr(ls, "a0f002")}},
		},
		BestEffort: be[:strings.LastIndex(be, "/")],
	}
	if v == node.CgroupV2 {
		t.HostApps = []HostApp{{"sshd", "/host.slice/sshd.service"}}
	}
	return t
}

// rig is a scanner on a record, with a clock that stands still during a tick.
type rig struct {
	*Scanner
	record *kerneltest.Record
	now    unit.Micros
	got    []sample.Sample
}

// zoneInfo is what the records lack: 1 MiB is free on lists of the CPUs.
const zoneInfo = "Node 0, zone   Normal\n  pagesets\n    cpu: 0\n              count:    200\n    cpu: 1\n              count:    56\n"

func newRig(t *testing.T, record string, v node.CgroupVersion, change func(*Options)) *rig {
	t.Helper()
	r := &rig{record: kerneltest.Recorded(t, record), now: 1000 * unit.Second}
	r.record.Put(t, "proc/zoneinfo", zoneInfo)
	topology, err := sys.FS(r.record.Roots.Sys).Topology()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Roots: r.record.Roots, Cgroup: v, Topology: topology, Slow: 1, Now: func() unit.Micros { return r.now }, Without: []string{"rundelay", "cpi", "rtt"}}
	if change != nil {
		change(&o)
	}
	if r.Scanner, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// scan does a tick without errors.
func (r *rig) scan(t *testing.T) Report {
	t.Helper()
	r.got = r.got[:0]
	report := r.Scan(func(s []sample.Sample) { r.got = append(r.got, s...) })
	if report.Err != nil || report.Failed != 0 {
		t.Errorf("%d failed, first %v", report.Failed, report.Err)
	}
	if report.Samples != len(r.got) {
		t.Errorf("%d samples reported, %d given", report.Samples, len(r.got))
	}
	for _, s := range r.got {
		if s.At != r.now || !s.Metric.Valid() || s.Subject.Kind == 0 || !(s.Value >= 0) {
			t.Errorf("sample %+v at %d", s, r.now)
		}
	}
	return report
}

// lines are the samples, one a line, in order of subject and metric; what is sampled twice shows twice.
func (r *rig) lines() []string {
	var out []string
	for _, s := range r.got {
		out = append(out, fmt.Sprintf("%s %s %.6g", s.Subject, s.Metric, s.Value))
	}
	slices.Sort(out)
	return out
}

func (r *rig) value(s sample.Subject, m sample.Metric) (float64, bool) {
	for _, x := range r.got {
		if x.Subject == s && x.Metric == m {
			return x.Value, true
		}
	}
	return 0, false
}

// TestRecorded scans each recorded machine twice, a second apart; the second scan's samples are in testdata. The first has
// amounts only: a rate needs two readings.
func TestRecorded(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]node.CgroupVersion{"6.18-v1": node.CgroupV1, "6.12-v2": node.CgroupV2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, name, v, nil)
			r.Follow(targets(v))
			r.scan(t)
			for _, s := range r.got {
				if s.Subject.Kind == sample.Class && s.Value == 0 {
					continue // without pods
				}
				if u := s.Metric.Unit(); u != sample.Bytes && u != sample.Ratio {
					t.Errorf("the first scan has %+v", s)
				}
			}
			r.record.Show(t, name+"+1s")
			r.now += unit.Second
			r.scan(t)
			golden := "testdata/" + name + ".golden"
			got := strings.Join(r.lines(), "\n") + "\n"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
