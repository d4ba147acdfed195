// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/model/workload"
)

// askedAgain are the waits between questions about a call whose client has gone: the daemon goes on with it by itself.
var askedAgain = [...]time.Duration{0, time.Second, 5 * time.Second}

// lost asks the daemon what became of a call without an answer, other than a creation or an update. One that has ended over
// the call is asked once: its next life is followed by a new list, and its client waits for us.
func (p *Proxy) lost(ctx context.Context, c *docker.Call, why error) {
	waits := askedAgain[:]
	if !errors.Is(why, context.Canceled) {
		waits = waits[:1]
	}
	for _, wait := range waits {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if p.became(ctx, c) {
			return
		}
	}
}

// became does what follows a call that the daemon turns out to have done; false while it has not, or does not answer.
func (p *Proxy) became(ctx context.Context, c *docker.Call) bool {
	call, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	in, err := p.o.Backend.Inspect(call, c.ID)
	if errors.Is(err, docker.ErrNoContainer) {
		p.removed(c)
		return true
	}
	if err != nil || c.Verb == adapt.VerbRemove {
		return false
	}
	starts := c.Verb == adapt.VerbStart || c.Verb == adapt.VerbRestart
	if starts != in.State.Running {
		return false
	}
	if c.Verb == adapt.VerbStart && !c.Sandbox() && p.ran(c.ID) {
		return true // its client has tried again, and that was followed
	}
	told := *c
	if told.Current = in; c.Sandbox() {
		told.Pod = in.Pod()
		p.afterPod(ctx, &told, docker.Outcome{Status: http.StatusNoContent})
	} else {
		told.Container = in.Container()
		p.afterContainer(ctx, &told, docker.Outcome{Status: http.StatusNoContent})
	}
	return true
}

// removed forgets what the daemon does not have any more.
func (p *Proxy) removed(c *docker.Call) {
	if c.Sandbox() {
		p.Servers.Drop(c.ID)
		p.engine.RemovePod(c.ID)
		return
	}
	p.engine.Remove(c.ID)
}

// ran reports a container whose start was seen, and no end.
func (p *Proxy) ran(id string) bool {
	_, c, known := p.engine.Known(id)
	return known && c.State != workload.StateCreating && c.State != workload.StateStopped
}
