// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/policy/llc"
)

// RunPodSandbox takes the pod in and makes the pod's own resctrl group: a container whose class has no group would fail.
// The pod's cgroup, which the kubelet has made before, is written right after the reply; StartContainer waits for it, as
// CreateContainer does where it needs it. A pod that must not start without its guarantees is written before the reply.
func (p *Plugin) RunPodSandbox(_ context.Context, sb *api.PodSandbox) error {
	_, writes := sb.GetAnnotations()[protocol.AnnotationResctrl]
	_, required := sb.GetAnnotations()[protocol.AnnotationRequired]
	_, err := guard(p, call[struct{}]{
		event:   metrics.EventRunPodSandbox,
		memory:  !writes && !required && p.views.Load().FailClosed.Empty(),
		subject: subject(sb, nil),
		work: func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.runPod(ctx, sb)
		},
	})
	return err
}

func (p *Plugin) runPod(ctx context.Context, sb *api.PodSandbox) error {
	e := podEntry{p: nri.Pod(sb)}
	p.problems(e.p, "", e.p.Problems)
	v := p.views.Load()
	if err := unavailable(p.views.States(), e.p); err != nil {
		return err
	}
	p.makeGroup(ctx, v, &e)
	p.reg.putPod(e)
	p.settleSoon(e.p.ID)
	if !e.p.Ask.Required.Empty() || !v.FailClosed.Empty() {
		p.settled(ctx, e.p.ID)
	}
	return nil
}

// makeGroup makes the pod's resctrl group with its schemata, when it asks for one.
func (p *Plugin) makeGroup(ctx context.Context, v *node.View, e *podEntry) {
	name, pl, problems := llc.PodGroup(v, e.p)
	p.problems(e.p, "", problems)
	if name == "" || p.o.Groups == nil || len(pl) == 0 || pl[0].Observe {
		return
	}
	if err := p.ensureGroup(name, true); err != nil {
		p.problem(e.p.FullName(), "resctrl group "+name, err.Error())
		return
	}
	e.group = name
	p.apply(ctx, v, pl)
}
