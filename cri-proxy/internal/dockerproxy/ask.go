// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"maps"
	"sync"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// podConfig is what was stated of a pod, for hook servers: labels and annotations whole, where the model keeps only what
// they ask for.
type podConfig struct {
	labels, annotations map[string]string
	cgroupParent        string
}

func statedOf(labels map[string]string, cgroupParent string) podConfig {
	own, annotations := adapt.Split(labels)
	return podConfig{labels: own, annotations: annotations, cgroupParent: cgroupParent}
}

// stated keeps podConfigs while a hook server may want them.
type stated struct {
	mu   sync.Mutex
	byID map[string]podConfig
}

func (s *stated) get(id string) (podConfig, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.byID[id]
	return c, ok
}

func (s *stated) put(id string, c podConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]podConfig{}
	}
	s.byID[id] = c
}

func (s *stated) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// configOf is what was stated of a pod; the daemon is asked once. Without its answer no hook server is asked.
func (p *Proxy) configOf(ctx context.Context, pod *workload.Pod) (podConfig, bool) {
	if c, ok := p.stated.get(pod.ID); ok {
		return c, true
	}
	in, err := p.o.Backend.Inspect(ctx, pod.ID)
	if err != nil {
		p.engine.Trouble(pod.FullName(), "labels for hook servers", err)
		return podConfig{}, false
	}
	c := statedOf(in.Config.Labels, in.CgroupParent())
	p.stated.put(pod.ID, c)
	return c, true
}

// askPod asks the hook servers about a pod.
func (p *Proxy) askPod(ctx context.Context, k hook.Kind, pod *workload.Pod, cfg podConfig) ([]hooks.Answer, error) {
	if !p.o.Hooks.Wants(k) || p.o.Hooks.Skips(cfg.labels, cfg.annotations) {
		return nil, nil
	}
	answers, err := p.o.Hooks.Pod(ctx, k, &hook.PodRequest{
		Pod: hook.PodOf(pod), RuntimeHandler: pod.RuntimeHandler, Labels: cfg.labels, Annotations: cfg.annotations,
		CgroupParent: cfg.cgroupParent,
	}, pod.Target())
	p.unusable(pod.FullName(), answers)
	return answers, err
}

// askCreate asks the hook servers about a container that is about to be created.
func (p *Proxy) askCreate(ctx context.Context, c *docker.Call) ([]hooks.Answer, error) {
	if !p.o.Hooks.Wants(hook.PreCreateContainer) {
		return nil, nil
	}
	cfg, ok := p.configOf(ctx, c.Pod)
	if !ok {
		return nil, nil
	}
	_, annotations := adapt.Split(c.Create.Labels)
	return p.askWith(ctx, hook.PreCreateContainer, c.Pod, c.Container, cfg, func(r *hook.ContainerRequest) {
		r.Annotations, r.Env = annotations, c.Create.Env()
	})
}

// askContainer asks the hook servers about a container that exists.
func (p *Proxy) askContainer(ctx context.Context, k hook.Kind, pod *workload.Pod, c *workload.Container) ([]hooks.Answer, error) {
	if !p.o.Hooks.Wants(k) {
		return nil, nil
	}
	cfg, ok := p.configOf(ctx, pod)
	if !ok {
		return nil, nil
	}
	return p.askWith(ctx, k, pod, c, cfg, func(*hook.ContainerRequest) {})
}

func (p *Proxy) askWith(ctx context.Context, k hook.Kind, pod *workload.Pod, c *workload.Container, cfg podConfig, more func(*hook.ContainerRequest)) ([]hooks.Answer, error) {
	if p.o.Hooks.Skips(cfg.labels, cfg.annotations) {
		return nil, nil
	}
	t := c.Target(pod)
	asked := &hook.ContainerRequest{
		Pod: hook.PodOf(pod), Container: hook.ContainerOf(c), Resources: hook.ResourcesOf(&c.Base),
		PodAnnotations: cfg.annotations, PodLabels: cfg.labels, PodCgroupParent: cfg.cgroupParent,
	}
	more(asked)
	answers, err := p.o.Hooks.Container(ctx, k, asked, t)
	p.unusable(t.Name, answers)
	return answers, err
}

// tell calls the hook servers after the daemon; nothing depends on them.
func (p *Proxy) tell(k hook.Kind, pod *workload.Pod, c *workload.Container) {
	if _, err := p.askContainer(context.Background(), k, pod, c); err != nil {
		p.engine.Trouble(c.Target(pod).Name, k.String(), err)
	}
}

func (p *Proxy) tellPod(k hook.Kind, pod *workload.Pod) {
	if !p.o.Hooks.Wants(k) {
		return
	}
	cfg, ok := p.configOf(context.Background(), pod)
	if !ok {
		return
	}
	if _, err := p.askPod(context.Background(), k, pod, cfg); err != nil {
		p.engine.Trouble(pod.FullName(), k.String(), err)
	}
}

// unusable reports what of the answers could not be used. Docker has no field for cgroup files by name.
func (p *Proxy) unusable(subject string, answers []hooks.Answer) {
	for i := range answers {
		a := &answers[i]
		for _, pr := range a.Problems {
			p.engine.Problem(subject, plan.HookPrefix+a.Server, pr.Key+": "+pr.Reason)
		}
		for file := range a.Unified {
			p.engine.Problem(subject, plan.HookPrefix+a.Server, file+": Docker's API has no field for it")
		}
	}
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
