// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package memqos_test

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

// TestTuning: a container that stalls at its memory.high on a calm node gets room, and gives it back.
func TestTuning(t *testing.T) {
	t.Parallel()
	in := node(ls("a", 950*mib))
	in.Tune = true
	c := &in.Containers[0]
	c.High, c.Max, c.Stall = 1000*mib, 2000*mib, unit.Got[unit.Fraction](0.2)
	var s memqos.State
	var got []string
	for range 45 {
		in.Now += unit.Second
		var out memqos.Output
		s, out = memqos.Step(s, in)
		if len(out.Highs) == 1 {
			c.Used = unit.Got(out.Highs[0].Bytes)
			if out.Highs[0].Less {
				t.Fatalf("room is called less than the policy's: %+v", out.Highs[0])
			}
		}
		if h := highs(out); len(got) == 0 || got[len(got)-1] != h {
			got = append(got, h)
		}
	}
	if d := cmp.Diff([]string{"a=1250", "a=1500", "a=1750", "a=2000"}, got); d != "" {
		t.Errorf("up (-want +got):\n%s", d)
	}
	c.Used, c.Stall = unit.Got(950*mib), unit.Got[unit.Fraction](0)
	for range 300 {
		in.Now += unit.Second
		s, _ = memqos.Step(s, in)
	}
	if s.Containers[0].Lift != 1 {
		t.Errorf("a container that uses its room lost it: %v", s.Containers[0].Lift)
	}
	c.Used, got = unit.Got(800*mib), nil
	for range 300 {
		in.Now += unit.Second
		var out memqos.Output
		s, out = memqos.Step(s, in)
		if h := highs(out); len(got) == 0 || got[len(got)-1] != h {
			got = append(got, h)
		}
	}
	if d := cmp.Diff([]string{"a=2000", "a=1750", "a=1500", "a=1250", ""}, got); d != "" || len(s.Containers) != 0 {
		t.Errorf("down, left %v (-want +got):\n%s", s.Containers, d)
	}
	for name, change := range map[string]func(*memqos.Input){
		"not asked":         func(in *memqos.Input) { in.Tune = false },
		"no stall":          func(in *memqos.Input) { in.Containers[0].Stall.V = 0.09 },
		"stall unknown":     func(in *memqos.Input) { in.Containers[0].Stall.OK = false },
		"far below":         func(in *memqos.Input) { in.Containers[0].Used.V = 900 * mib },
		"no memory.high":    func(in *memqos.Input) { in.Containers[0].High = 0 },
		"never throttles":   func(in *memqos.Input) { in.Containers[0].High = 3000 * mib },
		"node not calm":     func(in *memqos.Input) { in.Used.V = 90 * gib },
		"node not measured": func(in *memqos.Input) { in.Used.OK = false },
	} {
		in := node(in.Containers...)
		in.Tune = true
		in.Containers[0].Used, in.Containers[0].Stall = unit.Got(960*mib), unit.Got[unit.Fraction](0.2)
		in.Containers[0].High = 1000 * mib
		change(&in)
		if _, out := memqos.Step(memqos.State{}, in); highs(out) != "" {
			t.Errorf("%s: %q", name, highs(out))
		}
	}
}

func TestStateThroughJSON(t *testing.T) {
	t.Parallel()
	in := node(be("b", gib), be("a", gib))
	in.Used = unit.Got(95 * gib)
	s, _ := memqos.Step(memqos.State{}, in)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back memqos.State
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, back); d != "" || len(s.Containers) != 2 {
		t.Errorf("state:\n%s", d)
	}
	in.Used, in.Containers = unit.Got(10*gib), nil
	if s, _ = memqos.Step(s, in); len(s.Containers) != 0 || s.Pressure != memqos.Calm {
		t.Errorf("left behind: %+v", s)
	}
}

