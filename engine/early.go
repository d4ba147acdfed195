// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// On cgroup v1 no specification carries a burst, and its write is a walk over every group of the machine (tg_set_cfs_bandwidth). In
// StartContainer every pod of the node waits for that behind the runtime's lock. So it is written while the runtime prepares the container,
// as soon as the quota that has to hold it stands, and its start finds it there. Who is not told in time writes it at the start. Then, too, the files
// are opened that the start's proof will read.

// Births tells of cgroups that the runtime is about to make; kernel/birth.
type Births interface {
	// Expect has written called whenever the file name of dir may have been written, until that has seen enough.
	Expect(dir, name string, written func() (enough bool)) error
	// Forget ends that: written is not running then, and will not be called.
	Forget(dir string)
}

// Files of cgroup v1's CPU controller (Documentation/scheduler/sched-bwc.rst, sched-design-CFS.rst): runc and crun write to them when the container has
// its cgroup in each hierarchy.
const (
	quotaFile  = "cpu.cfs_quota_us"
	sharesFile = "cpu.shares"
)

// expectedAt is where the quota of a container whose cgroup is about to be made will stand, "" where nothing is written early.
func (g *Engine) expectedAt(c *workload.Container) string {
	if g.o.Births == nil || c.Cgroup == "" {
		return ""
	}
	return g.o.Live.quotaDir(c.Cgroup)
}

// expect has a container's burst written early, and its proof made ready.
func (g *Engine) expect(e *entry) {
	dir := g.expectedAt(e.c)
	if dir == "" || !g.creating(e.c.ID) {
		return
	}
	file, due := sharesFile, func() bool { return g.readied(e.c.ID) }
	if burst := e.rest.Get(plan.CPUBurst); burst != nil && !burst.Observe && burst.Value.Int() > 0 {
		early := *burst
		quota := plan.Setting{Target: early.Target, Knob: plan.CPUQuota, Value: plan.Int(quotaOf(e.plan, &e.c.Base).V)}
		file, due = quotaFile, func() bool { return g.early(e.c.ID, early, quota) && g.readied(e.c.ID) }
	}
	err := g.o.Births.Expect(dir, file, func() (enough bool) {
		g.shielded("container "+e.c.Name, func() { enough = due() })
		return enough
	})
	if err != nil {
		g.log.Debug("what the start needs is not made ready before it", "container", e.c.Name, "id", e.c.ID, "err", err)
	}
	if !g.creating(e.c.ID) {
		g.o.Births.Forget(dir) // it was quicker
	}
}

func (g *Engine) creating(id string) bool {
	e, ok := g.reg.container(id)
	return ok && e.c.State == workload.StateCreating
}

// unexpect ends what expect began, if it did: whoever decides the container from now on writes last.
func (g *Engine) unexpect(e *entry) {
	if dir := g.expectedAt(e.c); dir != "" {
		g.o.Births.Forget(dir)
	}
}

// early writes a container's burst, if the quota stands. A container that has been decided anew is left to its start.
func (g *Engine) early(id string, burst, quota plan.Setting) (enough bool) {
	g.writers.enter(id) // over CRI an update may come before the engine has heard of the start
	defer g.writers.leave(id)
	e, ok := g.reg.container(id)
	v := g.views.Load()
	if !ok || e.c.State != workload.StateCreating || !e.inSpec || e.rendered != v.Generation {
		return true
	}
	if len(g.o.Kernel.Verify(plan.Plan{quota})) > 0 {
		return false // the runtime has not come to it yet
	}
	// No unit follows: a burst is no property of systemd's, and nobody can have written over it in a cgroup that has just been made.
	results := g.o.Kernel.Apply(g.ctx(), plan.Plan{burst}, v.Generation)
	g.count(results)
	if wrote(results) {
		g.m.Early(burst.Knob)
	}
	return true
}

// readied opens what the proof of a container will read, if all of it is there. A start by a later decision looks up what else that needs.
func (g *Engine) readied(id string) (enough bool) {
	k, ok := g.o.Kernel.(Starter)
	if !ok {
		return true
	}
	e, known := g.reg.container(id)
	if !known || e.c.State != workload.StateCreating || !e.inSpec {
		return true
	}
	pod, ok := g.reg.pod(e.sandbox)
	return !ok || k.Ready(e.c.Target(pod.p), direct(e.plan))
}

// unreadied gives back what a start has not used, or will not.
func (g *Engine) unreadied(t plan.Target) {
	if k, ok := g.o.Kernel.(Starter); ok {
		k.Unready(t)
	}
}
