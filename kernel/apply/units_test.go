// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// units records what is to become a property; held is what each unit has.
type units struct {
	calls map[string]int
	last  plan.Plan
	held  map[string]map[plan.Knob]string
	asked int
	err   error
}

func (u *units) Held(_ context.Context, cgroup string) (map[plan.Knob]string, error) {
	u.asked++
	return u.held[cgroup], u.err
}

func (*units) Has(_ string, k plan.Knob) bool { return k != plan.CPUBurst }

func (u *units) Set(_ context.Context, cgroup string, settings []plan.Setting) error {
	u.calls[cgroup] += len(settings)
	u.last = settings
	return u.err
}

func TestSyncUnits(t *testing.T) {
	t.Parallel()
	u := &units{calls: map[string]int{}}
	m := newMachine(t, "6.12", func(o *apply.Options) { o.Units = u })
	p := plan.Plan{set(pod, plan.CPUShares, plan.Int(2)), set(ctr, plan.MemoryHigh, plan.Int(-1)), set(pod, plan.MemoryMin, plan.Int(0)), set(ctr, plan.OOMScoreAdj, plan.Int(1))}
	r := m.SyncUnits(t.Context(), p, 1)
	if u.calls[pod] != 2 || u.calls[ctr] != 1 || r[0].Outcome != apply.Written || r[3].Outcome != apply.Skipped {
		t.Errorf("calls %v, results %+v", u.calls, r)
	}
	same(t, m.ledger.lines(0), "systemd cpu.shares →", "systemd memory.min →", "systemd memory.high →")
	burst := plan.Plan{set(pod, plan.CPUBurst, plan.Int(0))}
	if r := m.SyncUnits(t.Context(), burst, 1); r[0].Outcome != apply.Skipped || u.calls[pod] != 2 || len(m.ledger.lines(3)) != 0 {
		t.Errorf("what has no property: %+v, calls %v, ledger %v", r, u.calls, m.ledger.lines(3))
	}
	u.err = errors.New("no bus")
	if r := m.SyncUnits(t.Context(), p, 1); r[1].Outcome != apply.Failed || !errors.Is(r[1].Err, u.err) {
		t.Errorf("results %+v", r[1])
	}
}

// A unit is told a quota by the second: of what period it is comes with it, unless that is everybody's.
func TestUnitsHearOfThePeriod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stands string
		told   []plan.Setting
		want   []plan.Setting
	}{
		"the kernel's":  {"20000 10000", []plan.Setting{set(pod, plan.CPUQuota, plan.Int(24000))}, []plan.Setting{set(pod, plan.CPUQuota, plan.Int(24000)), set(pod, plan.CPUPeriod, plan.Int(10000))}},
		"the plan's":    {"max 100000", []plan.Setting{set(pod, plan.CPUQuota, plan.Int(24000)), set(pod, plan.CPUPeriod, plan.Int(10000))}, []plan.Setting{set(pod, plan.CPUQuota, plan.Int(24000)), set(pod, plan.CPUPeriod, plan.Int(10000))}},
		"everybody's":   {"20000 100000", []plan.Setting{set(pod, plan.CPUQuota, plan.Int(24000))}, []plan.Setting{set(pod, plan.CPUQuota, plan.Int(24000))}},
		"without limit": {"20000 10000", []plan.Setting{set(pod, plan.CPUQuota, plan.Int(-1))}, []plan.Setting{set(pod, plan.CPUQuota, plan.Int(-1))}},
		"no quota":      {"20000 10000", []plan.Setting{set(pod, plan.CPUShares, plan.Int(2))}, []plan.Setting{set(pod, plan.CPUShares, plan.Int(2))}},
	} {
		u := &units{calls: map[string]int{}}
		m := newMachine(t, "6.12", func(o *apply.Options) { o.Units = u })
		m.Set(t, pod, "cpu.max", c.stands)
		results := m.SyncUnits(t.Context(), c.told, 1)
		if !slices.Equal(c.want, u.last) || len(results) != len(c.told) {
			t.Errorf("%s: told %v, want %v; %d results", name, u.last, c.want, len(results))
		}
	}
}
