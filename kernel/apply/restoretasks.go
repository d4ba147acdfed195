// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
)

func parentDir(cgroup string) string { return path.Dir(strings.TrimRight(cgroup, "/")) }

// planOther decides about knobs of processes and about resctrl groups.
func (a *Applier) planOther(u undo, out *RestoreStep) (undo, bool) {
	if err := a.hook(u.setting.Knob); err != nil {
		out.Reason, out.Err = "cannot be written by this process", err
		return u, false
	}
	switch u.setting.Knob {
	case plan.RDTSchemata:
		return a.planSchemata(u, out)
	case plan.NetShape:
		return a.planLink(u, out)
	}
	pids, err := a.bare().pids(u.setting.Target)
	if err != nil {
		out.Reason, out.Err = "no processes", a.explain(u.setting, err)
		return u, false
	}
	if u.setting.Knob == plan.OOMScoreAdj || u.setting.Knob == plan.SchedPolicy {
		return a.planNumbers(u, pids, out)
	}
	return a.planGroups(u, pids, out)
}

func (a *Applier) planSchemata(u undo, out *RestoreStep) (undo, bool) {
	h := u.history
	file := h.file(a)
	original, ok := h.original(nil, file)
	if !ok || h.ours == nil {
		out.Reason = "no original was recorded"
		return u, false
	}
	content, err := a.o.Groups.Schemata(h.id.Target.Cgroup)
	if err != nil {
		out.Reason, out.Err = "cannot be read", a.explain(u.setting, err)
		return u, false
	}
	line, _ := schemataLine(content, h.id.Key)
	out.From = h.id.Key + ":" + line
	switch {
	case !a.mayBeOurs(&h, plan.Text(line)):
		out.Reason = "no longer our value"
		return u, false
	case sameDomains(h.id.Key, original, line):
		out.Reason = "original already there"
		return u, false
	}
	u.setting.Value = plan.Text(original)
	u.writes = []cgroup.Write{{File: file, Data: original}}
	return finish(u, "original", out)
}

// planNumbers returns each process to its own original; a process that the ledger does not list was forked from one of those, and takes that of
// the record's first.
func (a *Applier) planNumbers(u undo, pids []int, out *RestoreStep) (undo, bool) {
	h := u.history
	last := h.ours
	original, why := "", "original"
	switch {
	case h.runtime != nil && h.runtime.Base != "":
		original = h.runtime.Base
	case h.first != nil && len(h.first.Original) > 0:
		original = h.first.Original[0]
	case h.runtime != nil && h.id.Knob == plan.SchedPolicy:
		// CRI has no field for it, so nobody asked for another than the normal policy.
		original, why = "0", "widest: the runtime's specification keeps ours"
	default:
		out.Action, out.Reason = ActRecreate, "no original was recorded"
		return u, false
	}
	if last == nil {
		last = h.runtime
	}
	ours, err := valueOf(h.id.Knob, last.Want)
	if err == nil {
		u.setting.Value, err = valueOf(h.id.Knob, original)
	}
	if err != nil {
		out.Reason, out.Err = "record cannot be read", err
		return u, false
	}
	for _, pid := range pids {
		if have, err := a.taskValue(nil, u.setting, pid); err != nil || have != ours {
			continue
		}
		to := original
		if h.first != nil {
			if own := pick(h.first.Files, h.first.Original, a.taskFile(h.id.Knob, pid)); own != "" {
				to = own
			}
		}
		u.pids = append(u.pids, pid)
		u.writes = append(u.writes, cgroup.Write{File: a.taskFile(h.id.Knob, pid), Data: to})
	}
	out.From = ours.String()
	if len(u.writes) == 0 {
		out.Reason = "no process has our value any more"
		return u, false
	}
	return finish(u, why, out)
}

// planGroups takes processes out of our groups: cookies are cleared, resctrl tasks go back to the root group. A
// monitoring group restricts nothing; whoever restores removes it afterwards, with or without processes.
func (a *Applier) planGroups(u undo, pids []int, out *RestoreStep) (undo, bool) {
	if u.setting.Knob == plan.RDTMonGroup {
		out.Reason = "a monitoring group restricts nothing; it is removed at the end"
		return u, false
	}
	last := u.history.ours
	if last == nil {
		last = u.history.runtime
	}
	held := u.setting
	held.Value = plan.Text(last.Want)
	for _, pid := range pids {
		if have, err := a.taskValue(nil, held, pid); err == nil && have == held.Value {
			u.pids = append(u.pids, pid)
			u.writes = append(u.writes, cgroup.Write{File: a.taskFile(u.setting.Knob, pid), Data: "root group"})
		}
	}
	out.From = last.Want
	if len(u.pids) == 0 {
		out.Reason = "no process is in our group any more"
		return u, false
	}
	u.setting.Value = plan.Text("")
	return finish(u, "root group", out)
}

// undoOther performs what planOther has decided.
func (a *Applier) undoOther(u undo) error {
	switch u.setting.Knob {
	case plan.RDTSchemata:
		return a.o.Groups.SetSchemata(u.setting.Target.Cgroup, u.writes[0].Data)
	case plan.NetShape:
		return a.o.Links.SetShape(u.setting.Key, u.writes[0].Data)
	case plan.RDTClass:
		return a.o.Groups.MoveTasks("", slices.Clone(u.pids))
	}
	return eachTask(u.pids, func(i, pid int) error {
		if u.setting.Knob == plan.CoreSchedCookie {
			return a.o.Cookies.Clear(pid)
		}
		n, err := strconv.ParseInt(u.writes[i].Data, 10, 64)
		if err != nil {
			return fmt.Errorf("read original %q: %w", u.writes[i].Data, err)
		}
		s := u.setting
		s.Value = plan.Int(n)
		return a.setTask(s, pid)
	})
}
