// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"slices"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/kernel/systemd"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// tasks is kernel/proc as kernel/apply wants it.
type tasks struct{ proc.FS }

var _ apply.Tasks = tasks{}

// SchedPolicy reads the policy of a process's main thread.
func (tasks) SchedPolicy(pid int) (int, error) { return proc.SchedPolicy(pid) }

// cookies adopts a process whose cookie an earlier life of this program has set, before it says that the process is in
// no group.
type cookies struct{ *proc.CoreSched }

var _ apply.Cookies = cookies{}

// InGroup reports whether the process is in the group.
func (c cookies) InGroup(group string, pid int) (bool, error) {
	ok, err := c.CoreSched.InGroup(group, pid)
	if ok || err != nil {
		return ok, err
	}
	return c.Adopt(group, pid)
}

// groups moves processes with all their threads: resctrl knows threads only.
type groups struct {
	resctrl.FS
	proc proc.FS
}

var _ apply.Groups = groups{}

// movePasses bounds how often the threads of a process are listed again: a thread that a sibling creates while the list
// is worked off inherits the group of its creator.
const movePasses = 4

// MoveTasks puts processes into a control group.
func (g groups) MoveTasks(group string, pids []int) error {
	return g.move(pids, func() ([]int, error) { return g.Tasks(group) }, func(tids []int) error {
		return g.FS.MoveTasks(group, tids...)
	})
}

// AddMon puts processes into a monitoring group, which is made when it is missing.
func (g groups) AddMon(group, mon string, pids []int) error {
	if _, err := g.EnsureMon(group, mon); err != nil {
		return err
	}
	return g.move(pids, func() ([]int, error) { return g.MonTasks(group, mon) }, func(tids []int) error {
		return g.FS.AddMon(group, mon, tids...)
	})
}

func (g groups) move(pids []int, have func() ([]int, error), put func([]int) error) error {
	var errs []error
	for range movePasses {
		in, err := have()
		if err != nil {
			return err
		}
		var missing []int
		for _, pid := range pids {
			tids, err := g.proc.Threads(pid)
			if err != nil {
				continue // the process has ended
			}
			for _, tid := range tids {
				if !slices.Contains(in, tid) {
					missing = append(missing, tid)
				}
			}
		}
		if len(missing) == 0 {
			return nil
		}
		errs = append(errs[:0], put(missing))
	}
	return errors.Join(errs...)
}

// InMon reports whether a process is in a monitoring group.
func (g groups) InMon(group, mon string, pid int) (bool, error) {
	tids, err := g.MonTasks(group, mon)
	return slices.Contains(tids, pid), err
}

// Schemata is the group's file.
func (g groups) Schemata(group string) (string, error) {
	s, err := g.FS.Schemata(group)
	return s.String(), err
}

// SetSchemata writes one line of it.
func (g groups) SetSchemata(group, line string) error {
	l, err := resctrl.ParseLine(line)
	if err != nil {
		return err
	}
	_, err = g.WriteSchemata(group, l.Resource, l.Body())
	return err
}

// units names the systemd unit of a cgroup.
type units struct {
	bus *systemd.Units
	// container and pod are the weight formulas of the levels.
	container, pod unit.WeightFormula
}

var _ apply.Units = units{}

// Set makes the settings of one cgroup properties of its unit.
func (u units) Set(ctx context.Context, cgroup string, settings []plan.Setting) error {
	name, err := systemd.Unit(cgroup)
	if err != nil {
		return err
	}
	weight := u.pod
	if len(settings) > 0 && settings[0].Target.Level == plan.LevelContainer {
		weight = u.container
	}
	return u.bus.SetProperties(ctx, name, settings, weight)
}
