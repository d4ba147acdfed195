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
	if err := p.guardPod(pod, true, func(context.Context) error { return p.engine.Refuses(pod) }); err != nil {
		return refuse(err), nil
	}
	p.naming.begin()
	return relay.Verdict{Message: out, Meanwhile: func() { p.engine.Expect(pod) }}, func(_ context.Context, o outcome, res relay.Result) {
		defer p.naming.end()
		id, err := cri.ReadID(res.Reply)
		if o != done || err != nil || id == "" {
			p.engine.Unexpected(pod)
			return
		}
		known := *pod
		known.ID = id
		p.Servers.Keep(id, stated(&r.SandboxConfig))
		sb := engine.Sandbox{ID: id, Read: func() *workload.Pod { return &known }}
		err = p.guardPod(&known, p.engine.RunsInMemory(&known), func(ctx context.Context) error { return p.engine.RunPod(ctx, sb) })
		if err != nil {
			p.engine.Trouble(pod.FullName(), "pod", err)
		}
		if _, taken := p.engine.KnownPod(id); !taken {
			p.engine.Unexpected(&known)
		}
	}
}

// guardPod is work on a pod within the deadline; the kubelet's next call, for the pod's first container, waits for it.
func (p *Proxy) guardPod(pod *workload.Pod, memory bool, work func(context.Context) error) error {
	_, err := engine.Guard(p.engine, engine.Call[struct{}]{
		Event: metrics.EventRunPodSandbox, Subject: pod.FullName(), Memory: memory,
		Work: func(ctx context.Context) (struct{}, error) { return struct{}{}, work(ctx) },
	})
	return err
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
