// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// read makes the value that policy/profile decides by. It shares the pod's maps of labels and annotations.
func read(p *corev1.Pod) profile.Pod {
	out := profile.Pod{
		Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations,
		SchedulerName: p.Spec.SchedulerName, PriorityClassName: p.Spec.PriorityClassName, Priority: p.Spec.Priority,
		Init: containers(p.Spec.InitContainers), Main: containers(p.Spec.Containers), Overhead: amounts(p.Spec.Overhead),
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		out.Controller = &profile.Controller{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: string(owner.UID)}
	}
	if p.Spec.PreemptionPolicy != nil {
		out.PreemptionPolicy = string(*p.Spec.PreemptionPolicy)
	}
	if whole := p.Spec.Resources; whole != nil {
		out.Whole = profile.Requirements{Requests: amounts(whole.Requests), Limits: amounts(whole.Limits)}
	}
	return out
}

func containers(list []corev1.Container) []profile.Container {
	if len(list) == 0 {
		return nil
	}
	out := make([]profile.Container, len(list))
	for i := range list {
		c := &list[i]
		out[i] = profile.Container{
			Name: c.Name, Sidecar: c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways,
			Requirements: profile.Requirements{Requests: amounts(c.Resources.Requests), Limits: amounts(c.Resources.Limits)},
		}
	}
	return out
}

func amounts(list corev1.ResourceList) profile.Resources {
	if len(list) == 0 {
		return nil
	}
	out := make(profile.Resources, len(list))
	for name, q := range list {
		out[string(name)] = strategy.Quantity(q.String())
	}
	return out
}

// write puts a changed value back. On an error the pod's resources are as they were.
func write(v *profile.Pod, p *corev1.Pod) error {
	p.Labels, p.Annotations = v.Labels, v.Annotations
	p.Spec.SchedulerName, p.Spec.PriorityClassName, p.Spec.Priority = v.SchedulerName, v.PriorityClassName, v.Priority
	p.Spec.PreemptionPolicy = nil
	if v.PreemptionPolicy != "" {
		policy := corev1.PreemptionPolicy(v.PreemptionPolicy)
		p.Spec.PreemptionPolicy = &policy
	}
	if !v.Resources {
		return nil
	}
	var changed []requirements
	for i := range v.Init {
		changed = appendChanged(changed, &v.Init[i].Requirements, &p.Spec.InitContainers[i].Resources)
	}
	for i := range v.Main {
		changed = appendChanged(changed, &v.Main[i].Requirements, &p.Spec.Containers[i].Resources)
	}
	if p.Spec.Resources != nil {
		changed = appendChanged(changed, &v.Whole, p.Spec.Resources)
	}
	for i := range changed {
		if err := changed[i].read(); err != nil {
			return err
		}
	}
	for _, c := range changed {
		c.to.Requests, c.to.Limits = c.requests, c.limits
	}
	if whole := p.Spec.Resources; whole != nil && v.Whole.Changed && len(whole.Requests)+len(whole.Limits)+len(whole.Claims) == 0 {
		p.Spec.Resources = nil
	}
	return nil
}

// requirements are changed amounts on their way to a container.
type requirements struct {
	from             *profile.Requirements
	to               *corev1.ResourceRequirements
	requests, limits corev1.ResourceList
}

func appendChanged(list []requirements, from *profile.Requirements, to *corev1.ResourceRequirements) []requirements {
	if !from.Changed {
		return list
	}
	return append(list, requirements{from: from, to: to})
}

func (r *requirements) read() (err error) {
	if r.requests, err = quantities(r.from.Requests, r.to.Requests); err != nil {
		return err
	}
	r.limits, err = quantities(r.from.Limits, r.to.Limits)
	return err
}

// quantities reads amounts; one that was there already stays as it is.
func quantities(from profile.Resources, was corev1.ResourceList) (corev1.ResourceList, error) {
	if len(from) == 0 {
		return nil, nil
	}
	out := make(corev1.ResourceList, len(from))
	for name, text := range from {
		if q, ok := was[corev1.ResourceName(name)]; ok && q.String() == string(text) {
			out[corev1.ResourceName(name)] = q
			continue
		}
		q, err := resource.ParseQuantity(string(text))
		if err != nil {
			return nil, fmt.Errorf("resource %s: %w", name, err)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}
