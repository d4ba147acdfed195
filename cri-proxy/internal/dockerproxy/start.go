// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"net/http"
	"time"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// stopLimit bounds the call that ends a container whose guarantee does not hold.
const stopLimit = 10 * time.Second

// start lets the container go when its pod's cgroup is in force and the CPUs that it claims are free. The daemon makes the
// cgroup during this call, so what the body could not carry is written right after it.
func (p *Proxy) start(ctx context.Context, c *docker.Call) error {
	if err := p.Servers.Start(ctx, c.Pod, c.Container); err != nil {
		return err
	}
	if p.ended(c.ID) {
		ask, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		if in, err := p.o.Backend.Inspect(ask, c.ID); err == nil {
			p.revive(c, in) // its claims hold before it runs again
		}
	}
	return p.engine.Guarded(metrics.EventStartContainer, subject(c), func(ctx context.Context) error {
		p.engine.BeforeStart(ctx, c.ID)
		return nil
	})
}

// ended reports a container that counts as ended.
func (p *Proxy) ended(id string) bool {
	_, known, ok := p.engine.Known(id)
	return ok && known.State == workload.StateStopped
}

// revive takes a container that has ended in again, as one that is about to start: with Docker, other than with CRI, the same
// one can. What the marks tell of its base stays known.
func (p *Proxy) revive(c *docker.Call, in *adapt.Inspect) {
	p.engine.Revive(sandbox(c.Pod), engine.Arrival{ID: c.ID, Read: func(marks ...*protocol.Applied) *workload.Container {
		w := in.Container(marks...)
		w.State = workload.StateCreating
		if len(marks) > 0 {
			w.Applied = marks[0] // the daemon starts it with what it was answered last, which the label is older than
		}
		return w
	}})
}

// started writes what the body could not carry and proves the rest, before the client hears of the start.
func (p *Proxy) started(ctx context.Context, c *docker.Call, o docker.Outcome) {
	if o.Status == http.StatusNotModified && p.ran(c.ID) {
		return // it ran already, and we know
	}
	var pid int
	var dir string
	if c.Current != nil {
		if !c.Current.State.Running {
			p.engine.Stop(c.ID) // it has ended already, and its cgroup is gone
			return
		}
		if p.ended(c.ID) { // it was seen between its two lives
			p.revive(c, c.Current)
		}
		w := c.Current.Container()
		pid, dir = w.PID, w.Cgroup
	}
	err := p.engine.Proved(metrics.EventPostStartContainer, subject(c), sandbox(c.Pod), c.ID, func(ctx context.Context) error {
		told := arrival(c)
		told.Answered = o.At
		return p.engine.Start(ctx, sandbox(c.Pod), told, pid, dir)
	})
	if err != nil {
		p.fail(ctx, c, err)
		return
	}
	if c.Verb == adapt.VerbRestart {
		p.engine.Updated(ctx, c.ID) // what an update has added since the creation
	}
	p.Servers.Tell(ctx, hook.PostStartContainer, c.Pod, c.Container)
}

// fail ends a container whose pod has asked not to run without the guarantee: it runs already, and is ended even when we
// are ending.
func (p *Proxy) fail(ctx context.Context, c *docker.Call, err error) {
	p.engine.Trouble(subject(c), "required guarantee", err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if err := p.o.Backend.Stop(ctx, c.ID); err != nil {
		p.engine.Trouble(subject(c), "stop", err)
		return
	}
	p.engine.Stop(c.ID)
}

// runsOn reports whether what was stopped or killed may run on. A signal may have left it running; where the daemon's record could not be
// read after one, who looks at the cgroups notices the end, and until then its CPUs are its own. After a stop there is none to notice.
func runsOn(c *docker.Call) bool {
	if c.Current == nil {
		return c.Verb == adapt.VerbKill
	}
	return c.Current.State.Running
}

// stopped releases a container's CPUs and its part of the pod's sums.
func (p *Proxy) stopped(ctx context.Context, c *docker.Call) {
	if runsOn(c) {
		return
	}
	p.engine.Stop(c.ID)
	p.Servers.Tell(ctx, hook.PostStopContainer, c.Pod, c.Container)
}
