// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"

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
	return relay.Verdict{}, func(ctx context.Context, o outcome, _ []byte) {
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
	return relay.Verdict{}, func(ctx context.Context, o outcome, _ []byte) {
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
	return relay.Verdict{}, func(_ context.Context, o outcome, _ []byte) {
		if pod, _, known := p.engine.Known(id); o == done && known {
			p.engine.Remove(pod.ID, id)
		}
	}
}

// removePod forgets a pod.
func (p *Proxy) removePod(msg []byte) (relay.Verdict, answered) {
	id, err := cri.ReadID(msg)
	if err != nil {
		return p.unread(metrics.EventRemovePodSandbox, err)
	}
	return relay.Verdict{}, func(_ context.Context, o outcome, _ []byte) {
		if o == done {
			p.Servers.Drop(id)
			p.engine.RemovePod(id)
		}
	}
}
