// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/ask"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// resourcesOf is what the kubelet asked, for a hook server.
func resourcesOf(r *cri.Resources) *hook.Resources {
	if !r.Present {
		return nil
	}
	return &hook.Resources{
		Period: r.Period, Quota: r.Quota, Shares: r.Shares, Memory: r.Memory, Swap: r.Swap, OOMScoreAdj: r.OOMScoreAdj,
		CPUs: r.CPUs, Mems: r.Mems, Unified: r.Unified,
	}
}

// stated is what the kubelet has stated of a pod.
func stated(c *cri.SandboxConfig) ask.Stated {
	return ask.Stated{
		Labels: c.Labels, Annotations: c.Annotations, CgroupParent: c.CgroupParent, Attempt: c.Attempt,
		Overhead: resourcesOf(&c.Overhead), Resources: resourcesOf(&c.Resources),
	}
}

// readStated asks the runtime about a pod that came before us.
func (p *Proxy) readStated(ctx context.Context, sandbox string) (ask.Stated, error) {
	c, err := p.o.List.SandboxConfig(ctx, sandbox)
	return stated(&c), err
}

// askCreate asks the hook servers about a container that is about to be created.
func (p *Proxy) askCreate(ctx context.Context, pod *workload.Pod, r *cri.CreateContainer) ([]hooks.Answer, error) {
	if !p.o.Hooks.Wants(hook.PreCreateContainer) {
		return nil, nil
	}
	t := plan.Target{Level: plan.LevelContainer, Name: pod.FullName() + "/" + r.Name}
	cfg, err := r.SandboxConfig()
	asked := &hook.ContainerRequest{Container: hook.Container{Name: r.Name, Attempt: r.Attempt}, Resources: resourcesOf(&r.Resources)}
	if err == nil {
		asked.Annotations, err = r.Annotations()
	}
	var envs []cri.Pair
	if err == nil {
		envs, err = r.Envs()
	}
	if err != nil {
		return nil, p.o.Hooks.Unasked(ctx, hook.PreCreateContainer, t, err)
	}
	asked.Env = make(map[string]string, len(envs))
	for _, e := range envs {
		asked.Env[e.Key] = e.Value
	}
	return p.Servers.Create(ctx, pod, stated(&cfg), asked, t)
}
