// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestTexts: what a unit without properties of its own makes of the files, and what one with ours does.
func TestTexts(t *testing.T) {
	t.Parallel()
	settings := []plan.Setting{
		set(plan.CPUShares, plan.Int(1024)), set(plan.CPUQuota, plan.Int(33333)), set(plan.CPUSetCPUs, plan.Text("0-1,9")),
		set(plan.CPUSetMems, plan.Text("1")), set(plan.MemoryMin, plan.Int(4096)), set(plan.MemoryHigh, plan.Int(-1)),
	}
	ours, err := Properties(settings, unit.Quadratic, false)
	if err != nil {
		t.Fatal(err)
	}
	props := map[string]any{"CPUQuotaPeriodUSec": infinity, "MemoryLow": "no number"}
	for _, p := range ours {
		props[p.Name] = p.Value
	}
	for name, c := range map[string]struct {
		v1    bool
		props map[string]any
		want  map[plan.Knob]string
	}{
		"none is known": {false, nil, map[plan.Knob]string{}},
		"defaults": {false, map[string]any{
			"CPUWeight": infinity, "CPUQuotaPerSecUSec": infinity, "CPUQuotaPeriodUSec": infinity, "AllowedCPUs": []byte{}, "MemoryLow": uint64(0), "MemoryMax": infinity,
		}, map[plan.Knob]string{
			plan.CPUShares: "100", plan.CPUIdle: "0", plan.CPUQuota: "max 100000", plan.CPUPeriod: "max 100000", plan.CPUSetCPUs: "", plan.MemoryLow: "0", plan.MemoryLimit: "max",
		}},
		"ours, a quota in steps of 1 % of a CPU": {false, props, map[plan.Knob]string{
			plan.CPUShares: "100", plan.CPUIdle: "0", plan.CPUQuota: "34000 100000", plan.CPUPeriod: "34000 100000", plan.CPUSetCPUs: "0-1,9", plan.CPUSetMems: "1",
			plan.MemoryMin: "4096", plan.MemoryHigh: "max",
		}},
		"idle": {false, map[string]any{"CPUWeight": uint64(0)}, map[plan.Knob]string{plan.CPUIdle: "1"}},
		"less than a millisecond": {false, map[string]any{"CPUQuotaPerSecUSec": uint64(5000)}, map[plan.Knob]string{
			plan.CPUQuota: "1000 200000", plan.CPUPeriod: "1000 200000",
		}},
		"v1, defaults": {true, map[string]any{
			"CPUWeight": infinity, "CPUShares": infinity, "CPUQuotaPerSecUSec": infinity, "CPUQuotaPeriodUSec": infinity, "MemoryLimit": infinity, "MemoryMax": infinity,
		}, map[plan.Knob]string{plan.CPUShares: "1024", plan.CPUQuota: "-1", plan.CPUPeriod: "100000", plan.MemoryLimit: "-1"}},
		"v1": {true, map[string]any{
			"CPUShares": uint64(2048), "CPUQuotaPerSecUSec": uint64(340000), "MemoryLimit": uint64(1 << 30), "MemoryMin": uint64(4096), "AllowedCPUs": []byte{1},
		}, map[plan.Knob]string{plan.CPUShares: "2048", plan.CPUQuota: "34000", plan.CPUPeriod: "100000", plan.MemoryLimit: "1073741824"}},
	} {
		if got := texts(c.props, c.v1); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestUnitQuota: what systemd makes of a quota is what model/unit says, in every period that is long enough for a step.
func TestUnitQuota(t *testing.T) {
	t.Parallel()
	for _, period := range []unit.Micros{100000, 10000, 5000, 1234, 250000, 1000000} {
		for _, q := range []unit.Micros{unit.Unlimited, 1000, 1001, 1876, 2000, 12500, 33300, 33333, 99999, 100000, 123400, 320000} {
			props, err := Properties([]plan.Setting{set(plan.CPUQuota, plan.Int(q)), set(plan.CPUPeriod, plan.Int(period))}, unit.Linear, false)
			if err != nil {
				t.Fatal(err)
			}
			told := map[string]any{}
			for _, p := range props {
				told[p.Name] = p.Value
			}
			want := "max 100000"
			if q > 0 {
				want = fmt.Sprint(unit.UnitQuota(q, period), " ", period)
			}
			if got := texts(told, false)[plan.CPUQuota]; got != want {
				t.Errorf("%d of %d is %q, want %q", q, period, got, want)
			}
			if twice := unit.UnitQuota(unit.UnitQuota(q, period), period); twice != unit.UnitQuota(q, period) {
				t.Errorf("%d of %d is made %d the second time", q, period, twice)
			}
		}
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	old, next := &fakeBus{}, &fakeBus{}
	u := newUnits(false, dialer(old, next))
	for range 2 { // the second finds the bus gone and opens it anew
		held, err := u.Held(t.Context(), "cri-containerd-a.scope")
		if err != nil || held[plan.MemoryMin] != "4096" {
			t.Errorf("held %v, %v", held, err)
		}
		old.broken = true
	}
	if len(old.calls) != 1 || len(next.calls) != 1 || next.calls[0] != "cri-containerd-a.scope Scope" {
		t.Errorf("calls %q and %q", old.calls, next.calls)
	}
	if _, err := newUnits(false, dialer()).Held(t.Context(), "a.slice"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without a bus: %v", err)
	}
}
