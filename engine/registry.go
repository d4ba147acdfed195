// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// entry is one container. Entries are values: the registry hands out copies, and what pointers lead to is never written
// again.
type entry struct {
	c *workload.Container
	// sandbox is the pod's sandbox id.
	sandbox string
	// plan was decided at generation gen; rest is the part that the spec does not carry.
	plan, rest plan.Plan
	gen        uint64
	// told is what an update was answered with and what stood before it, until the runtime has said that it has written it: each of it
	// may yet come to stand. record is what of ours the runtime's own record may hold: it writes all of that with every update.
	told, record plan.Plan
	toldAt       time.Time
	// ahead is the container as it was ahead of the last updates, of which asked changed it; unsaid of all the runtime has not
	// said to have written.
	ahead         *workload.Container
	asked, unsaid int
	// rendered is the generation that the spec and rest were made at; undecided where another life made them, or an update has come
	// since. plan may be newer: a repair decides first and writes afterwards.
	rendered uint64
	// inSpec: the runtime took our adjustment. False after a late reply and for containers that came without us.
	inSpec bool
	// unmanaged: it came without us, as far as is known; counted: that has been told.
	unmanaged, counted bool
	// mark is what the spec holds of ours, for reading it back after a reconnect.
	mark *stamp
	// lse and lsr are the CPUs that the container claims.
	lse, lsr topo.CPUSet
}

// podEntry is one sandbox.
type podEntry struct {
	p    *workload.Pod
	plan plan.Plan
	gen  uint64
	// before is what stood there before an earlier life's part of the plan; dropped when the kubelet's values change.
	before plan.Plan
	// group is the pod's own resctrl group, "" when it has none. ungrouped: it is to have one, and there is none; its containers are in
	// their class's meanwhile.
	group     string
	ungrouped bool
	stopped   bool
	// told: the kubelet says itself what it will write to the pod's cgroup.
	told bool
	// lowUntil: a container's smaller quota has taken the pod's burst away, and until then the kubelet is expected to tell of the pod's.
	lowUntil time.Time
	// lists is what the runtime has listed of the base; unsure: nobody has told of the base since.
	lists  size
	unsure bool
	// minAbove and lowAbove are the pod's part in the sums that its ancestors carry.
	minAbove, lowAbove unit.Bytes
}

// registry knows the pods and containers of this node. The mutex is held for map operations and sums only, never during
// IO or a decision.
type registry struct {
	mu         sync.Mutex
	pods       map[string]podEntry // by sandbox id
	containers map[string]entry    // by container id
	members    map[string][]string // container ids by sandbox id
	// generation grows when a pod or container comes, goes or is another value; list are the members as of listed.
	generation, listed uint64
	list               []Member
	gone               removals
}

func newRegistry() *registry {
	return &registry{pods: map[string]podEntry{}, containers: map[string]entry{}, members: map[string][]string{}}
}

// set and unset keep the containers and the members in step. The lock is held.
func (r *registry) set(e entry) {
	old, ok := r.containers[e.c.ID]
	if !ok {
		r.members[e.sandbox] = append(r.members[e.sandbox], e.c.ID)
	}
	if !ok || old.c != e.c || old.sandbox != e.sandbox {
		r.generation++
	}
	r.containers[e.c.ID] = e
}

func (r *registry) unset(id string) (entry, bool) {
	e, ok := r.containers[id]
	if !ok {
		return e, false
	}
	r.generation++
	delete(r.containers, id)
	left := slices.DeleteFunc(r.members[e.sandbox], func(m string) bool { return m == id })
	if len(left) == 0 {
		delete(r.members, e.sandbox)
	} else {
		r.members[e.sandbox] = left
	}
	return e, true
}

func (r *registry) pod(sandbox string) (podEntry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.pods[sandbox]
	return e, ok
}

// newPod stores a pod unless it is known, and says so.
func (r *registry) newPod(e podEntry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.pods[e.p.ID]; ok {
		return false
	}
	r.generation++
	r.pods[e.p.ID] = e
	return true
}

// putPod stores a pod; changePod edits one that is there.
func (r *registry) putPod(e podEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.pods[e.p.ID]; ok && e.plan == nil {
		e.plan, e.gen, e.before, e.minAbove, e.lowAbove = old.plan, old.gen, old.before, old.minAbove, old.lowAbove
	}
	r.generation++
	r.pods[e.p.ID] = e
}

