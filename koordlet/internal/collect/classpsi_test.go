// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"
	"os"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// How long BE waits for CPUs is told in each tick, of the class as a whole, and again after its cgroup was made anew.
func TestClassPressure(t *testing.T) {
	t.Parallel()
	const class = "/kubepods/besteffort"
	tree := kerneltest.New(t, "6.12", class+"/pod"+beUID)
	if err := os.MkdirAll(tree.Roots.Proc+"/pressure", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tree.Roots.Proc+"/pressure/cpu", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	show := func(total int) {
		tree.Set(t, class, "cpu.pressure", fmt.Sprintf("some avg10=86.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0", total))
	}
	now := 1000 * unit.Second
	s, err := New(Options{Roots: tree.Roots, Cgroup: tree.Version, Now: func() unit.Micros { return now }, Without: without("classpsi")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	want := func(what string, want ...float64) {
		t.Helper()
		now += unit.Second
		var got []float64
		if r := s.Scan(func(batch []sample.Sample) {
			for _, x := range batch {
				if x.Subject == sample.OfQoS(protocol.QoSBE) && x.Metric == sample.StallCPUSome {
					got = append(got, x.Value)
				}
			}
		}); r.Failed != 0 {
			t.Errorf("%s: %v", what, r.Err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	follow := func() { s.Follow(Targets{BestEffort: class}) }
	want("nobody is followed")
	follow()
	want("no file")
	show(5_000_000)
	for range lazyPressure - 1 {
		want("looked for now and then")
	}
	want("first reading")
	show(5_860_000)
	want("86 % of a second", 860_000)
	follow() // the same class again keeps its reading
	show(5_960_000)
	want("10 % of a second", 100_000)
	s.Follow(Targets{})
	want("nobody of the class")
	follow()
	want("first reading again")
	if err := os.Remove(tree.Path(class, "cpu.pressure")); err != nil {
		t.Fatal(err)
	}
	show(5_960_000)
	want("the file that is held", 0)
}

// without are all collectors but one.
func without(one string) (out []string) {
	for _, c := range collectors {
		if c.name != one {
			out = append(out, c.name)
		}
	}
	return out
}

// A kernel without pressure says so, cgroup v1 that it has little.
func TestClassPressureSupport(t *testing.T) {
	t.Parallel()
	tree := kerneltest.New(t, "6.12")
	if _, can := newClassPressure(&machine{opts: &Options{Cgroup: node.CgroupV2}, proc: "/none"}); can.no == "" {
		t.Errorf("%+v", can)
	}
	if err := os.MkdirAll(tree.Roots.Proc+"/pressure/cpu", 0o755); err != nil {
		t.Fatal(err)
	}
	for version, less := range map[node.CgroupVersion]bool{node.CgroupV1: true, node.CgroupV2: false} {
		c, can := newClassPressure(&machine{opts: &Options{Cgroup: version}, proc: proc.FS(tree.Roots.Proc)})
		if c == nil || can.no != "" || (can.less != "") != less {
			t.Errorf("%v: %+v", version, can)
		}
	}
}
