// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// Canonical gives what the spec means, in either spelling, with every default filled in and every value within its bounds.
// Where the spellings differ the canonical one counts, and Problems says so.
func (s *NodeMetricSpec) Canonical() slo.Collect {
	in := slo.NodeMetricSpec{NodeName: s.NodeName, CollectionIntervalSeconds: s.CollectionIntervalSeconds}
	if p := s.MetricCollectPolicy; p != nil {
		in.MetricCollectPolicy = &slo.CollectPolicy{
			AggregateDurationSeconds: p.AggregateDurationSeconds, ReportIntervalSeconds: p.ReportIntervalSeconds,
			NodeMemoryCollectPolicy: p.NodeMemoryCollectPolicy, ContainerMetrics: p.ContainerMetrics,
		}
		if a := p.NodeAggregatePolicy; a != nil {
			in.MetricCollectPolicy.NodeAggregatePolicy = &slo.AggregatePolicy{}
			for _, d := range a.Durations {
				w := &in.MetricCollectPolicy.NodeAggregatePolicy.Durations
				*w = append(*w, slo.Duration(d.Duration))
			}
		}
	}
	return in.Normalise()
}

// Canonical gives a status whose canonical fields are filled in from those of the documents where only these were written:
//
//	nodeUsage    = usage
//	systemUsage  = usage − be − ls − host applications, not below zero
//	podsMetric[] = podMetrics[], the sum of its containers
//
// Where both are written and differ the canonical field counts and the conflict is listed. The result shares memory with s,
// which stays as it is.
func (s *NodeMetricStatus) Canonical() (NodeMetricStatus, []strategy.Conflict) {
	out := *s
	var conflicts []strategy.Conflict
	if n := s.NodeMetric; n != nil && len(n.Usage) > 0 {
		switch {
		case len(n.NodeUsage.Resources) == 0:
			filled := *n
			filled.NodeUsage.Resources = n.Usage
			if len(n.SystemUsage.Resources) == 0 && s.BEMetric != nil && s.LSMetric != nil {
				filled.SystemUsage.Resources = s.rest(n.Usage)
			}
			out.NodeMetric = &filled
		case !sameAmounts(n.NodeUsage.Resources, n.Usage):
			conflicts = append(conflicts, strategy.Conflict{
				Canonical: "status.nodeMetric.nodeUsage.resources", Seed: "status.nodeMetric.usage",
			})
		}
	}
	known := make(map[PodRef]int, len(s.PodsMetric))
	for i, p := range s.PodsMetric {
		known[PodRef{p.Namespace, p.Name}] = i
	}
	out.PodsMetric = s.PodsMetric[:len(s.PodsMetric):len(s.PodsMetric)]
	for _, p := range s.PodMetrics {
		sum := corev1.ResourceList{}
		for _, c := range p.Containers {
			add(sum, c.Usage)
		}
		if _, ok := known[p.PodRef]; !ok {
			out.PodsMetric = append(out.PodsMetric, PodMetric{
				Name: p.PodRef.Name, Namespace: p.PodRef.Namespace, PodUsage: ResourceMap{Resources: sum},
			})
		}
	}
	return out, conflicts
}

// rest is what of a node's use belongs to no pod and no host application.
func (s *NodeMetricStatus) rest(usage corev1.ResourceList) corev1.ResourceList {
	taken := corev1.ResourceList{}
	add(taken, s.BEMetric.Usage)
	add(taken, s.LSMetric.Usage)
	for _, a := range s.HostApplicationMetric {
		add(taken, a.Usage.Resources)
	}
	out := make(corev1.ResourceList, len(usage))
	for name, q := range usage {
		q = q.DeepCopy()
		q.Sub(taken[name])
		if q.Sign() < 0 {
			q.Set(0)
		}
		out[name] = q
	}
	return out
}

// add adds what more has to sum.
func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
}

// sameAmounts says that what both lists have is equal by value.
func sameAmounts(a, b corev1.ResourceList) bool {
	for name, q := range a {
		if r, ok := b[name]; ok && q.Cmp(r) != 0 {
			return false
		}
	}
	return true
}
