// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/doubt"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// askLimit bounds one question to the daemon, listLimit the whole list, which is one question per container.
const (
	askLimit  = 2 * time.Second
	listLimit = 30 * time.Second
)

// hello asks the daemon for its release.
func (p *Proxy) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	v, err := p.o.Backend.Version(ctx)
	if err != nil {
		return err
	}
	r := adapt.Runtime(v)
	p.engine.Views().SetRuntime(r)
	p.o.Metrics.SetBuild(p.o.Version, r.Name, v, "")
	p.o.Log.Info("connected to the runtime", "runtime", r.Name, "version", v, "limits", r.Problems)
	return nil
}

// ping asks for a sign of life. With it come the containers that an update has left in doubt.
func (p *Proxy) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if err := p.o.Backend.Ping(ctx); err != nil {
		return err
	}
	p.Updates.Settle(ctx)
	return nil
}

// list takes in the daemon's pods and containers. One that the daemon cannot tell about is reported, and asked for again.
func (p *Proxy) list(ctx context.Context, first bool) (missed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	podsBefore, roll, before := p.engine.PodIDs(), p.engine.Roll(), map[string]*workload.Container{}
	for id := range p.engine.IDs() {
		if _, c, known := p.engine.Known(id); known {
			before[id] = c
		}
	}
	records, unread, err := p.o.Backend.List(ctx)
	if err != nil {
		return false, err
	}
	for _, id := range slices.Sorted(maps.Keys(unread)) {
		p.engine.Trouble(id, "list", unread[id])
	}
	pods, list, there := sorted(records)
	for _, pod := range pods {
		var own []*workload.Container
		for i := range list {
			if list[i].Sandbox == pod.ID {
				own = append(own, list[i].Read(p.engine.Marked(list[i].ID)...))
			}
		}
		pod.SumBase(own)
	}
	if first {
		p.engine.SynchronizeSince(roll, pods, list) // clients may have been served since: who waited for the list waits no longer
		return len(unread) > 0, nil
	}
	for id, c := range before {
		_, _, known := p.engine.Known(id)
		switch state, found := there[id]; {
		case !known, unread[id] != nil:
		case !found:
			p.engine.Forget(id)
		case state == workload.StateStopped:
			p.engine.Ended(c) // while the daemon was away; the list may be older than what a client has started
		}
	}
	for _, id := range podsBefore {
		if _, found := there[id]; !found && unread[id] == nil {
			p.Servers.Drop(id)
			p.engine.ForgetPod(id)
		}
	}
	p.engine.Add(pods, list)
	p.Updates.Settle(ctx)
	return len(unread) > 0, nil
}

// sorted takes the daemon's records apart: running sandboxes, containers that have not ended, and the state of all.
func sorted(records []*adapt.Inspect) (pods []*workload.Pod, list []engine.Listed, there map[string]workload.State) {
	there = make(map[string]workload.State, len(records))
	for _, in := range records {
		there[in.ID] = in.Container().State
		switch {
		case in.Type() == adapt.TypeSandbox:
			if in.State.Running {
				pods = append(pods, in.Pod())
			}
		case there[in.ID] != workload.StateStopped:
			list = append(list, engine.Listed{Sandbox: in.SandboxID(), Arrival: engine.Arrival{ID: in.ID, Read: read(in)}})
		}
	}
	return pods, list, there
}

// read is a container as the daemon describes it, less what the marks say is ours.
func read(in *adapt.Inspect) func(...*protocol.Applied) *workload.Container {
	return func(known ...*protocol.Applied) *workload.Container {
		c := in.Container(known...)
		if c.State == workload.StateCreated {
			c.State = workload.StateCreating // it gets its cgroup when it is started
		}
		return c
	}
}

// record is the daemon's record of a container, to be read with the marks that are known of it.
func (p *Proxy) record(ctx context.Context, id string) (doubt.Read, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	in, err := p.o.Backend.Inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	return in.Container, nil
}

// Ended asks the daemon whether a container has ended; one that it does not know has.
func (p *Proxy) Ended(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	in, err := p.o.Backend.Inspect(ctx, id)
	if errors.Is(err, docker.ErrNoContainer) {
		return true, nil
	}
	return err == nil && in.Container().State == workload.StateStopped, err
}
