// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ResizeContainer is ResizePod for one container.
func (k *Kubelet) ResizeContainer(ctx context.Context, r *Running, name string, res Resources) error {
	return k.ResizePod(ctx, r, map[string]Resources{name: res})
}

// ResizePod changes containers' native resources in place, in the order of kubelet
// 1.36: memory, then CPU; for each, pod values that grow (limit before request), then
// containers in pod order, then pod values that shrink (request before limit). Before
// each pod value the runtime hears of it by UpdatePodSandboxResources; a runtime that
// does not know the call is passed over. The QoS class must not change.
func (k *Kubelet) ResizePod(ctx context.Context, r *Running, change map[string]Resources) error {
	next := r.Pod
	next.Containers = slices.Clone(r.Pod.Containers)
	for _, name := range slices.Sorted(maps.Keys(change)) {
		i := r.index(name)
		if i < 0 {
			return fmt.Errorf("resize pod %s: no container %q", r.Pod.Name, name)
		}
		next.Containers[i].Resources = change[name]
	}
	before, err := podDemandOf(r.Pod)
	if err != nil {
		return err
	}
	after, err := podDemandOf(next)
	if err != nil {
		return err
	}
	if after.qos() != r.QoS {
		return fmt.Errorf("resize pod %s: QoS class would change from %s to %s", r.Pod.Name, r.QoS, after.qos())
	}
	held, err := k.groups.current(r.group)
	if err != nil {
		return fmt.Errorf("resize pod %s: %w", r.Pod.Name, err)
	}
	s := &resize{k: k, r: r, next: next, before: before, after: after, want: podValues(after), told: merge(podValues(after), held)}
	if s.want.memory == nil {
		s.want.memory = held.memory // a limit is never taken away
	}
	if s.want.quota == nil {
		s.want.quota = held.quota
	}
	if err := s.memory(ctx, *held.memory); err != nil {
		return err
	}
	if err := s.cpu(ctx, held); err != nil {
		return err
	}
	k.mu.Lock()
	r.Pod = next
	k.mu.Unlock()
	return nil
}

// LimitPod changes the CPU limit of the pod's own cgroup and no container's, as a resize of a pod with resources of its own
// (pod-level resources) does. The pod's description stays as it is.
func (k *Kubelet) LimitPod(ctx context.Context, r *Running, cpu Quantity) error {
	milli, err := cpu.Milli()
	if err != nil {
		return err
	}
	demand, err := podDemandOf(r.Pod)
	if err != nil {
		return err
	}
	held, err := k.groups.current(r.group)
	if err != nil {
		return fmt.Errorf("limit pod %s: %w", r.Pod.Name, err)
	}
	quota := cpuQuota(milli, demand.period)
	s := &resize{k: k, r: r, next: r.Pod, before: demand, after: demand, told: merge(podValues(demand), held)}
	return s.setPod(ctx, values{quota: &quota, period: demand.period})
}

// resize is one ResizePod under way.
type resize struct {
	k             *Kubelet
	r             *Running
	next          Pod
	before, after podDemand
	want          values // the pod's values after the resize
	told          values // what the runtime was last told
}

func (s *resize) memory(ctx context.Context, held int64) error {
	changed := s.changed(func(d demand) amount { return d.memory })
	if len(changed) == 0 {
		return nil
	}
	limit := values{memory: s.want.memory}
	if *s.want.memory > held {
		if err := s.setPod(ctx, limit); err != nil {
			return err
		}
	}
	for _, i := range changed {
		d := demand{cpu: s.before.containers[i].cpu, memory: s.after.containers[i].memory}
		if err := s.setContainer(ctx, i, d); err != nil {
			return err
		}
	}
	if *s.want.memory < held {
		return s.setPod(ctx, limit)
	}
	return nil
}

func (s *resize) cpu(ctx context.Context, held values) error {
	changed := s.changed(func(d demand) amount { return d.cpu })
	if len(changed) == 0 {
		return nil
	}
	limit, request := values{quota: s.want.quota, period: s.want.period}, values{shares: s.want.shares}
	grow := []struct {
		do bool
		v  values
	}{{*s.want.quota > *held.quota, limit}, {*s.want.shares > *held.shares, request}}
	for _, g := range grow {
		if g.do {
			if err := s.setPod(ctx, g.v); err != nil {
				return err
			}
		}
	}
	for _, i := range changed {
		if err := s.setContainer(ctx, i, s.after.containers[i]); err != nil {
			return err
		}
	}
	if *s.want.shares < *held.shares {
		if err := s.setPod(ctx, request); err != nil {
			return err
		}
	}
	if *s.want.quota < *held.quota {
		return s.setPod(ctx, limit)
	}
	return nil
}

// changed lists the containers whose amount differs, in pod order.
func (s *resize) changed(of func(demand) amount) []int {
	var out []int
	for i := range s.after.containers {
		if of(s.before.containers[i]) != of(s.after.containers[i]) {
			out = append(out, i)
		}
	}
	return out
}

// setContainer sends one container's resources; a container that is not created yet
// gets them at its creation.
func (s *resize) setContainer(ctx context.Context, i int, d demand) error {
	id := s.r.Containers[s.next.Containers[i].Name]
	if id == "" {
		return nil
	}
	return s.k.options.CRI.UpdateContainer(ctx, id, s.k.containerResources(s.next, s.r.QoS, d))
}

// setPod tells the runtime first, which may refuse, and then writes the pod's cgroup.
func (s *resize) setPod(ctx context.Context, v values) error {
	s.told = merge(s.told, v)
	sum := sumResources(s.told, s.after)
	err := s.k.options.CRI.UpdatePodResources(ctx, s.r.SandboxID, s.k.overheadResources(s.next, s.after), sum)
	if err != nil && !unimplemented(err) {
		return err
	}
	return s.k.groups.update(s.r.group, v)
}

// unimplemented also knows containerd 2.2's form: code Unknown with a text.
func unimplemented(err error) bool {
	code := status.Code(err)
	return code == codes.Unimplemented || code == codes.Unknown && strings.Contains(err.Error(), "not implemented")
}

// merge returns a with b's values over it.
func merge(a, b values) values {
	if b.shares != nil {
		a.shares = b.shares
	}
	if b.quota != nil {
		a.quota, a.period = b.quota, b.period
	}
	if b.memory != nil {
		a.memory = b.memory
	}
	return a
}

// sumResources is the pod's values without overhead, as kubelet sends them.
// Source: kuberuntime subtractOverheadFromResourceConfig.
func sumResources(v values, d podDemand) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{}
	if v.quota != nil {
		out.CpuPeriod, out.CpuQuota = d.period, *v.quota
		if d.overhead.cpu.asked {
			out.CpuQuota -= cpuQuota(d.overhead.cpu.limit, d.period)
		}
	}
	if v.shares != nil {
		out.CpuShares = *v.shares
		if d.overhead.cpu.asked {
			milli := (*v.shares*1000 + 1023) / 1024 // kubelet's SharesToMilliCPU rounds up
			out.CpuShares = cpuShares(milli - d.overhead.cpu.request)
		}
	}
	if v.memory != nil {
		out.MemoryLimitInBytes = *v.memory - d.overhead.memory.limit
	}
	return out
}
