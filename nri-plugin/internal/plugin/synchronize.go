// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Synchronize takes in the runtime's list and answers without updates: the runtime holds its node-wide lock meanwhile,
// and each update in the reply would cost it a runc call. Repairs follow as direct writes.
func (p *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventSynchronize,
		subject: "synchronize",
		work: func(context.Context) (struct{}, error) {
			p.collect(pods, containers)
			return struct{}{}, nil
		},
	})
	return nil, err
}

// collect replaces what is known by the runtime's list.
func (p *Plugin) collect(sandboxes []*api.PodSandbox, containers []*api.Container) {
	byID := make(map[string]*api.PodSandbox, len(sandboxes))
	pods := make([]podEntry, 0, len(sandboxes))
	parsed := make(map[string]podEntry, len(sandboxes))
	for _, sb := range sandboxes {
		e := podEntry{p: nri.Pod(sb)}
		if old, ok := p.reg.pod(sb.GetId()); ok {
			e.plan, e.group, e.gen = old.plan, old.group, old.gen
		}
		p.problems(e.p, "", e.p.Problems)
		byID[sb.GetId()] = sb
		parsed[sb.GetId()] = e
		pods = append(pods, e)
	}
	entries := make([]entry, 0, len(containers))
	unmanaged := 0
	for _, ctr := range containers {
		sb, ok := byID[ctr.GetPodSandboxId()]
		if !ok {
			continue // its sandbox is gone: the runtime is about to remove it
		}
		e := p.adopt(parsed[sb.GetId()], sb, ctr)
		if old, ok := p.reg.container(e.c.ID); ok {
			e.plan, e.rest, e.inSpec, e.mark = old.plan, old.rest, old.inSpec, old.mark
		}
		e.inSpec = e.inSpec || e.c.Applied != nil
		entries = append(entries, e)
	}
	gonePods, gone := p.reg.replace(pods, entries)
	p.publishClaims()
	p.m.SetContainers(len(entries))
	p.m.SetUnmanaged(unmanaged)
	p.stats.lastSync.Store(p.o.Now().UnixNano())
	p.stats.tell()
	p.log.Info("synchronized", "pods", len(pods), "containers", len(entries), "gone", len(gone))
	p.jobs.add(func(ctx context.Context) {
		for _, e := range gone {
			p.recordGone(e.c.Target(&workload.Pod{}))
		}
		for _, e := range gonePods {
			p.removeGroup(e)
			p.recordGone(e.p.Target())
		}
	})
	p.jobs.add(p.countUnmanaged)
	p.repairSoon()
	p.relistLater()
}

// countUnmanaged counts the containers that came without us although the plan would have changed them: each is a
// fail-open (D8).
func (p *Plugin) countUnmanaged(ctx context.Context) {
	v := p.views.Load()
	n := 0
	for _, it := range p.reg.running() {
		if ctx.Err() != nil {
			return
		}
		if it.inSpec {
			continue
		}
		pl := it.plan
		if it.gen != v.Generation {
			pl = p.decide(v, it.pod.p, it.c)
		}
		if nri.Mark(v, pl, it.c, p.o.Version) == nil {
			continue
		}
		n++
		p.m.FailOpen(metrics.FailOpenUnmanaged)
		p.log.Warn("container was created without us, it is repaired as far as a running one can be",
			"container", it.c.Target(it.pod.p).Name, "id", it.c.ID)
	}
	p.m.SetUnmanaged(n)
	p.stats.unmanaged.Store(int64(n))
}

// relistDelays are when the cgroups are searched for containers that the list of Synchronize missed: those whose
// creation was under way have started by then.
var relistDelays = [...]time.Duration{2 * time.Second, 15 * time.Second}
