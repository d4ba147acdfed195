// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/adapt/hook"
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

// askPod asks the hook servers about a pod that is about to run.
func (p *Proxy) askPod(ctx context.Context, k hook.Kind, pod *workload.Pod, cfg *cri.SandboxConfig) ([]hooks.Answer, error) {
	if !p.o.Hooks.Wants(k) || p.o.Hooks.Skips(cfg.Labels, cfg.Annotations) {
		return nil, nil
	}
	answers, err := p.o.Hooks.Pod(ctx, k, &hook.PodRequest{
		Pod: podOf(pod, cfg), RuntimeHandler: pod.RuntimeHandler, Labels: cfg.Labels, Annotations: cfg.Annotations,
		CgroupParent: cfg.CgroupParent, Overhead: resourcesOf(&cfg.Overhead), Resources: resourcesOf(&cfg.Resources),
	}, pod.Target())
	p.unusable(pod.FullName(), answers)
	for i := range answers {
		if a := &answers[i]; len(a.Plan) > 0 || a.Swap.Set || len(a.Unified) > 0 {
			p.engine.Problem(pod.FullName(), plan.HookPrefix+a.Server, "resources of a sandbox are not applied: the kubelet makes its cgroup")
		}
	}
	return answers, err
}

func podOf(pod *workload.Pod, cfg *cri.SandboxConfig) hook.Pod {
	out := hook.PodOf(pod)
	out.Attempt = cfg.Attempt
	return out
}

// createRequest is what a hook server is told of a container that is about to be created.
func createRequest(pod *workload.Pod, r *cri.CreateContainer, cfg *cri.SandboxConfig) (*hook.ContainerRequest, error) {
	annotations, err := r.Annotations()
	if err != nil {
		return nil, err
	}
	envs, err := r.Envs()
	if err != nil {
		return nil, err
	}
	out := &hook.ContainerRequest{
		Pod: podOf(pod, cfg), Container: hook.Container{Name: r.Name, Attempt: r.Attempt}, Annotations: annotations,
		Resources: resourcesOf(&r.Resources), PodResources: resourcesOf(&cfg.Resources),
		PodAnnotations: cfg.Annotations, PodLabels: cfg.Labels, PodCgroupParent: cfg.CgroupParent,
		Env: make(map[string]string, len(envs)),
	}
	for _, e := range envs {
		out.Env[e.Key] = e.Value
	}
	return out, nil
}

// askContainer asks the hook servers about a container that exists.
func (p *Proxy) askContainer(ctx context.Context, k hook.Kind, pod *workload.Pod, c *workload.Container) ([]hooks.Answer, error) {
	if !p.o.Hooks.Wants(k) {
		return nil, nil
	}
	cfg, err := p.configOf(ctx, pod.ID)
	if err != nil {
		return nil, err
	}
	if p.o.Hooks.Skips(cfg.Labels, cfg.Annotations) {
		return nil, nil
	}
	t := c.Target(pod)
	answers, err := p.o.Hooks.Container(ctx, k, &hook.ContainerRequest{
		Pod: podOf(pod, cfg), Container: hook.ContainerOf(c), Resources: hook.ResourcesOf(&c.Base),
		PodAnnotations: cfg.Annotations, PodLabels: cfg.Labels, PodCgroupParent: cfg.CgroupParent,
	}, t)
	p.unusable(t.Name, answers)
	return answers, err
}

// tell calls the hook servers after the runtime; nothing depends on them.
func (p *Proxy) tell(k hook.Kind, pod *workload.Pod, c *workload.Container) {
	if _, err := p.askContainer(context.Background(), k, pod, c); err != nil {
		p.engine.Trouble(c.Target(pod).Name, k.String(), err)
	}
}

func (p *Proxy) tellPod(k hook.Kind, pod *workload.Pod) {
	if !p.o.Hooks.Wants(k) {
		return
	}
	cfg, err := p.configOf(context.Background(), pod.ID)
	if err == nil {
		_, err = p.askPod(context.Background(), k, pod, cfg)
	}
	if err != nil {
		p.engine.Trouble(pod.FullName(), k.String(), err)
	}
}

// unusable reports what of the answers could not be used.
func (p *Proxy) unusable(subject string, answers []hooks.Answer) {
	for i := range answers {
		for _, pr := range answers[i].Problems {
			p.engine.Problem(subject, plan.HookPrefix+answers[i].Server, pr.Key+": "+pr.Reason)
		}
	}
}
