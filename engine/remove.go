// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"

	"github.com/koord-rt/koord-rt/model/workload"
)

// Remove forgets a container, also one whose creation failed.
func (g *Engine) Remove(sandbox, id string) {
	e, ok := g.reg.dropContainer(id)
	if !ok {
		return
	}
	if e.c.State != workload.StateStopped {
		g.released(e)
	}
	g.forgotten(sandbox, e)
}

// forgotten closes the ledger's books on a container.
func (g *Engine) forgotten(sandbox string, e entry) {
	var pod workload.Pod
	if known, ok := g.reg.pod(sandbox); ok {
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
// that is not known may still wait to be taken in, so it is looked for again after that.
func (g *Engine) RemovePod(sandbox string) {
	pod, left, ok := g.reg.dropPod(sandbox)
	for _, e := range left {
		g.released(e)
	}
	g.jobs.add(func(ctx context.Context) {
		// Also where it was known: who has read it meanwhile may have put it back.
		if now, more, again := g.reg.dropPod(sandbox); !ok {
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
