// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package mark_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

func always(*plan.Setting) bool { return true }
func never(*plan.Setting) bool  { return false }

// set is one setting of a container.
func set(k plan.Knob, key string, value plan.Value) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: plan.LevelContainer}, Knob: k, Key: key, Value: value, Owner: protocol.FeatureBurst}
}

// FuzzText holds the written text against the one that goes through maps and encoding/json.
func FuzzText(f *testing.F) {
	f.Add("0-3", "8:0", "v1", int64(512), uint64(3), true)
	f.Add("\"\\\n\x00\x7f\u2028é\xff<&>", "A=\t", "\b\f", int64(-1), uint64(0), false)
	f.Add("", "", "", int64(1), uint64(1), false)
	f.Fuzz(func(t *testing.T, text, key, version string, n int64, gen uint64, idle bool) {
		by := mark.By{Generation: gen, Program: "koord-nri", Version: version}
		base := workload.Resources{Shares: unit.Some(n), CPUs: key, Unified: map[string]string{"memory.high": text, "memory.min": key}}
		p := plan.Plan{set(plan.CPUShares, "", plan.Int(n/2+7))}
		if idle {
			p = append(p, set(plan.CPUIdle, "", plan.Int(1)))
		}
		p = append(p, set(plan.CPUSetCPUs, "", plan.Text(text)), set(plan.MemoryHigh, "", plan.Int(n)),
			set(plan.IOReadBPS, key, plan.Int(n)), set(plan.IOReadBPS, text, plan.Int(n)), set(plan.Env, text, plan.Text("x")))
		var w mark.Writer
		for i := range len(p) + 1 {
			for _, keeps := range []func(*plan.Setting) bool{always, never} {
				want := ""
				if m := mark.Of(by, p[:i], &base, keeps); m != nil {
					want = protocol.FormatApplied(*m)
				}
				if got := w.Text(by, p[:i], &base, keeps); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
		}
	})
}

func TestRebaseUndoesThePlan(t *testing.T) {
	t.Parallel()
	asked := workload.Resources{Shares: unit.Some(1024), Quota: unit.Some(50000), Period: unit.Some(100000), CPUs: "0-3",
		MemoryLimit: unit.Some(1 << 30), Unified: map[string]string{"memory.min": "7", "foreign": "1"}}
	p := plan.Plan{
		set(plan.CPUShares, "", plan.Int(512)), set(plan.CPUQuota, "", plan.Int(-1)), set(plan.CPUSetCPUs, "", plan.Text("4-5")),
		set(plan.MemoryLimit, "", plan.Int(1<<31)), set(plan.MemoryMin, "", plan.Int(4096)), set(plan.MemoryHigh, "", plan.Int(-1)),
	}
	m := mark.Of(mark.By{Program: "koord-runtime-proxy", Version: "x"}, p, &asked, always)
	spec := workload.Resources{Shares: unit.Some(512), Quota: unit.Some(-1), Period: unit.Some(100000), CPUs: "4-5",
		MemoryLimit: unit.Some(1 << 31), Unified: map[string]string{"memory.min": "4096", "memory.high": "max", "foreign": "1"}}
	got := spec
	mark.Rebase(&got, nil, m)
	if diff := cmp.Diff(asked, got); diff != "" {
		t.Errorf("base (-want +got):\n%s", diff)
	}
	if spec.Unified["memory.high"] != "max" {
		t.Error("the caller's map was changed")
	}
	resized := spec
	resized.Quota = unit.Some(70000)
	mark.Rebase(&resized, m)
	if resized.Quota != unit.Some(70000) || resized.Shares != unit.Some(1024) {
		t.Errorf("a value that no mark claims is the base: %+v", resized)
	}
	if back := mark.PlanOf(m, plan.Target{Container: "c"}); len(back) != len(p) || back.Get(plan.MemoryHigh).Value != plan.Int(-1) {
		t.Errorf("plan of the mark:\n%s", back)
	}
}

func TestRebaseOfAnIdleGroup(t *testing.T) {
	t.Parallel()
	asked := workload.Resources{Shares: unit.Some(1024)}
	m := mark.Of(mark.By{}, plan.Plan{set(plan.CPUIdle, "", plan.Int(1))}, &asked, always)
	for _, spec := range []workload.Resources{{}, {Shares: unit.Some(0)}} {
		spec.Unified = map[string]string{"cpu.idle": "1"}
		mark.Rebase(&spec, m)
		if spec.Shares != unit.Some(1024) || len(spec.Unified) != 0 {
			t.Errorf("base = %+v", spec)
		}
	}
	without := workload.Resources{}
	mark.Rebase(&without, &protocol.Applied{Set: map[string]string{"cpu.quota": "5 batch"}, Base: map[string]string{"cpu.shares": "9"}})
	if without.Shares.Set {
		t.Errorf("shares out of nothing: %+v", without)
	}
}

func TestPlanOfKnowsTheHook(t *testing.T) {
	t.Parallel()
	back := mark.PlanOf(&protocol.Applied{Set: map[string]string{"cpu.shares": "512 hook:x", "cpu.quota": "5 hook:", "cpu.period": "7 nobody"}}, plan.Target{})
	if len(back) != 1 || back[0].Knob != plan.CPUShares || back[0].By() != "hook:x" {
		t.Errorf("want the shares of x, and nothing of a hook without a name and of an owner that nobody knows:\n%s", back)
	}
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	base := workload.Resources{Shares: unit.Some(2), Quota: unit.Some(3), CPUs: "0", Unified: map[string]string{"a": "1", "b": "2"}}
	got := mark.Overlay(base, workload.Resources{Quota: unit.Some(-1), Mems: "1", Unified: map[string]string{"b": "3"}})
	want := workload.Resources{Shares: unit.Some(2), Quota: unit.Some(-1), CPUs: "0", Mems: "1", Unified: map[string]string{"a": "1", "b": "3"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if base.Unified["b"] != "2" {
		t.Error("the base's map was changed")
	}
}
