// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package wire joins kernel/apply, which names what it needs as small interfaces, with the kernel packages that have it:
// processes from kernel/proc, control groups from kernel/resctrl, units from kernel/systemd.
//
// Every process that writes to the kernel builds its Applier with these: koord-nri, koord-runtime-proxy and koordlet by way of
// engine/host, and koordctl. It imports kernel packages, model and the standard library only, and decides nothing.
package wire

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
)

// Tasks is kernel/proc as kernel/apply wants it.
type Tasks struct{ proc.FS }

var _ apply.Tasks = Tasks{}

// SchedPolicy reads the SCHED_* number of a process's main thread.
func (Tasks) SchedPolicy(pid int) (int, error) { return proc.SchedPolicy(pid) }

// Groups moves processes with all their threads: resctrl knows threads only.
type Groups struct {
	resctrl.FS
	Proc proc.FS
}

var _ apply.Groups = Groups{}

// movePasses bounds how often the threads of a process are listed again: a thread that a sibling creates while the list
// is worked off inherits the group of its creator.
const movePasses = 4

// MoveTasks puts processes into a control group.
func (g Groups) MoveTasks(group string, pids []int) error {
	return g.move(pids, func() ([]int, error) { return g.Tasks(group) }, func(tids []int) error {
		return g.FS.MoveTasks(group, tids...)
	})
}

// AddMon puts processes into a monitoring group, which is made when it is missing.
func (g Groups) AddMon(group, mon string, pids []int) error {
	if _, err := g.EnsureMon(group, mon); err != nil {
		return err
	}
	return g.move(pids, func() ([]int, error) { return g.MonTasks(group, mon) }, func(tids []int) error {
		return g.FS.AddMon(group, mon, tids...)
	})
}

func (g Groups) move(pids []int, have func() ([]int, error), put func([]int) error) error {
	var errs []error
	for range movePasses {
		in, err := have()
		if err != nil {
			return err
		}
		missing := g.missing(pids, in)
		if len(missing) == 0 {
			return nil
		}
		errs = append(errs[:0], put(missing))
	}
	return errors.Join(errs...)
}

// missing lists the threads of the processes that are not in yet; a process that has ended has none.
func (g Groups) missing(pids, in []int) []int {
	var out []int
	for _, pid := range pids {
		tids, err := g.Proc.Threads(pid)
		if err != nil {
			continue
		}
		for _, tid := range tids {
			if !slices.Contains(in, tid) {
				out = append(out, tid)
			}
		}
	}
	return out
}

// InMon reports whether a process is in a monitoring group; nobody is in one that is missing, which AddMon makes.
func (g Groups) InMon(group, mon string, pid int) (bool, error) {
	tids, err := g.MonTasks(group, mon)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.Contains(tids, pid), err
}

// Schemata is the group's file.
func (g Groups) Schemata(group string) (string, error) {
	s, err := g.FS.Schemata(group)
	return s.String(), err
}

// SetSchemata writes one line of it.
func (g Groups) SetSchemata(group, line string) error {
	l, err := resctrl.ParseLine(line)
	if err != nil {
		return err
	}
	_, err = g.WriteSchemata(group, l.Resource, l.Body())
	return err
}