// TestScenario: BE caches grow on a node that comes close to eviction. Reclaim keeps it below the threshold without anybody
// being evicted, and everything is back when the load is gone.
func TestScenario(t *testing.T) {
	t.Parallel()
	caches := []unit.Bytes{6 * gib, 5 * gib, 4 * gib}
	lsUse := 70 * gib
	var s memqos.State
	var over, tight int
	for i := range 600 {
		if i < 300 {
			lsUse = min(lsUse+64*mib, 84*gib)
		} else {
			lsUse = 60 * gib
		}
		in := node(ls("ls", lsUse))
		in.Now = unit.Micros(i) * unit.Second
		total := lsUse
		for k := range caches {
			caches[k] += 50 * mib
			if i >= 300 {
				caches[k] = min(caches[k], 6*gib)
			}
			c := be(strconv.Itoa(k), caches[k])
			for _, held := range s.Containers {
				if held.ID == c.ID && held.Held > 0 { // the kernel throttles
					caches[k] = min(caches[k], held.Held)
				}
			}
			c.Used, c.Request, c.Reclaimable = unit.Got(caches[k]), 64*gib, unit.Got(caches[k]-gib)
			in.Containers = append(in.Containers, c)
			total += caches[k]
		}
		in.Used = unit.Got(total)
		if total > 96*gib {
			over++
		}
		var out memqos.Output
		s, out = memqos.Step(s, in)
		if out.Pressure == memqos.Tight {
			tight++
		}
		for _, r := range out.Reclaims {
			k, err := strconv.Atoi(r.Container)
			if err != nil {
				t.Fatalf("LS is reclaimed: %+v", r)
			}
			caches[k] -= r.Bytes
		}
		if i == 599 && (len(out.Highs) > 0 || out.Pressure != memqos.Calm) {
			t.Errorf("at the end: %s, %q", out.Pressure, highs(out))
		}
	}
	if over > 0 {
		t.Errorf("%d s above the eviction threshold, %d s tight", over, tight)
	}
}

// TestInvariants: never below protection, never more than a tick may take, never twice the same container.
func TestInvariants(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		var s memqos.State
		in := node()
		in.CanReclaim, in.Tune = r.IntN(4) > 0, r.IntN(2) == 0
		for range 40 {
			in.Now += unit.Second
			in.Used = unit.Got(unit.Bytes(r.Int64N(int64(128 * gib))))
			in.Used.OK = r.IntN(8) > 0
			in.Containers = nil
			for i := range 1 + r.IntN(6) {
				c := be(strconv.Itoa(i), unit.Bytes(r.Int64N(int64(8*gib))))
				if r.IntN(2) == 0 {
					c = ls(c.ID, c.Used.V)
				}
				c.Low, c.Max, c.High = unit.Bytes(r.Int64N(int64(4*gib))), unit.Bytes(r.IntN(2))*8*gib, unit.Bytes(r.IntN(2))*4*gib
				c.WmarkRatio, c.WmarkScale = unit.Percent(r.IntN(101)), int64(r.IntN(1001))
				c.Used.OK, c.Got, c.Stall = r.IntN(8) > 0, unit.Got(unit.Bytes(r.Int64N(int64(gib)))), unit.Got(unit.Fraction(r.Float64()/3))
				in.Containers = append(in.Containers, c)
			}
			var out memqos.Output
			s, out = memqos.Step(s, in)
			check(t, &in, &out)
		}
	}
}

func check(t *testing.T, in *memqos.Input, out *memqos.Output) {
	t.Helper()
	find := func(id string) *memqos.Container {
		for i := range in.Containers {
			if in.Containers[i].ID == id {
				return &in.Containers[i]
			}
		}
		t.Fatalf("no container %s", id)
		return nil
	}
	var sum unit.Bytes
	seen := map[string]bool{}
	for _, rec := range out.Reclaims {
		c := find(rec.Container)
		if seen[c.ID] || rec.Bytes <= 0 || !c.Used.OK || c.Used.V-rec.Bytes < c.Low || rec.Reason == "" {
			t.Fatalf("%+v of %+v", rec, c)
		}
		seen[c.ID] = true
		sum += rec.Bytes
	}
	if sum > in.Capacity/100 {
		t.Fatalf("%d bytes in one tick", sum)
	}
	for _, h := range out.Highs {
		c := find(h.Container)
		if h.Bytes <= 0 || h.Reason == "" || c.QoS != protocol.QoSBE && h.Bytes < c.High {
			t.Fatalf("%+v of %+v", h, c)
		}
	}
}
