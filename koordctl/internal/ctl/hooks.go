// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"slices"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
)

// tasks is kernel/proc as kernel/apply wants it.
type tasks struct{ proc.FS }

var _ apply.Tasks = tasks{}

// SchedPolicy reads the policy of a process's main thread.
func (tasks) SchedPolicy(pid int) (int, error) { return proc.SchedPolicy(pid) }

// cookies sees core scheduling from outside: which group a cookie stands for only its maker knows, so any cookie counts
// as the group's.
type cookies struct{ *proc.CoreSched }

var _ apply.Cookies = cookies{}

// InGroup reports whether the process has a cookie.
func (c cookies) InGroup(_ string, pid int) (bool, error) {
	cookie, err := c.Cookie(pid)
	return cookie != 0, err
}

// groups moves processes with all their threads: resctrl knows threads only.
type groups struct {
	resctrl.FS
	proc proc.FS
}

var _ apply.Groups = groups{}

// MoveTasks puts processes into a control group.
func (g groups) MoveTasks(group string, pids []int) error {
	return g.FS.MoveTasks(group, g.threads(pids)...)
}

// AddMon puts processes into a monitoring group, which is made when it is missing.
func (g groups) AddMon(group, mon string, pids []int) error {
	_, err := g.EnsureMon(group, mon)
	return errors.Join(err, g.FS.AddMon(group, mon, g.threads(pids)...))
}

// InMon reports whether a process is in a monitoring group.
func (g groups) InMon(group, mon string, pid int) (bool, error) {
	tids, err := g.MonTasks(group, mon)
	return slices.Contains(tids, pid), err
}

// threads lists the threads of the processes that still run.
func (g groups) threads(pids []int) []int {
	var out []int
	for _, pid := range pids {
		if tids, err := g.proc.Threads(pid); err == nil {
			out = append(out, tids...)
		}
	}
	return out
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
