// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// isSpecOnly reports knobs that exist in a container's specification and nowhere else.
func isSpecOnly(k plan.Knob) bool {
	return k == plan.Env || k == plan.Device || k == plan.CDIDevice || k == plan.Mount
}

// isCgroupKnob reports knobs that are files of a cgroup, on either version.
func isCgroupKnob(k plan.Knob) bool {
	return k != plan.RDTSchemata && !isLinkKnob(k) && !k.OfProcesses() && !isSpecOnly(k)
}

// change compares a setting with the kernel, whatever kind of knob it is.
func (a *session) change(p plan.Plan, s plan.Setting) (cgroup.Change, error) {
	switch {
	case s.Knob == plan.RDTSchemata:
		return a.changeSchemata(s)
	case isLinkKnob(s.Knob):
		return a.changeLink(s)
	case s.Knob.OfProcesses():
		return a.changeTasks(p, s)
	default:
		return a.fs.Prepare(s)
	}
}

// changeTasks compares every process of the target. The writes name the processes that differ.
func (a *session) changeTasks(p plan.Plan, s plan.Setting) (cgroup.Change, error) {
	if err := a.hook(s.Knob); err != nil {
		return cgroup.Change{}, err
	}
	pids, own, err := a.tasksOf(s.Target)
	if err != nil {
		return cgroup.Change{}, err
	}
	c := cgroup.Change{Same: true, Current: s.Value}
	theirs, err := a.theirOwn(p, s, pids, own)
	if err != nil {
		return c, err
	}
	for _, pid := range pids {
		have, err := a.taskValue(p, s, pid)
		if errors.Is(err, unix.ENOENT) && s.Knob == plan.RDTClass && s.Value != plan.Text("") {
			// Of the group's own list: no process is in a group that is missing. Who makes groups may find no number left for one.
			return c, fmt.Errorf("%s of %s: %w: there is no group %s", s.Knob, s.Target, ErrUnsupported, s.Value)
		}
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
			continue // ended since the list was read
		}
		if err != nil {
			return c, err
		}
		if have == s.Value || s.Only.Set && have != plan.Int(s.Only.V) || theirs[pid] {
			continue
		}
		if c.Same {
			c.Same, c.Current = false, have
		}
		c.Writes = append(c.Writes, cgroup.Write{File: a.taskFile(s.Knob, pid), Data: s.Value.String()})
		c.Original = append(c.Original, have.String())
	}
	return c, nil
}

// theirOwn are processes of cgroups below the container's own that have been given another score or policy there, as an engine or an init system
// inside does; they keep it. A policy is that if it is neither the normal one nor the one that we give: who has missed ours has the normal one. A score
// is, if neither the container's own processes have it nor, where all are below, the first process.
func (a *session) theirOwn(p plan.Plan, s plan.Setting, pids []int, own int) (map[int]bool, error) {
	if own == len(pids) || s.Only.Set || s.Knob != plan.OOMScoreAdj && s.Knob != plan.SchedPolicy {
		return nil, nil
	}
	var out map[int]bool
	common := []plan.Value{s.Value}
	if s.Knob == plan.SchedPolicy {
		common = append(common, plan.Int(0), plan.Int(unix.SCHED_IDLE))
	}
	for i, pid := range slices.Backward(pids) { // the container's own first
		have, err := a.taskValue(p, s, pid)
		switch {
		case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT):
		case err != nil:
			return nil, err
		case i >= len(pids)-max(own, 1) && s.Knob == plan.OOMScoreAdj:
			common = append(common, have)
		case i < len(pids)-own && !slices.Contains(common, have):
			if out == nil {
				out = map[int]bool{}
			}
			out[pid] = true
		}
	}
	return out, nil
}

// hook reports a missing hook.
func (a *Applier) hook(k plan.Knob) error {
	missing := false
	switch k {
	case plan.SchedPolicy, plan.OOMScoreAdj:
		missing = a.o.Tasks == nil
	case plan.CoreSchedCookie:
		missing = a.o.Cookies == nil
	case plan.NetShape:
		missing = a.o.Links == nil
	default:
		missing = a.o.Groups == nil
	}
	if missing {
		return fmt.Errorf("%s: %w", k, ErrUnsupported)
	}
	return nil
}

// maxBelow bounds how deep the tree below a container's cgroup is looked through.
const maxBelow = 16

// pids lists the target's processes, a container's with those of the cgroups below its own: an init system or a container engine makes
// such, and on v2 it must leave none in the container's. A target without any is gone for every knob of processes.
func (a *session) pids(t plan.Target) ([]int, error) {
	pids, _, err := a.tasksOf(t)
	return pids, err
}

// tasksOf is pids, and how many of them are in the target's own cgroup. These come last, else the one with the lowest number, which others
// are compared with: who is killed on the way has changed that one last.
func (a *session) tasksOf(t plan.Target) (pids []int, own int, err error) {
	dir, err := a.fs.ProcsDir(t)
	if err != nil {
		return nil, 0, err
	}
	b := a.held.Get()
	defer b.Put()
	if pids, err = addPIDs(nil, b, dir, 0); err != nil {
		return nil, 0, err
	}
	own = len(pids)
	if t.Level == plan.LevelContainer {
		if pids, err = addBelow(pids, b, dir, maxBelow); err != nil {
			return nil, 0, err
		}
	}
	if len(pids) == 0 {
		return nil, 0, fmt.Errorf("%s: %w: no process", t, ErrGone)
	}
	if own < len(pids) {
		if own == 0 {
			slices.Sort(pids)
		}
		slices.Reverse(pids)
	}
	return pids, own, nil
}

