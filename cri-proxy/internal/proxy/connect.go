// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

const (
	// pingEvery is how often the runtime is asked whether it is there; a restart is followed by a new list.
	pingEvery = 2 * time.Second
	// held is how long a connection must have stood for the next wait to start from the shortest again.
	held = 10 * time.Second
	// maxTries bounds how often what could not be read of the list is asked for again.
	maxTries = 5
)

// Connect keeps what is known in step with the runtime until ctx ends: its version and containers at first, again after
// it was away. Calls are relayed whether it has succeeded or not.
func (p *Proxy) Connect(ctx context.Context) {
	wait := p.o.Config.Reconnect.Min.Std()
	for ctx.Err() == nil {
		start := time.Now()
		err := p.session(ctx)
		p.engine.Joined(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > held {
			wait = p.o.Config.Reconnect.Min.Std()
		}
		p.engine.Trouble("runtime", "connection", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(wait*2, p.o.Config.Reconnect.Max.Std())
	}
}

// session lives through one life of the runtime. The error says why it ended.
func (p *Proxy) session(ctx context.Context) error {
	v, err := p.o.List.Version(ctx)
	if err != nil {
		return err
	}
	r := cri.Runtime(v.Name, v.Version)
	p.runtime.Store(&v.Name)
	p.engine.Views().SetRuntime(r)
	p.m.SetBuild(p.o.Version, v.Name, v.Version, "")
	if err := p.synchronize(ctx, !p.serving.Load()); err != nil {
		return err
	}
	p.syncOnce.Do(func() { close(p.synced) })
	p.engine.Joined(true)
	p.log.Info("connected to the runtime", "runtime", v.Name, "version", v.Version, "limits", r.Problems)
	tries := 0
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if _, err := p.o.List.Version(ctx); err != nil {
			return err
		}
		if p.again.Swap(false) && tries < maxTries {
			tries++
			if err := p.synchronize(ctx, false); err != nil {
				return err
			}
		}
	}
}

// missed reports a pod or container of the list that could not be read, and whether to ask again; one that is being
// removed is no matter.
func (p *Proxy) missed(what string, err error) bool {
	if errors.Is(err, cri.ErrNotFound) {
		return false
	}
	p.engine.Trouble(what, "list", err)
	return true
}

// synchronize takes in the runtime's pods and containers: all at first, while nobody is served yet; later those that are
// not known, while those that have vanished are forgotten.
func (p *Proxy) synchronize(ctx context.Context, first bool) error {
	before, podsBefore := p.engine.IDs(), p.engine.PodIDs()
	sandboxes, err := p.o.List.Sandboxes(ctx)
	if err != nil {
		return err
	}
	containers, err := p.o.List.Containers(ctx)
	if err != nil {
		return err
	}
	missed := false
	var pods []*workload.Pod
	here := map[string]bool{}
	for _, s := range sandboxes {
		here[s.Pod.ID] = true
		if !s.Ready {
			continue
		}
		pod, err := p.o.List.Sandbox(ctx, s.Pod.ID)
		if err != nil {
			missed = p.missed(s.Pod.FullName(), err) || missed
			continue
		}
		pods = append(pods, pod)
	}
	var list []engine.Listed
	there := map[string]bool{}
	for _, c := range containers {
		there[c.Container.ID] = true
		if c.Container.State == workload.StateStopped || !first && before[c.Container.ID] {
			continue
		}
		l, err := p.listed(ctx, c.Sandbox, c.Container.ID)
		if err != nil {
			missed = p.missed(c.Container.Name+" "+c.Container.ID, err) || missed
			continue
		}
		list = append(list, l)
	}
	p.again.Store(missed)
	if first {
		p.engine.Synchronize(pods, list)
		return nil
	}
	for id := range before {
		if pod, _, known := p.engine.Known(id); known && !there[id] {
			p.engine.Remove(pod.ID, id)
		}
	}
	for _, id := range podsBefore {
		if !here[id] {
			p.configs.drop(id)
			p.engine.RemovePod(id)
		}
	}
	p.engine.Add(pods, list)
	return nil
}

// listed is one container as the runtime describes it.
func (p *Proxy) listed(ctx context.Context, sandbox, id string) (engine.Listed, error) {
	raw, err := p.o.List.Status(ctx, id)
	if err != nil {
		return engine.Listed{}, err
	}
	if _, _, err := cri.Container(raw); err != nil {
		return engine.Listed{}, err
	}
	return engine.Listed{Sandbox: sandbox, Arrival: engine.Arrival{ID: id, Read: func(known ...*protocol.Applied) *workload.Container {
		c, _, err := cri.Container(raw, known...)
		if err != nil {
			return &workload.Container{ID: id} // it was readable a moment ago
		}
		if c.State == workload.StateCreated {
			c.State = workload.StateCreating // it gets its cgroup when it is started
		}
		return c
	}}}, nil
}

// takeIn takes one container in that started without being known.
func (p *Proxy) takeIn(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	pod, _, err := p.o.List.Container(ctx, id)
	if err != nil {
		p.engine.Trouble(id, "container", err)
		return
	}
	l, err := p.listed(ctx, pod.ID, id)
	if err != nil {
		p.engine.Trouble(id, "container", err)
		return
	}
	p.engine.Add([]*workload.Pod{pod}, []engine.Listed{l})
	if pod, c, known := p.engine.Known(id); known {
		p.started(pod, c, pod.FullName()+"/"+c.Name) // a guarantee that is required must hold here, too
	}
}
