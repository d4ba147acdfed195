// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package wire

import (
	"context"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/systemd"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Units sets properties of the systemd unit of a cgroup.
type Units struct {
	Bus *systemd.Units
	// Container and Pod are the weight formulas of the levels.
	Container, Pod unit.WeightFormula
	// V1 says that the controllers are on cgroup v1, as Bus was told.
	V1 bool
}

var _ apply.Units = Units{}

// Has implements apply.Units.
func (u Units) Has(cgroup string, k plan.Knob) bool {
	_, err := systemd.Unit(cgroup)
	return err == nil && systemd.Mapped(k, u.V1)
}

// Held implements apply.Units.
func (u Units) Held(ctx context.Context, cgroup string) (map[plan.Knob]string, error) {
	name, err := systemd.Unit(cgroup)
	if err != nil {
		return nil, err
	}
	return u.Bus.Held(ctx, name)
}

// Set implements apply.Units.
func (u Units) Set(ctx context.Context, cgroup string, settings []plan.Setting) error {
	name, err := systemd.Unit(cgroup)
	if err != nil {
		return err
	}
	weight := u.Pod
	if len(settings) > 0 && settings[0].Target.Level == plan.LevelContainer {
		weight = u.Container
	}
	return u.Bus.SetProperties(ctx, name, settings, weight)
}
