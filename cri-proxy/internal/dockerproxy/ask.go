// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"maps"
	"slices"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/ask"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/model/plan"
)

// statedOf takes a sandbox's labels apart.
func statedOf(labels map[string]string, cgroupParent string) ask.Stated {
	own, annotations := adapt.Split(labels)
	return ask.Stated{Labels: own, Annotations: annotations, CgroupParent: cgroupParent}
}

// readStated asks the daemon about a pod.
func (p *Proxy) readStated(ctx context.Context, sandbox string) (ask.Stated, error) {
	in, err := p.o.Backend.Inspect(ctx, sandbox)
	if err != nil {
		return ask.Stated{}, err
	}
	return statedOf(in.Config.Labels, in.CgroupParent()), nil
}

// askCreate asks the hook servers about a container that is about to be created.
func (p *Proxy) askCreate(ctx context.Context, c *docker.Call) ([]hooks.Answer, error) {
	if !p.o.Hooks.Wants(hook.PreCreateContainer) {
		return nil, nil
	}
	t := c.Container.Target(c.Pod)
	stated, err := p.Servers.Of(ctx, c.Pod.ID)
	if err != nil {
		return nil, p.o.Hooks.Unasked(ctx, hook.PreCreateContainer, t, err)
	}
	_, annotations := adapt.Split(c.Create.Labels)
	answers, err := p.Servers.Create(ctx, c.Pod, stated, &hook.ContainerRequest{
		Container: hook.ContainerOf(c.Container), Resources: hook.ResourcesOf(&c.Container.Base), Annotations: annotations, Env: c.Create.Env(),
	}, t)
	for i := range answers {
		for _, file := range slices.Sorted(maps.Keys(answers[i].Unified)) {
			p.engine.Problem(t.Name, plan.HookPrefix+answers[i].Server, file+": Docker's API has no field for it")
		}
	}
	return answers, err
}

// podChange is what hook servers want of a sandbox; ok is false for nothing.
func podChange(answers []hooks.Answer) (out adapt.Change, ok bool) {
	out.Labels, out.Annotations = map[string]string{}, map[string]string{}
	for i := range answers {
		a := &answers[i]
		maps.Copy(out.Labels, a.Labels)
		maps.Copy(out.Annotations, a.Annotations)
		if a.CgroupParent != "" {
			out.CgroupParent = a.CgroupParent
		}
	}
	return out, len(out.Labels) > 0 || len(out.Annotations) > 0 || out.CgroupParent != ""
}

// containerChange is what hook servers want of a container beyond settings; ok is false for nothing.
func containerChange(answers []hooks.Answer) (out adapt.Change, ok bool) {
	out, ok = podChange(answers)
	out.CgroupParent = "" // it is the pod's
	for i := range answers {
		a := &answers[i]
		out.EnvRemoved = append(out.EnvRemoved, a.EnvRemoved...)
		if a.Swap.Set {
			out.Swap = a.Swap
		}
	}
	return out, ok || len(out.EnvRemoved) > 0 || out.Swap.Set
}
