// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package ask puts the questions of a proxy to the hook servers, the same over every way to a runtime: what was stated of
// a pod is kept for them, and what of their answers has no place is told.
//
// Inputs are pods and containers as the engine knows them and what was stated of pods; outputs are answers of package
// hooks, refusals, and problems. It may import hooks, adapt/hook, the engine and model; it knows no message of a runtime.
package ask

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Stated is what was stated of a pod: labels and annotations whole, where the model keeps only what they ask for. What a
// way does not tell stays empty.
type Stated struct {
	Labels, Annotations map[string]string
	CgroupParent        string
	Attempt             uint32
	Overhead, Resources *hook.Resources
}

// Options of Servers; all are required.
type Options struct {
	Hooks  *hooks.Registry
	Engine *engine.Engine
	// Read asks the runtime what was stated of a pod, by its sandbox's id.
	Read func(ctx context.Context, sandbox string) (Stated, error)
}

// Servers are the hook servers, as a proxy asks them. Its methods may be called from several goroutines.
type Servers struct {
	o Options

	mu   sync.Mutex
	pods map[string]Stated // by sandbox id
}

// New makes Servers.
func New(o Options) *Servers { return &Servers{o: o, pods: map[string]Stated{}} }

// Keep keeps what was stated of a pod while a hook server may want it.
func (s *Servers) Keep(sandbox string, c Stated) {
	if !s.o.Hooks.Any() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[sandbox] = c
}

// Drop forgets a pod.
func (s *Servers) Drop(sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, sandbox)
}

// Of is what was stated of a pod; the runtime is asked once about one that came before us.
func (s *Servers) Of(ctx context.Context, sandbox string) (Stated, error) {
	s.mu.Lock()
	c, ok := s.pods[sandbox]
	s.mu.Unlock()
	if ok {
		return c, nil
	}
	c, err := s.o.Read(ctx, sandbox)
	if err == nil {
		s.Keep(sandbox, c)
	}
	return c, err
}

// Pod asks about a pod. The error is a refusal.
func (s *Servers) Pod(ctx context.Context, k hook.Kind, pod *workload.Pod, c Stated) ([]hooks.Answer, error) {
	if !s.o.Hooks.Wants(k) || s.o.Hooks.Skips(c.Labels, c.Annotations) {
		return nil, nil
	}
	answers, err := s.o.Hooks.Pod(ctx, k, &hook.PodRequest{
		Pod: named(pod, c), RuntimeHandler: pod.RuntimeHandler, Labels: c.Labels, Annotations: c.Annotations,
		CgroupParent: c.CgroupParent, Overhead: c.Overhead, Resources: c.Resources,
	}, pod.Target())
	s.unusable(pod.FullName(), answers)
	for i := range answers {
		if a := &answers[i]; len(a.Plan) > 0 || a.Swap.Set || len(a.Unified) > 0 {
			s.problem(pod.FullName(), a.Server, "resources of a sandbox are not applied: the kubelet makes its cgroup")
		}
	}
	return answers, err
}

func named(pod *workload.Pod, c Stated) hook.Pod {
	out := hook.PodOf(pod)
	out.Attempt = c.Attempt
	return out
}

// Create asks about a container that is about to be created. What the request says of it is in r; what belongs to the pod
// is filled in.
func (s *Servers) Create(ctx context.Context, pod *workload.Pod, c Stated, r *hook.ContainerRequest, t plan.Target) ([]hooks.Answer, error) {
	return s.container(ctx, hook.PreCreateContainer, pod, c, r, t)
}

func (s *Servers) container(ctx context.Context, k hook.Kind, pod *workload.Pod, c Stated, r *hook.ContainerRequest, t plan.Target) ([]hooks.Answer, error) {
	if s.o.Hooks.Skips(c.Labels, c.Annotations) {
		return nil, nil
	}
	r.Pod, r.PodResources = named(pod, c), c.Resources
	r.PodAnnotations, r.PodLabels, r.PodCgroupParent = c.Annotations, c.Labels, c.CgroupParent
	answers, err := s.o.Hooks.Container(ctx, k, r, t)
	s.unusable(t.Name, answers)
	return answers, err
}

// existing asks about a container that exists.
func (s *Servers) existing(ctx context.Context, k hook.Kind, pod *workload.Pod, c *workload.Container) ([]hooks.Answer, error) {
	if !s.o.Hooks.Wants(k) {
		return nil, nil
	}
	t := c.Target(pod)
	stated, err := s.Of(ctx, pod.ID)
	if err != nil {
		return nil, s.o.Hooks.Unasked(ctx, k, t, err)
	}
	return s.container(ctx, k, pod, stated, &hook.ContainerRequest{Container: hook.ContainerOf(c), Resources: hook.ResourcesOf(&c.Base)}, t)
}

// Start asks whether a container may start. Values in the answers have no place: no request of a start carries any, and
// the container's cgroup does not exist before it; they are told as a problem. The error is a refusal.
func (s *Servers) Start(ctx context.Context, pod *workload.Pod, c *workload.Container) error {
	answers, err := s.existing(ctx, hook.PreStartContainer, pod, c)
	for i := range answers {
		if !answers[i].Empty() {
			s.problem(c.Target(pod).Name, answers[i].Server, "a start carries no values: answer PreCreateContainer with them")
		}
	}
	return err
}

// Update asks what the servers want of a container for which base is asked now; the rest of their answers has no place in
// an update. The error is a refusal.
func (s *Servers) Update(ctx context.Context, pod *workload.Pod, c *workload.Container, base workload.Resources) (want plan.Plan, err error) {
	asked := *c
	asked.Base = base
	answers, err := s.existing(ctx, hook.PreUpdateContainerResources, pod, &asked)
	for i := range answers {
		a := &answers[i]
		for _, v := range a.Plan {
			if !mark.SpecOnly(v.Knob) {
				want = append(want, v)
			}
		}
		for _, file := range slices.Sorted(maps.Keys(a.Unified)) {
			s.problem(c.Target(pod).Name, a.Server, file+": an update has no place for it")
		}
	}
	return want, err
}

// Tell calls the servers about a container after the runtime; nothing depends on them.
func (s *Servers) Tell(ctx context.Context, k hook.Kind, pod *workload.Pod, c *workload.Container) {
	if _, err := s.existing(ctx, k, pod, c); err != nil {
		s.o.Engine.Trouble(c.Target(pod).Name, k.String(), err)
	}
}

// TellPod is Tell for a pod.
func (s *Servers) TellPod(ctx context.Context, k hook.Kind, pod *workload.Pod) {
	if !s.o.Hooks.Wants(k) {
		return
	}
	c, err := s.Of(ctx, pod.ID)
	if err == nil {
		_, err = s.Pod(ctx, k, pod, c)
	} else {
		err = s.o.Hooks.Unasked(ctx, k, pod.Target(), err)
	}
	if err != nil {
		s.o.Engine.Trouble(pod.FullName(), k.String(), err)
	}
}

// unusable reports what of the answers could not be used.
func (s *Servers) unusable(subject string, answers []hooks.Answer) {
	for i := range answers {
		for _, pr := range answers[i].Problems {
			s.problem(subject, answers[i].Server, pr.Key+": "+pr.Reason)
		}
	}
}

func (s *Servers) problem(subject, server, reason string) {
	s.o.Engine.Problem(subject, plan.HookPrefix+server, reason)
}
