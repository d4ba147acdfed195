// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/policy/predict"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

// found is what a pass sees of one Recommendation.
type found struct {
	object *v1alpha1.Recommendation
	entry  *entry
	// pods there are, and of them those of which nothing can be told because they have several containers.
	pods, mixed int
	samples     []recommend.Sample
	// invalid says why the target selects nothing; unsure is that some pods may not be known.
	invalid string
	unsure  bool
}

// pass learns from the reports that have come, and writes what has changed.
func (r *recommender) pass(ctx context.Context, now time.Time) error {
	var list v1alpha1.RecommendationList
	if err := r.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list Recommendations: %w", err)
	}
	all := r.entered(list.Items, now)
	metrics, err := r.kept.NodeMetrics(ctx)
	if err != nil {
		return fmt.Errorf("list NodeMetrics: %w", err)
	}
	reported := r.read(metrics, all, now)
	asking := map[string]bool{}
	whole := true
	r.owners.begin(now)
	namespaces := slices.Sorted(maps.Keys(all))
	for _, namespace := range namespaces {
		if err := r.match(ctx, namespace, all[namespace], reported, asking); err != nil {
			r.complain("namespace "+namespace, err)
			whole = false
			for _, f := range all[namespace] {
				f.unsure = true
			}
		}
	}
	r.owners.end(whole)
	containers := 0
	for _, namespace := range namespaces {
		for _, f := range all[namespace] {
			r.metrics.learned(len(f.samples), f.entry.model.Learn(wall(now), f.samples))
			containers += f.entry.model.Len()
			if len(f.samples) > 0 {
				f.entry.quiet = now
			}
			if err := r.tell(ctx, f, now); err != nil {
				r.complain(f.object.Namespace+"/"+f.object.Name, err)
			}
		}
	}
	r.metrics.held(len(r.entries), containers)
	r.ask(ctx, metrics, asking, whole)
	return nil
}

// entered are the Recommendations by namespace. New ones, and those of another target, begin with what their status remembers.
func (r *recommender) entered(list []v1alpha1.Recommendation, now time.Time) map[string][]*found {
	out := map[string][]*found{}
	there := map[types.NamespacedName]bool{}
	for i := range list {
		o := &list[i]
		key := client.ObjectKeyFromObject(o)
		there[key] = true
		e := r.entries[key]
		if e == nil || e.uid != o.UID || e.generation != o.Generation {
			e = &entry{uid: o.UID, generation: o.Generation, model: recommend.New(r.o.Model), quiet: now}
			r.entries[key] = e
			if err := remember(e.model, o); err != nil {
				r.complain(key.String(), err)
			}
		}
		out[o.Namespace] = append(out[o.Namespace], &found{object: o, entry: e})
	}
	for key := range r.entries {
		if !there[key] {
			delete(r.entries, key)
			r.unseen.Forget(key)
		}
	}
	return out
}

// remember restores what the status has of this target; what cannot be read begins anew, and is named.
func remember(m *recommend.Model, o *v1alpha1.Recommendation) error {
	h := o.Status.History
	if h == nil || h.Generation != o.Generation {
		return nil
	}
	var errs []error
	for name, text := range h.Containers {
		one, err := parseHistory(name, text)
		if err == nil {
			err = m.Restore(one)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("status.history: %w; the container begins anew", err))
		}
	}
	return errors.Join(errs...)
}

// podOn is a pod on a node: one that has moved is in the reports of both for a while.
type podOn struct{ node, namespace, name string }

// read gathers new reports of pods in namespaces that matter. Reports that are old, of the future, or known train nothing.
func (r *recommender) read(metrics []*kept.NodeMetric, of map[string][]*found, now time.Time) map[podOn]*kept.PodUsage {
	out := map[podOn]*kept.PodUsage{}
	there := make(map[string]bool, len(metrics))
	for _, m := range metrics {
		there[m.Name] = true
		if len(of) == 0 || m.Status.UpdateTime == nil {
			continue
		}
		at := m.Status.UpdateTime.Time
		if at.Equal(r.reports[m.Name]) {
			continue
		}
		if age := now.Sub(at); age > fresh || age < -ahead {
			r.metrics.passed.Inc()
			continue
		}
		r.reports[m.Name] = at
		for j := range m.Pods {
			if p := &m.Pods[j]; of[p.Namespace] != nil {
				out[podOn{m.Name, p.Namespace, p.Name}] = p
			}
		}
	}
	for name := range r.reports {
		if !there[name] {
			delete(r.reports, name)
		}
	}
	return out
}

// match gives each Recommendation of a namespace its pods, and their measurements.
func (r *recommender) match(ctx context.Context, namespace string, of []*found, reported map[podOn]*kept.PodUsage, asking map[string]bool) error {
	pods, err := r.kept.PodsIn(ctx, namespace)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	targets, first := r.owners.targetsOf(ctx, of)
	for _, p := range pods {
		mean, err := r.owners.of(ctx, p, &targets)
		if err != nil && first == nil {
			first = err
		}
		for _, f := range mean {
			f.pods++
			f.take(p, reported[podOn{p.Node, p.Namespace, p.Name}], asking)
		}
	}
	return first
}

// take adds the measurements of a pod. The pod's own figure is that of its only container; of several the node must tell each.
func (f *found) take(p *kept.Pod, u *kept.PodUsage, asking map[string]bool) {
	names := p.Containers()
	if len(names) > 1 {
		asking[p.Node] = true
	}
	if u == nil {
		return // not reported
	}
	switch {
	case u.Containers != nil:
		for i := range u.Containers {
			if c := &u.Containers[i]; slices.Contains(names, c.Name) {
				f.samples = append(f.samples, recommend.Sample{Container: c.Name, Usage: c.Usage})
			}
		}
	case len(names) == 1:
		f.samples = append(f.samples, recommend.Sample{Container: names[0], Usage: u.Usage})
	default:
		f.mixed++
	}
}

// wall is a time as the formulas take it.
func wall(t time.Time) predict.Wall { return predict.Wall(t.UnixMicro()) }
