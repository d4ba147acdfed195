// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	"github.com/koord-rt/koord-rt/api/slo"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
)

// Field managers: of the status, and of the wish for container figures, which is taken back by itself.
const (
	manager     = "koord-manager"
	wishManager = "koord-manager-recommender"
)

// tell writes the status of a Recommendation where that is worth it.
func (r *recommender) tell(ctx context.Context, f *found, now time.Time) error {
	key := client.ObjectKeyFromObject(f.object)
	if r.unseen.Behind(key, f.object) {
		return nil // the next pass looks again
	}
	pods, err := r.judge(ctx, f, now)
	if err != nil {
		return err
	}
	t := &told{
		now: now, generation: f.object.Generation, stored: &f.object.Status, pods: pods, advice: f.entry.model.Advice(),
		cold: time.Duration(r.o.Model.ColdStart) * time.Microsecond, history: map[string]string{},
	}
	for _, h := range f.entry.model.Histories() {
		t.history[h.Container] = formatHistory(&h)
	}
	next := decide(t)
	if next == nil {
		return nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(next)
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	// The UID keeps what was learned of one object from another one of its name.
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Recommendation"))
	u.SetNamespace(f.object.Namespace)
	u.SetName(f.object.Name)
	u.SetUID(f.object.UID)
	err = r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager))
	if err == nil {
		r.unseen.Wrote(key, u)
	}
	err = client.IgnoreNotFound(err)
	r.metrics.wrote(err)
	if err != nil {
		return fmt.Errorf("apply the status: %w", err)
	}
	return nil
}

// judge says of the pods what a reader must know.
func (r *recommender) judge(ctx context.Context, f *found, now time.Time) (verdict, error) {
	no := func(reason, message string) (verdict, error) {
		return verdict{metav1.ConditionFalse, reason, message}, nil
	}
	e := f.entry
	switch {
	case f.invalid != "":
		return no(reasonInvalid, f.invalid)
	case f.unsure && len(f.samples) == 0:
		return verdict{}, nil
	case f.pods == 0:
		if now.Sub(e.looked) >= askAgain || now.Before(e.looked) {
			gone, err := r.owners.missing(ctx, f.object)
			if err != nil {
				return verdict{}, err
			}
			e.gone, e.looked = gone, now
		}
		if e.gone {
			w := f.object.Spec.Target.Workload
			return no(reasonNoWorkload, "there is no "+w.Kind+" "+w.Name+" in the namespace")
		}
		return no(reasonNoPods, "no pod of the target is on a node")
	}
	e.looked = time.Time{}
	switch {
	case len(f.samples) > 0:
		return verdict{metav1.ConditionTrue, reasonPods, "nodes report what the pods use"}, nil
	case f.mixed > 0:
		return no(reasonMixed, "pods have several containers, and their nodes do not tell them apart: "+
			"metricCollectPolicy.containerMetrics of their NodeMetrics is not true")
	case now.Sub(e.quiet) >= silence:
		return no(reasonSilent, "no node has reported what the pods use for ten minutes: look at NodeMetric and koordlet")
	}
	return verdict{}, nil
}

// wish is whether a node should tell the containers of pods apart.
type wish struct {
	metric *kept.NodeMetric
	want   bool
}

// wishes are the nodes of which it should be told anew: those that have pods with several containers and do not report them, and, where
// the picture is whole, those that no longer have any. What somebody else has written stays.
func wishes(metrics []*kept.NodeMetric, asking map[string]bool, whole bool) (out []wish) {
	for _, m := range metrics {
		mine := false
		for _, e := range m.ManagedFields {
			mine = mine || e.Manager == wishManager
		}
		switch p := m.Spec.MetricCollectPolicy; {
		case asking[m.Name] && !m.Spec.Canonical().Containers && (p == nil || p.ContainerMetrics == nil):
			out = append(out, wish{m, true})
		case !asking[m.Name] && mine && whole:
			out = append(out, wish{m, false})
		}
	}
	return out
}

// refusals are how many writes in a row may fail until the other nodes wait for the next pass.
const refusals = 10

// ask writes the wishes. One that is refused keeps no other node from its own: the cache names nodes in another order each time.
func (r *recommender) ask(ctx context.Context, metrics []*kept.NodeMetric, asking map[string]bool, whole bool) {
	refused := 0 // in a row
	for _, w := range wishes(metrics, asking, whole) {
		if refused >= refusals || ctx.Err() != nil {
			return
		}
		u := &unstructured.Unstructured{Object: map[string]any{}}
		if w.want {
			u.Object["spec"] = map[string]any{"metricCollectPolicy": map[string]any{"containerMetrics": true}}
		}
		u.SetGroupVersionKind(slov1alpha1.GroupVersion.WithKind(slo.KindNodeMetric))
		u.SetName(w.metric.Name)
		u.SetUID(w.metric.UID) // never makes one
		err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(wishManager))
		r.metrics.wrote(err)
		if refused++; err == nil {
			refused = 0
			continue
		}
		r.complain("node "+w.metric.Name, fmt.Errorf("ask for container figures: %w", err))
	}
}
