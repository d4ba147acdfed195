// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feed

import (
	"context"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Runtime is what can be asked of a container runtime; adapt/cri's Lister.
type Runtime interface {
	// Sandboxes and Containers list everything, in any state.
	Sandboxes(ctx context.Context) ([]workload.ListedPod, error)
	Containers(ctx context.Context) ([]workload.ListedContainer, error)
	// Sandbox is the record of one sandbox.
	Sandbox(ctx context.Context, id string) (*workload.Pod, error)
	// Record is the record of one container, to be read with the marks that are known of it.
	Record(ctx context.Context, id string) (Record, error)
	// IsGone reports whether an error of the others says that the runtime does not have what was asked for.
	IsGone(err error) bool
}

// Record makes the container of a runtime's record; known are the marks on it, newest first.
type Record = func(known ...*protocol.Applied) *workload.Container

// Lister takes a runtime's lists into an engine.
type Lister struct {
	Engine  *engine.Engine
	Runtime Runtime
	// Dropped is called with the id of a sandbox that has vanished; may be nil.
	Dropped func(sandbox string)
}

// List takes in the runtime's pods and containers: all of them when nobody else tells the engine of any yet (first); later
// those that are not known, while those that have vanished are forgotten. missed: something could not be read, which is
// worth asking for again.
func (l *Lister) List(ctx context.Context, first bool) (missed bool, err error) {
	before, podsBefore, roll := l.Engine.IDs(), l.Engine.PodIDs(), l.Engine.Roll()
	sandboxes, err := l.Runtime.Sandboxes(ctx)
	if err != nil {
		return false, err
	}
	containers, err := l.Runtime.Containers(ctx)
	if err != nil {
		return false, err
	}
	pods, here, missedPods := l.pods(ctx, sandboxes, first)
	known := before
	if first {
		known = nil
	}
	list, there, missed := l.containers(ctx, containers, known)
	l.sum(pods, list)
	if first {
		l.Engine.SynchronizeSince(roll, pods, list) // clients may have been served since: who waited for the list waits no longer
		return missed || missedPods, nil
	}
	for id := range before {
		if !there[id] {
			l.Engine.Forget(id)
		}
	}
	for _, id := range podsBefore {
		if here[id] {
			continue
		}
		if l.Dropped != nil {
			l.Dropped(id)
		}
		l.Engine.ForgetPod(id)
	}
	l.ended(sandboxes, containers)
	l.Engine.Add(pods, list)
	return missed || missedPods, nil
}

// sum gives the pods whose resources the runtime does not tell those of their containers.
func (l *Lister) sum(pods []*workload.Pod, list []engine.Listed) {
	for _, pod := range pods {
		if !pod.BaseUntold {
			continue
		}
		var own []*workload.Container
		for i := range list {
			if list[i].Sandbox == pod.ID {
				own = append(own, list[i].Read(l.Engine.Marked(list[i].ID)...))
			}
		}
		pod.SumBase(own)
	}
}

// ended tells of what has ended and is still listed.
func (l *Lister) ended(sandboxes []workload.ListedPod, containers []workload.ListedContainer) {
	for _, c := range containers {
		if c.Container.State == workload.StateStopped {
			l.Engine.Stop(c.Container.ID)
		}
	}
	for _, s := range sandboxes {
		if _, known := l.Engine.KnownPod(s.Pod.ID); known && !s.Ready {
			l.Engine.StopPod(s.Pod.ID)
		}
	}
}

// pods reads the sandboxes that are ready, without first only those that are not known; here are the ids of all.
func (l *Lister) pods(ctx context.Context, sandboxes []workload.ListedPod, first bool) (pods []*workload.Pod, here map[string]bool, missed bool) {
	here = make(map[string]bool, len(sandboxes))
	for _, s := range sandboxes {
		here[s.Pod.ID] = true
		if _, known := l.Engine.KnownPod(s.Pod.ID); !s.Ready || known && !first {
			continue
		}
		pod, err := l.Runtime.Sandbox(ctx, s.Pod.ID)
		if err != nil {
			missed = l.missed(s.Pod.FullName(), err) || missed
			continue
		}
		pods = append(pods, pod)
	}
	return pods, here, missed
}

// containers reads those that have not ended and are not known; there are the ids of all.
func (l *Lister) containers(ctx context.Context, containers []workload.ListedContainer, known map[string]bool) (list []engine.Listed, there map[string]bool, missed bool) {
	there = make(map[string]bool, len(containers))
	for _, c := range containers {
		there[c.Container.ID] = true
		if c.Container.State == workload.StateStopped || known[c.Container.ID] {
			continue
		}
		one, err := l.One(ctx, c.Sandbox, c.Container.ID)
		if err != nil {
			missed = l.missed(c.Container.Name+" "+c.Container.ID, err) || missed
			continue
		}
		list = append(list, one)
	}
	return list, there, missed
}

// One is one container as the runtime describes it.
func (l *Lister) One(ctx context.Context, sandbox, id string) (engine.Listed, error) {
	read, err := l.Runtime.Record(ctx, id)
	if err != nil {
		return engine.Listed{}, err
	}
	return engine.Listed{Sandbox: sandbox, Arrival: engine.Arrival{ID: id, Read: func(known ...*protocol.Applied) *workload.Container {
		c := read(known...)
		if c.State == workload.StateCreated {
			c.State = workload.StateCreating // it gets its cgroup when it is started
		}
		return c
	}}}, nil
}

// missed reports a pod or container of the list that could not be read, and whether to ask again; one that is being
// removed is no matter.
func (l *Lister) missed(what string, err error) bool {
	if l.Runtime.IsGone(err) {
		return false
	}
	l.Engine.Trouble(what, "list", err)
	return true
}
