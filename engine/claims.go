// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
	containerpolicy "github.com/koord-rt/koord-rt/policy/container"
)

// reclaim lets the containers claim their CPUs anew, one after the other: of claims that exclude each other, or that together are more
// than the node allows, the first stands and the others are refused. At creation the order is that of the pods. A list of the runtime
// has none: had each claimed alone, every one would stand in the way of every other, and all would be refused. CPUs that become free
// go to a claim that was refused before. Whoever holds its CPUs claims before those who do not, else the name decides.
func (g *Engine) reclaim() {
	g.claiming.Lock()
	list := g.reg.claimants()
	slices.SortFunc(list, func(a, b item) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.pod.p.FullName(), b.pod.p.FullName()), cmp.Compare(a.c.ID, b.c.ID))
	})
	v := *g.views.Load()
	v.Claims = node.Claims{Reserved: v.Claims.Reserved, ByPod: map[string]node.PodClaim{}}
	for i := range list {
		it := &list[i]
		lse, lsr, problems := containerpolicy.Claim(&v, it.pod.p, it.c)
		g.problems(it.pod.p, it.c.Name, problems)
		if !lse.Equal(it.lse) || !lsr.Equal(it.lsr) {
			g.reg.changeContainer(it.c.ID, func(e *entry) { e.lse, e.lsr = lse, lsr })
		}
		own := v.Claims.ByPod[it.pod.p.UID]
		v.Claims.ByPod[it.pod.p.UID] = node.PodClaim{LSE: own.LSE.Union(lse), LSR: own.LSR.Union(lsr)}
		v.Claims.LSE, v.Claims.LSR = v.Claims.LSE.Union(lse), v.Claims.LSR.Union(lsr)
	}
	g.claiming.Unlock()
	g.publishClaims()
}

// claimants are the containers that have not ended and whose pods have CPUs from the scheduler.
func (r *registry) claimants() (out []item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.containers {
		pod, ok := r.pods[e.sandbox]
		if ok && e.c.State != workload.StateStopped && pod.p.Ask.ResourceStatus != nil {
			out = append(out, item{e, pod})
		}
	}
	return out
}

// rank is 0 for a container that holds CPUs of its pod by its plan, or by what its specification says of an earlier life's: it runs on
// them and has no quota. A container whose claim was refused has one, wherever it runs.
func rank(it *item) int {
	cpus, quota := it.c.Base.CPUs, it.c.Base.Quota.Or(-1)
	if s := it.plan.Get(plan.CPUSetCPUs); s != nil {
		cpus = s.Value.String()
	}
	if s := it.plan.Get(plan.CPUQuota); s != nil {
		quota = s.Value.Int()
	}
	has, err := topo.ParseCPUSet(cpus)
	if err != nil || has.Empty() || quota > 0 {
		return 1
	}
	if given, err := topo.ParseCPUSet(it.pod.p.Ask.ResourceStatus.CPUSet); err != nil || !has.SubsetOf(given) {
		return 1
	}
	return 0
}

// claims reports whether a container claims CPUs.
func (e *entry) claims() bool { return !e.lse.Empty() || !e.lsr.Empty() }

// claim takes the container in with what it claims, before its specification says so.
func (cr *Creation) claim() {
	cr.against()
	cr.g.publishClaims()
}

// against holds what the container claims against the claims of the registry, one creation at a time: two that were decided under
// one View know nothing of each other. Nothing of the plan stands in a specification yet.
func (cr *Creation) against() {
	g, e := cr.g, &cr.e
	g.claiming.Lock()
	defer g.claiming.Unlock()
	v := g.booked(cr.v)
	lse, lsr, _ := containerpolicy.Claim(&v, cr.pod, e.c)
	if !lse.Equal(e.lse) || !lsr.Equal(e.lsr) {
		booked := v // which is what it is decided by from now on
		cr.v = &booked
		g.claimed(cr.v, cr.pod, e)
		e.plan, cr.asked = g.decide(cr.v, cr.pod, e.c), false
	}
	held := *e
	held.inSpec = false
	g.reg.claimContainer(held)
}

// enter takes in a container that has come without us, unless it is known. It claims as a creation does: two that come at once know
// nothing of each other.
func (g *Engine) enter(pod *workload.Pod, e entry) (now entry, first bool) {
	g.claiming.Lock()
	defer g.claiming.Unlock()
	v := g.booked(g.views.Load())
	g.claimed(&v, pod, &e)
	return g.reg.newContainer(e)
}

// booked is a View with the claims of the registry, of which some may not be published yet. The caller holds claiming.
func (g *Engine) booked(v *node.View) node.View {
	out := *v
	out.Claims = g.reg.claims()
	out.Claims.Reserved = v.Claims.Reserved
	return out
}

// unclaim takes claim back where the creation has panicked since: who waits for the answer may know nothing to drop.
func (cr *Creation) unclaim() {
	if now, ok := cr.g.reg.container(cr.e.c.ID); ok && now.c == cr.e.c && cr.e.rendered == undecided {
		cr.g.Dropped(cr.e.sandbox, cr.e.c.ID)
	}
}

// claims makes the CPUs of a container that has become known part of the View, and begins to free them.
func (g *Engine) claims(e *entry) {
	if e.claims() {
		g.publishClaims()
		g.moves.start(g, e.c.ID)
	}
}
