// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/llc"
)

// groups are the resctrl groups that are ours, by name: class groups that we made, and the groups of pods. The hardware
// has 4 to 16 numbers for them, so those that nobody uses are removed. The ledger knows them too, for the next life.
type groups struct {
	mu   sync.Mutex
	ours map[string]bool // true: unused at the last drift check
}

// groupTarget names a group to the ledger.
func groupTarget(name string) plan.Target { return plan.Target{Level: plan.LevelGroup, Cgroup: name} }

// adopt adds groups of another writer to ours, of which the last check stays known.
func (g *groups) adopt(theirs map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, unused := range theirs {
		if _, known := g.ours[name]; !known {
			g.ours[name] = unused
		}
	}
}

// ensureGroup makes a group unless it exists. A pod's own is ours whoever made it; a class's only when we did: somebody
// may use a group of that name for what is theirs.
func (g *Engine) ensureGroup(name string, own bool) error {
	created, err := g.o.Groups.EnsureGroup(name)
	if err != nil || !created && !own {
		return err
	}
	g.groups.mu.Lock()
	_, known := g.groups.ours[name]
	g.groups.ours[name] = false
	g.groups.mu.Unlock()
	if !known {
		g.append(journal.Record{Time: g.o.Now(), Boot: g.o.Boot, Target: groupTarget(name), Via: journal.ViaMade})
	}
	return nil
}

// repairGroups makes the groups of classes and pods and gives them their schemata. Who made a group removes it, so beside another writer
// all of them are that one's.
func (g *Engine) repairGroups(ctx context.Context, v *node.View) int {
	if g.o.Groups == nil {
		return 0
	}
	if g.o.Beside != nil && g.o.Beside() {
		g.lookForGroups(v)
		return 0
	}
	pl := llc.Groups(v)
	for i := range pl {
		name := pl[i].Target.Cgroup
		if pl[i].Observe || i > 0 && pl[i-1].Target.Cgroup == name {
			continue
		}
		if err := g.ensureGroup(name, false); err != nil {
			g.problem("resctrl", name, err.Error())
		}
	}
	for _, pod := range g.reg.podList() {
		if pod.p.Ask.Resctrl == nil && pod.group == "" && !pod.ungrouped {
			continue
		}
		pl = append(pl, g.podGroup(v, &pod)...)
	}
	if len(pl) == 0 {
		return 0
	}
	return g.count(g.o.Kernel.Apply(ctx, pl, v.Generation))
}

// podGroup makes the group of a pod that was created while we were away, whose group somebody has removed, for which there was no number
// before, or that has been allowed one since; it returns the group's schemata. A pod that must not have one any more lets it go.
func (g *Engine) podGroup(v *node.View, pod *podEntry) plan.Plan {
	own, _ := g.ownGroup(v, pod.p) // its problems were told when the pod was taken in
	g.reg.regroup(pod.p.ID, own)
	if own.missing {
		return nil
	}
	return own.lines
}

// own is the resctrl group that a pod is to have of its own, "" for none.
type own struct {
	name string
	// kept: it is there, and ours to keep. missing: it is not there.
	kept, missing bool
	lines         plan.Plan
}

// ownGroup makes the group that a pod is to have of its own.
func (g *Engine) ownGroup(v *node.View, p *workload.Pod) (own, []protocol.Problem) {
	o, problems := g.lookForGroup(v, p)
	if o.name == "" || len(o.lines) == 0 {
		return o, problems
	}
	err := g.ensureGroup(o.name, true)
	if err != nil {
		g.problem(p.FullName(), "resctrl group "+o.name, err.Error())
	}
	o.kept, o.missing = err == nil, err != nil
	return o, problems
}

// lookForGroup is ownGroup of a group that somebody else makes: another writer, or whoever the schemata are ceded to.
func (g *Engine) lookForGroup(v *node.View, p *workload.Pod) (own, []protocol.Problem) {
	name, pl, problems := llc.PodGroup(v, p)
	if name == "" || g.o.Groups == nil || len(pl) > 0 && pl[0].Observe {
		return own{lines: pl}, problems
	}
	return own{name: name, missing: !g.o.Live.groupExists(name), lines: pl}, problems
}

// lookForGroups notes which pods' own groups are there beside another writer, who makes them.
func (g *Engine) lookForGroups(v *node.View) {
	for _, pod := range g.reg.podList() {
		if pod.p.Ask.Resctrl != nil {
			o, _ := g.lookForGroup(v, pod.p)
			o.kept = pod.group != ""
			g.reg.regroup(pod.p.ID, o)
		}
	}
}

// regroup notes how a pod's own group stands. Containers of the pod that have been decided otherwise, perhaps a moment ago, are decided
// anew.
func (r *registry) regroup(sandbox string, o own) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.pods[sandbox]
	if !ok {
		return
	}
	e.regroup(o)
	r.pods[sandbox] = e
	for _, id := range r.members[sandbox] {
		c := r.containers[id]
		class := c.plan.Get(plan.RDTClass)
		if o.name == "" || c.c.Base.RDT != "" || (class != nil && class.Value == plan.Text(o.name)) != o.missing {
			continue
		}
		c.gen = undecided
		r.set(c)
	}
}

func (e *podEntry) regroup(o own) {
	e.group, e.ungrouped = "", o.missing
	if o.kept {
		e.group = o.name
	}
}

// sweepGroups removes groups of ours that nobody has used at two drift checks in a row: those of pods that went while we
// were away, and those of classes that were switched off. The time between is for a container that was decided under an
// older View and is still being created with the group.
func (g *Engine) sweepGroups(v *node.View) {
	if g.o.Beside != nil && g.o.Beside() {
		return // it has a list of its own
	}
	if g.o.Groups == nil || g.stats.lastSync.Load() == 0 {
		return // until the runtime has told its pods, none is known
	}
	used := g.reg.groupsInUse()
	for _, s := range llc.Groups(v) {
		used[s.Target.Cgroup] = struct{}{}
	}
	for _, name := range g.groups.unused(used) {
		if err := g.dropGroup(name); err != nil {
			g.problem("resctrl", "group "+name, err.Error())
			continue
		}
		g.log.Info("removed a resctrl group that nobody uses any more", "group", name)
	}
}

// groupsInUse are the resctrl groups of pods and of the plans of containers that live or are being created.
func (r *registry) groupsInUse() map[string]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]struct{}{}
	for _, e := range r.containers {
		if s := e.plan.Get(plan.RDTClass); s != nil && !s.Observe && e.c.State != workload.StateStopped {
			out[s.Value.String()] = struct{}{}
		}
	}
	for _, e := range r.pods {
		out[e.group] = struct{}{}
	}
	return out
}

// unused notes which groups are not used and lists those that were not at the last check either.
func (g *groups) unused(used map[string]struct{}) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for name, before := range g.ours {
		_, ok := used[name]
		if !ok && before {
			out = append(out, name)
		}
		g.ours[name] = !ok
	}
	slices.Sort(out)
	return out
}

// dropGroup removes a group and closes its books.
func (g *Engine) dropGroup(name string) error {
	if err := g.o.Groups.RemoveGroup(name); err != nil {
		return err
	}
	g.groups.mu.Lock()
	delete(g.groups.ours, name)
	g.groups.mu.Unlock()
	g.recordGone(groupTarget(name))
	return nil
}