// addPIDs adds the processes of a cgroup, and of those below it as deep as said. A threaded cgroup lists none (EOPNOTSUPP): they stand in
// the list of its domain, above it (cgroup-v2.rst, "Threads").
func addPIDs(pids []int, b *root.Buffer, dir string, deep int) ([]int, error) {
	raw, err := b.Read(dir, "/cgroup.procs")
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return pids, err
	}
	if err == nil {
		if pids, err = parsePIDs(pids, string(raw)); err != nil {
			return pids, err
		}
	}
	return addBelow(pids, b, dir, deep)
}

// addBelow adds the processes of the cgroups below one.
func addBelow(pids []int, b *root.Buffer, dir string, deep int) ([]int, error) {
	if deep == 0 {
		return pids, nil
	}
	names, err := b.Below(dir)
	if err != nil {
		return pids, err
	}
	for _, name := range names {
		pids, err = addPIDs(pids, b, dir+"/"+name, deep-1)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) { // removed since it was listed
			return pids, err
		}
	}
	return pids, nil
}

// parsePIDs adds what cgroup.procs lists (cgroup-v2.rst, "Core Interface Files"): one id a line. 0 stands for a process of another PID namespace and is skipped.
func parsePIDs(pids []int, s string) ([]int, error) {
	for line := range strings.FieldsSeq(s) {
		pid, err := strconv.Atoi(line)
		if err != nil || pid < 0 {
			return nil, fmt.Errorf("read cgroup.procs: %.32q is not a process id", line)
		}
		if pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// taskFile is the file that shows the value of one process.
func (a *Applier) taskFile(k plan.Knob, pid int) string {
	dir := a.o.Roots.Proc + "/" + strconv.Itoa(pid)
	switch k {
	case plan.OOMScoreAdj:
		return dir + "/oom_score_adj"
	case plan.RDTClass, plan.RDTMonGroup:
		return dir + "/cpu_resctrl_groups"
	case plan.CoreSchedCookie:
		return dir + "/sched" // holds the cookie where CONFIG_SCHED_DEBUG is on
	default:
		return dir + "/stat" // field 41 is the policy
	}
}

// taskPID is taskFile's way back, 0 for any other path.
func taskPID(file string) int {
	parts := strings.Split(file, "/")
	if len(parts) < 2 {
		return 0
	}
	pid, err := strconv.Atoi(parts[len(parts)-2])
	if err != nil {
		return 0
	}
	return pid
}

// taskValue is the present value of one process; for groups it is the wanted one or "".
func (a *Applier) taskValue(p plan.Plan, s plan.Setting, pid int) (plan.Value, error) {
	var in bool
	var err error
	switch s.Knob {
	case plan.SchedPolicy:
		n, err := a.o.Tasks.SchedPolicy(pid)
		return plan.Int(n), err
	case plan.OOMScoreAdj:
		n, err := a.o.Tasks.OOMScoreAdj(pid)
		return plan.Int(n), err
	case plan.CoreSchedCookie:
		in, err = a.o.Cookies.InGroup(s.Value.String(), pid)
	case plan.RDTClass:
		in, err = a.o.Groups.InGroup(s.Value.String(), pid)
	case plan.RDTMonGroup:
		in, err = a.o.Groups.InMon(classOf(p, s), s.Value.String(), pid)
	}
	switch {
	case in:
		return s.Value, err
	case s.Value == plan.Text(""):
		// Wanted is none, the process is in one: which, only its maker knows.
		return plan.Text(otherGroup), err
	}
	return plan.Text(""), err
}

// otherGroup stands for a group whose name is not known.
const otherGroup = "another"

// writeOther performs the changes that are no cgroup files.
func (a *Applier) writeOther(p plan.Plan, s plan.Setting, c cgroup.Change) error {
	switch s.Knob {
	case plan.RDTSchemata:
		return a.o.Groups.SetSchemata(s.Target.Cgroup, c.Writes[0].Data)
	case plan.NetShape:
		return a.o.Links.SetShape(s.Key, c.Writes[0].Data)
	}
	pids := make([]int, 0, len(c.Writes))
	for _, w := range c.Writes {
		pids = append(pids, taskPID(w.File))
	}
	switch s.Knob {
	case plan.RDTClass:
		return a.o.Groups.MoveTasks(s.Value.String(), pids)
	case plan.RDTMonGroup:
		return a.o.Groups.AddMon(classOf(p, s), s.Value.String(), pids)
	}
	for range lookAgain {
		if err := eachTask(pids, func(_, pid int) error { return a.setTask(s, pid) }); err != nil {
			return err
		}
		if s.Knob != plan.OOMScoreAdj || !s.Only.Set {
			return nil
		}
		// Whoever was forked between the list and the write to its parent has what that had.
		left, err := a.bare().changeTasks(p, s)
		if err != nil || left.Same {
			return nil // the next look tells
		}
		pids = pids[:0]
		for _, w := range left.Writes {
			pids = append(pids, taskPID(w.File))
		}
	}
	return nil
}

// lookAgain bounds how often those that were forked meanwhile are looked for.
const lookAgain = 4

// classOf is the control group that a monitoring group lies in: the class that the same plan gives the target.
func classOf(p plan.Plan, s plan.Setting) string {
	if class := p.Find(s.Target, plan.RDTClass, ""); class != nil {
		return class.Value.String()
	}
	return ""
}

func (a *Applier) setTask(s plan.Setting, pid int) error {
	switch s.Knob {
	case plan.SchedPolicy:
		return a.o.Tasks.SetSchedPolicy(pid, int(s.Value.Int()))
	case plan.OOMScoreAdj:
		return a.o.Tasks.SetOOMScoreAdj(pid, int(s.Value.Int()))
	default:
		if s.Value == plan.Text("") {
			return a.o.Cookies.Clear(pid)
		}
		return a.o.Cookies.Assign(s.Value.String(), pid)
	}
}
