// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// runPod asks the hook servers and refuses a pod whose guarantees this node cannot give. The pod is taken in when the
// runtime has given it an id; its cgroup is written before its first container starts.
func (p *Proxy) runPod(ctx context.Context, msg []byte) (relay.Verdict, answered) {
	r, err := cri.ReadRunPodSandbox(msg)
	if err != nil {
		return p.unread(metrics.EventRunPodSandbox, err)
	}
	pod := r.Pod("", r.Handler)
	answers, err := p.Servers.Pod(ctx, hook.PreRunPodSandbox, pod, stated(&r.SandboxConfig))
	if err != nil {
		return refuse(err), nil
	}
	out := msg
	if patch := sandboxPatch(answers); patch != nil {
		if out, err = r.Patch(patch); err == nil {
			r, err = cri.ReadRunPodSandbox(out)
		}
		if err != nil {
			return p.unread(metrics.EventRunPodSandbox, err)
		}
		pod = r.Pod("", r.Handler)
	}
	if err := p.engine.Guarded(metrics.EventRunPodSandbox, pod.FullName(), func(context.Context) error { return p.engine.Refuses(pod) }); err != nil {
		return refuse(err), nil
	}
	p.naming.begin()
	return relay.Verdict{Message: out}, func(_ context.Context, o outcome, res relay.Result) {
		defer p.naming.end()
		id, err := cri.ReadID(res.Reply)
		if o != done || err != nil || id == "" {
			return
		}
		known := *pod
		known.ID = id
		p.Servers.Keep(id, stated(&r.SandboxConfig))
		sb := engine.Sandbox{ID: id, Read: func() *workload.Pod { return &known }}
		err = p.engine.Guarded(metrics.EventRunPodSandbox, pod.FullName(), func(ctx context.Context) error { return p.engine.RunPod(ctx, sb) })
		if err != nil {
			p.engine.Trouble(pod.FullName(), "pod", err)
		}
	}
}

// updatePod comes before the kubelet writes the pod's cgroup for a resize.
func (p *Proxy) updatePod(msg []byte) (relay.Verdict, answered) {
	r, err := cri.ReadUpdatePod(msg)
	if err != nil {
		return p.unread(metrics.EventUpdatePodSandbox, err)
	}
	pod, ok := p.engine.KnownPod(r.ID)
	if !ok {
		return relay.Verdict{}, nil
	}
	_ = p.engine.Guarded(metrics.EventUpdatePodSandbox, pod.FullName(), func(ctx context.Context) error {
		p.engine.UpdatePod(ctx, engine.Sandbox{ID: r.ID, Read: func() *workload.Pod { return pod }}, r.Base())
		return nil
	})
	return relay.Verdict{}, func(context.Context, outcome, relay.Result) { p.engine.UpdatedPod(r.ID) }
}
