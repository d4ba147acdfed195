// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/plan"
)

// TestStrayed: a value has strayed when it stood as wanted, by us or by the runtime, and is another now that nobody of us
// has written. Another wish is no drift.
func TestStrayed(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "6.12")
	strayed := func(what string, want bool, p ...plan.Setting) {
		t.Helper()
		for _, r := range m.apply(t, p...) {
			if r.Strayed != want {
				t.Errorf("%s: %s strayed %v, it was %s", what, &r.Setting, r.Strayed, r.Before)
			}
		}
	}
	high, quota := set(ctr, plan.MemoryHigh, plan.Int(1<<29)), set(ctr, plan.CPUQuota, plan.Int(50000))
	strayed("the first look", false, high)
	strayed("nothing has changed", false, high)
	m.Set(t, ctr, "memory.high", "max")
	strayed("written over", true, high)
	strayed("repaired", false, high)
	high.Value = plan.Int(1 << 28)
	strayed("another wish", false, high)

	m.Set(t, ctr, "cpu.max", "50000 100000")
	strayed("the runtime has written it", false, quota)
	m.Set(t, ctr, "cpu.max", "max 100000")
	strayed("what stood is written over", true, quota)
	// Somebody, the runtime in an update, writes what is wanted next.
	m.Set(t, ctr, "cpu.max", "70000 100000")
	quota.Value = plan.Int(70000)
	strayed("it is what is wanted", false, quota)
	quota.Value = plan.Int(60000)
	strayed("and then no longer", false, quota)

	idle, shares := set(pod, plan.CPUIdle, plan.Int(1)), set(pod, plan.CPUShares, plan.Int(1024))
	strayed("weight", false, shares, idle)
	m.Set(t, pod, "cpu.weight", "0")
	shares.Value = plan.Int(2048)
	idle.Value = plan.Int(0)
	strayed("the kernel's own weight beside cpu.idle", false, idle, shares)
}

// TestSources: a value is whose it equals, as the kernel holds it; systemd is asked once for a unit, and not named where it
// does not answer.
func TestSources(t *testing.T) {
	t.Parallel()
	u := &units{held: map[string]map[plan.Knob]string{ctr: {plan.CPUQuota: "34000 100000", plan.CPUShares: "100", plan.MemoryHigh: "max"}}}
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Units = u })
	stray := func(k plan.Knob, found int64, claims ...int64) apply.Stray {
		s := apply.Stray{Setting: set(ctr, k, plan.Int(1)), Found: plan.Int(found)}
		for _, c := range claims {
			s.Claims = append(s.Claims, drift.Claim{By: drift.Runtime, Value: plan.Int(c)})
		}
		return s
	}
	strays := []apply.Stray{
		stray(plan.CPUQuota, 50000, 50000), stray(plan.CPUQuota, 34000, 50000), stray(plan.CPUQuota, 60000, 50000),
		stray(plan.MemoryHigh, -1, -1), stray(plan.CPUShares, 1024), stray(plan.CPUBurst, 5),
		{Setting: set(pod, plan.MemoryHigh, plan.Int(1)), Found: plan.Int(-1)},
	}
	check := func(want ...string) {
		t.Helper()
		for i, got := range m.Sources(t.Context(), strays) {
			if got.String() != want[i] {
				t.Errorf("%s found %s: %s, want %s", &strays[i].Setting, strays[i].Found, got, want[i])
			}
		}
	}
	check("runtime", "systemd", "someone", "runtime-or-systemd", "systemd", "someone", "someone")
	if u.asked != 2 {
		t.Errorf("asked %d times for two units", u.asked)
	}
	u.held, u.err = nil, errors.New("no bus")
	check("runtime", "someone", "someone", "runtime", "someone", "someone", "someone")
}
