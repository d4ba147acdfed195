// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// stop releases a container's CPUs and its part of the pod's sums.
func (p *Proxy) stop(msg []byte) (relay.Verdict, answered) {
	id, err := cri.ReadID(msg)
	if err != nil {
		return p.unread(metrics.EventStopContainer, err)
	}
	return relay.Verdict{}, func(ctx context.Context, o outcome, _ relay.Result) {
		if o != done {
			return
		}
		pod, c, known := p.engine.Known(id)
		p.engine.Stop(id)
		if known {
			p.Servers.Tell(ctx, hook.PostStopContainer, pod, c)
		}
	}
}

// stopPod ends a pod.
func (p *Proxy) stopPod(msg []byte) (relay.Verdict, answered) {
	id, err := cri.ReadID(msg)
	if err != nil {
		return p.unread(metrics.EventStopPodSandbox, err)
	}
	return relay.Verdict{}, func(ctx context.Context, o outcome, _ relay.Result) {
		if o != done {
			return
		}
		p.engine.StopPod(id)
		if pod, known := p.engine.KnownPod(id); known {
			p.Servers.TellPod(ctx, hook.PostStopPodSandbox, pod)
		}
	}
}

// remove forgets a container.
func (p *Proxy) remove(msg []byte) (relay.Verdict, answered) {
	id, err := cri.ReadID(msg)
	if err != nil {
		return p.unread(metrics.EventRemoveContainer, err)
	}
	return relay.Verdict{}, func(ctx context.Context, o outcome, _ relay.Result) {
		if o == refused || o == unknown && !p.gone(ctx, func(ctx context.Context) error {
			_, err := p.o.List.ContainerStatus(ctx, id)
			return err
		}) {
			return
		}
		p.engine.Remove(id)
	}
}

// removePod forgets a pod.
func (p *Proxy) removePod(msg []byte) (relay.Verdict, answered) {
	id, err := cri.ReadID(msg)
	if err != nil {
		return p.unread(metrics.EventRemovePodSandbox, err)
	}
	return relay.Verdict{}, func(ctx context.Context, o outcome, _ relay.Result) {
		if o == refused || o == unknown && !p.gone(ctx, func(ctx context.Context) error {
			_, err := p.o.List.Sandbox(ctx, id)
			return err
		}) {
			return
		}
		p.Servers.Drop(id)
		p.engine.RemovePod(id)
	}
}

// gone reports that the runtime does not have what a removal without an answer was about: nobody asks again for a removal
// that has been done. The runtime may still be at it.
func (p *Proxy) gone(ctx context.Context, ask func(ctx context.Context) error) bool {
	for _, wait := range askedAgain {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		if errors.Is(ask(ctx), cri.ErrNotFound) {
			return true
		}
	}
	return false
}
