// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/workload"
)

// RunPod takes a pod in and makes the pod's own resctrl group: a container whose class has no group would fail. Its
// cgroup, which the kubelet has made before, is written soon; Start waits for it, as Create does where it needs it. A pod
// that must not start without its guarantees is written and proved at once. An error is a refusal; the pod may be known then, and
// RemovePod forgets it.
func (g *Engine) RunPod(ctx context.Context, sb Sandbox) error {
	e := newPodEntry(sb.Read())
	g.startPod(&e)
	g.problems(e.p, "", e.p.Problems)
	v := g.views.Load()
	if err := g.unavailable(v, e.p, nil); err != nil {
		return err
	}
	g.makeGroup(ctx, v, &e)
	g.reg.putPod(e)
	g.reg.succeed(e.p.ID)
	g.settleSoon(e.p.ID)
	must := demanded(v, e.p)
	if must.Empty() || !g.settled(ctx, e.p.ID, g.halfway()) {
		return nil // what is not in force yet, the start of each container waits for
	}
	return refuse(failing(must, g.o.Kernel.Verify(g.withPod(v, nil, e.p.ID, must))))
}

// Expect prepares for a pod whose sandbox the runtime is making: where its first container's quota must fit into the pod's, which the
// kubelet has written, the files are opened while the runtime is at work, so that CreateContainer is decided in memory.
// RunPod follows, or Unexpected where the pod does not become known.
func (g *Engine) Expect(pod *workload.Pod) { g.o.Live.hold(pod.Cgroup) }

// Unexpected takes Expect back: the runtime has not made the sandbox.
func (g *Engine) Unexpected(pod *workload.Pod) {
	if !g.reg.shared(pod) {
		g.o.Live.drop(pod.Cgroup)
	}
}

// RunsInMemory reports that RunPod needs memory only for a pod: it asks for no group and demands no guarantee.
func (g *Engine) RunsInMemory(pod *workload.Pod) bool {
	return pod.Ask.Resctrl == nil && demanded(g.views.Load(), pod).Empty()
}

// RunPodMustWait reports whether a pod with these annotations has to be taken in before the runtime goes on.
func (g *Engine) RunPodMustWait(annotations map[string]string) bool {
	_, group := annotations[protocol.AnnotationResctrl]
	_, required := annotations[protocol.AnnotationRequired]
	return group || required || !g.views.Load().FailClosed.Empty()
}

// RunPodLater takes a pod in after the reply to the runtime. Jobs wait for a lull, and the pod's first container is often decided before
// them: so it is read a moment behind the reply, and the files are opened in which that container would look the pod's quota up.
func (g *Engine) RunPodLater(sb Sandbox) {
	read := make(chan struct{})
	g.behind(func() {
		defer close(read)
		g.shielded("sandbox "+sb.ID, func() { g.o.Live.hold(g.podOf(sb).p.Cgroup) })
	})
	g.jobs.add(func(context.Context) {
		<-read // so that a removal, whose job is behind this one, finds the pod and its files
		e, known := g.reg.pod(sb.ID)
		if !known {
			return // it has been removed since, or cannot be read
		}
		if err := g.unavailable(g.views.Load(), e.p, nil); err != nil {
			g.problem(sb.ID, "pod", err.Error()) // fail-closed was chosen a moment too late for it
		}
		g.reg.succeed(sb.ID)
		g.settleSoon(sb.ID)
	})
}

// makeGroup makes the pod's resctrl group with its schemata, when it asks for one.
func (g *Engine) makeGroup(ctx context.Context, v *node.View, e *podEntry) {
	own, problems := g.ownGroup(v, e.p)
	g.problems(e.p, "", problems)
	if e.regroup(own); own.kept {
		g.apply(ctx, v, own.lines)
	}
}
