// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"

	"github.com/koord-rt/koord-rt/model/workload"
)

// Remove forgets a container that the runtime has removed, also one whose creation failed, or that is not known: what has seen it before is
// told, or listed, behind this perhaps, and does not bring it back.
func (g *Engine) Remove(id string) {
	if e, ok := g.reg.removeContainer(id); ok {
		g.forget(e)
	}
}

// Forget forgets a container that the runtime's list lacks. A later one may have it.
func (g *Engine) Forget(id string) {
	if e, ok := g.reg.dropContainer(id); ok {
		g.forget(e)
	}
}

func (g *Engine) forget(e entry) {
	if e.c.State != workload.StateStopped {
		g.released(e)
	}
	g.forgotten(e)
}

// forgotten closes the ledger's books on a container.
func (g *Engine) forgotten(e entry) {
	var pod workload.Pod
	if known, ok := g.reg.pod(e.sandbox); ok {
		pod = *known.p
	}
	g.jobs.add(func(context.Context) {
		g.unexpect(&e)
		g.recordGone(e.c.Target(&pod))
		g.stats.dropProof(e.c.ID)
		_, n := g.reg.counts()
		g.m.SetContainers(n)
	})
}

// RemovePod forgets a sandbox and, when it was its pod's last one, removes the pod's resctrl group, whose number others need. One
// that is not known may still wait to be taken in, so it is looked for again after that. Its containers have been removed with it.
func (g *Engine) RemovePod(sandbox string) { g.dropPod(sandbox, true) }

// ForgetPod is RemovePod of one that the runtime's list lacks. A later one may have it, with its containers.
func (g *Engine) ForgetPod(sandbox string) { g.dropPod(sandbox, false) }

func (g *Engine) dropPod(sandbox string, removed bool) {
	pod, left, ok := g.reg.dropPod(sandbox, removed)
	for _, e := range left {
		g.released(e)
	}
	g.jobs.add(func(ctx context.Context) {
		// Also where it was known: who has read it meanwhile may have put it back.
		if now, more, again := g.reg.dropPod(sandbox, removed); !ok {
			pod, left, ok = now, more, again
		}
		if ok {
			g.forgottenPod(ctx, pod, left)
		}
	})
}

// forgottenPod closes the ledger's books on a pod and what was left of its containers.
func (g *Engine) forgottenPod(ctx context.Context, pod podEntry, left []entry) {
	for _, e := range left {
		g.unexpect(&e)
		g.recordGone(e.c.Target(pod.p))
		g.stats.dropProof(e.c.ID)
	}
	g.ended(pod)
	g.settleAncestors(ctx, g.views.Load())
}

// ended gives back what was a pod's own and closes the ledger's books on it, unless the pod lives on with another sandbox.
func (g *Engine) ended(pod podEntry) {
	if g.reg.shared(pod.p) {
		return
	}
	g.removeGroup(pod)
	g.o.Live.drop(pod.p.Cgroup)
	g.recordGone(pod.p.Target())
}

// removeGroup removes the pod's own resctrl group.
func (g *Engine) removeGroup(e podEntry) {
	if e.group == "" || g.o.Groups == nil {
		return
	}
	if err := g.dropGroup(e.group); err != nil {
		g.problem(e.p.FullName(), "resctrl group "+e.group, err.Error())
	}
}