func (r *registry) changePod(sandbox string, f func(*podEntry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.pods[sandbox]; ok {
		was, stopped := e.p, e.stopped
		f(&e)
		if e.p != was || e.stopped != stopped {
			r.generation++
		}
		r.pods[sandbox] = e
	}
}

// dropPod removes a pod and what is left of its containers, which do not come back where they have been removed.
func (r *registry) dropPod(sandbox string, removed bool) (podEntry, []entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.pods[sandbox]
	r.generation++
	delete(r.pods, sandbox)
	var left []entry
	for _, id := range slices.Clone(r.members[sandbox]) {
		if removed {
			r.gone.add(id)
		}
		if c, ok := r.unset(id); ok {
			left = append(left, c)
		}
	}
	return e, left, ok
}

func (r *registry) container(id string) (entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.containers[id]
	return e, ok
}

// membersOf lists the ids of a pod's containers.
func (r *registry) membersOf(sandbox string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.members[sandbox])
}

// podIDs are the sandboxes that are known.
func (r *registry) podIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.pods))
}

// rename stores e, which has got its id, in place of the container that was created under another name. known is false when that is not
// known any more, removed is true when the container is not either: e is what it had then.
func (r *registry) rename(pending string, e entry) (now entry, known, removed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	named, ok := r.unset(pending)
	if !ok {
		return e, false, false
	}
	e.lse, e.lsr = named.lse, named.lsr // reclaim's, at any time
	if r.gone.has(e.c.ID) {
		return e, true, true
	}
	if old, ok := r.containers[e.c.ID]; !ok || old.c.State == workload.StateCreating {
		r.set(e)
	}
	return e, true, false
}

// ids leaves out containers that are being created, which may have none yet.
func (r *registry) ids() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]bool, len(r.containers))
	for id, e := range r.containers {
		if e.c.State != workload.StateCreating {
			out[id] = true
		}
	}
	return out
}

// newContainer stores a container that is not known, and says so; else it returns the one that is. One that has been removed is not stored.
func (r *registry) newContainer(e entry) (entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.containers[e.c.ID]; ok {
		return old, false
	}
	if r.gone.has(e.c.ID) {
		return e, false
	}
	r.set(e)
	return e, true
}

// swapContainer stores e in place of was; false when another event has changed that since, or a repair has decided it, whose doing must
// not get lost.
func (r *registry) swapContainer(was *entry, e entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, ok := r.containers[e.c.ID]
	if !ok || !now.sameAs(was) {
		return false
	}
	e.lse, e.lsr = now.lse, now.lsr                     // reclaim's, at any time
	e.unmanaged, e.counted = now.unmanaged, now.counted // how it came, whatever has become of it since
	r.set(e)
	return true
}

// sameAs reports that nobody has changed or decided the container since other was read.
func (e *entry) sameAs(other *entry) bool { return e.c == other.c && e.gen == other.gen }

// stillAs is sameAs of what the registry holds.
func (r *registry) stillAs(e *entry) bool {
	now, ok := r.container(e.c.ID)
	return ok && now.sameAs(e)
}

// addContainer stores a container that is being created, unless it has already been started, or removed: a decision that was too
// late must not turn it back.
func (r *registry) addContainer(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone.has(e.c.ID) {
		return
	}
	old, ok := r.containers[e.c.ID]
	if ok && old.c.State != workload.StateCreating {
		return
	}
	if ok {
		e.lse, e.lsr = old.lse, old.lsr // reclaim's, at any time
	}
	r.set(e)
}

// claimContainer is addContainer with the container's own claim.
func (r *registry) claimContainer(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.containers[e.c.ID]; !r.gone.has(e.c.ID) && (!ok || old.c.State == workload.StateCreating) {
		r.set(e)
	}
}

func (r *registry) changeContainer(id string, f func(*entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.containers[id]; ok {
		f(&e)
		r.set(e)
	}
}

func (r *registry) dropContainer(id string) (entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unset(id)
}

// removeContainer is dropContainer of one that does not come back.
func (r *registry) removeContainer(id string) (entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone.add(id)
	return r.unset(id)
}

// item is a container with its pod.
type item struct {
	entry
	pod podEntry
}

// running lists the containers that can have a cgroup, with their pods, in no particular order.
func (r *registry) running() []item {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]item, 0, len(r.containers))
	for _, e := range r.containers {
		pod, ok := r.pods[e.sandbox]
		if !ok || e.c.State == workload.StateCreating || e.c.State == workload.StateStopped {
			continue
		}
		out = append(out, item{e, pod})
	}
	return out
}

func (r *registry) podList() []podEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]podEntry, 0, len(r.pods))
	for _, e := range r.pods {
		if !e.stopped {
			out = append(out, e)
		}
	}
	return out
}

func (r *registry) counts() (pods, containers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods), len(r.containers)
}

// known reports whether a container or sandbox id is known.
func (r *registry) known(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, c := r.containers[id]
	_, p := r.pods[id]
	return c || p
}
