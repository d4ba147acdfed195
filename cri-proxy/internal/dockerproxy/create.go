// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// prepared is what a creation leaves for its outcome: the name of a container without id.
type prepared struct{ pending string }

// create decides a container and puts the plan into the body, with our mark. What it cannot carry is written right after
// the start.
func (p *Proxy) create(ctx context.Context, c *docker.Call) ([]byte, error) {
	answers, err := p.askCreate(ctx, c)
	if err != nil {
		return nil, err
	}
	w := *c.Container
	w.ID = p.pending(c.Pod.ID)
	if c.Pod.Cgroup != "" {
		w.Cgroup = c.Pod.Cgroup + "/new" // only its parent is looked at before it has a name
	}
	for i := range answers {
		w.Foreign = append(w.Foreign, answers[i].Plan...)
	}
	var creation *engine.Creation
	body, err := engine.Guard(p.engine, engine.Call[[]byte]{
		Event: metrics.EventCreateContainer, Subject: subject(c),
		Before: func() bool {
			creation = p.engine.Decide(sandbox(c.Pod), &w)
			return creation.PreparesInMemory()
		},
		Work: func(ctx context.Context) ([]byte, error) { return p.prepare(ctx, creation, c, &w, answers) },
		// The container is taken in by its start, as one that was made without us.
		Late: func() { p.engine.Dropped(c.Pod.ID, w.ID) },
	})
	if body != nil {
		c.State = prepared{w.ID}
	}
	return body, err
}

// prepare is the body as it goes on; it is never nil without an error.
func (p *Proxy) prepare(ctx context.Context, creation *engine.Creation, c *docker.Call, w *workload.Container, answers []hooks.Answer) ([]byte, error) {
	var body []byte
	var failed error
	err := creation.Prepare(ctx, func(v *node.View, spec plan.Plan) (rest plan.Plan) {
		from := c.Create
		if change, ok := containerChange(answers); ok {
			if body, failed = from.Edit(change); failed == nil {
				from, failed = adapt.ParseCreate(body)
			}
		}
		if failed == nil {
			body, rest, failed = from.Apply(v, spec, w, mode.By(v, p.o.Version))
		}
		if failed != nil {
			return spec // none of it stands in the body
		}
		return rest
	})
	if err == nil && failed != nil {
		p.engine.Dropped(c.Pod.ID, w.ID)
		return nil, failed
	}
	return body, err
}

// created gives the container its id, or forgets it.
func (p *Proxy) created(c *docker.Call, o docker.Outcome) {
	s, ok := c.State.(prepared)
	switch {
	case !ok: // without a decision
	case !o.OK() || c.ID == "":
		p.engine.Dropped(c.Pod.ID, s.pending)
	default:
		p.engine.Named(s.pending, c.ID, adapt.Cgroup(c.Pod.Cgroup, c.ID))
	}
}
