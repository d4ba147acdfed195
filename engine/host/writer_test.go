// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"log/slog"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// The Applier has the formula that was configured or learned last: a probe that comes in between, while the View has the old one yet, does
// not bring that back.
func TestWriterKeepsItsFormula(t *testing.T) {
	t.Parallel()
	const linear = "39" // of 1024 shares, of which the other formula makes 100
	for name, c := range map[string]struct {
		configured string
		before     func(*testing.T, *Host)
		want       string
	}{
		"assumed":                 {config.WeightAuto, nil, "100"},
		"configured":              {config.WeightLinear, nil, linear},
		"configured, and a probe": {config.WeightLinear, func(_ *testing.T, h *Host) { h.renew(h.probe.last) }, linear},
		"a probe while it is learned": {config.WeightAuto, func(t *testing.T, h *Host) {
			if err := h.writer.setWeight(unit.Linear); err != nil {
				t.Error(err)
			}
			h.renew(h.probe.last)
		}, linear},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.cfg.WeightFormula = c.configured
			h, err := New(t.Context(), Options{
				Config: m.cfg, Writer: "nri", Name: "nri", Program: "test", Edge: blank{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close(t.Context())
			if c.before != nil {
				c.before(t, h)
			}
			const dir = "/kubepods/podone"
			m.tree.Set(t, dir, "cpu.weight", c.want)
			at := plan.Target{Level: plan.LevelContainer, Container: "c", Cgroup: dir}
			for _, bad := range h.writer.Verify(plan.Plan{{Target: at, Knob: plan.CPUShares, Value: plan.Int(1024)}}) {
				t.Errorf("not as many shares as a weight of %s: %s", c.want, bad.String())
			}
		})
	}
}
