// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"time"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/api/protocol"
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

func (p *Proxy) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	_, err := p.o.Backend.Version(ctx)
	return err
}

// list takes in the daemon's pods and containers.
func (p *Proxy) list(ctx context.Context, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	before, podsBefore := p.engine.IDs(), p.engine.PodIDs()
	records, err := p.o.Backend.List(ctx)
	if err != nil {
		return err
	}
	pods, list, there := sorted(records)
	for _, pod := range pods {
		var own []*workload.Container
		for i := range list {
			if list[i].Sandbox == pod.ID {
				own = append(own, list[i].Read(p.engine.Marked(list[i].ID)...))
			}
		}
		sum(pod, own)
	}
	if first {
		p.engine.Synchronize(pods, list)
		return nil
	}
	for id := range before {
		pod, _, known := p.engine.Known(id)
		switch state, found := there[id]; {
		case !known:
		case !found:
			p.engine.Remove(pod.ID, id)
		case state == workload.StateStopped:
			p.engine.Stop(id) // it has ended while the daemon was away
		}
	}
	for _, id := range podsBefore {
		if _, found := there[id]; !found {
			p.stated.drop(id)
			p.engine.RemovePod(id)
		}
	}
	p.engine.Add(pods, list)
	return nil
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
