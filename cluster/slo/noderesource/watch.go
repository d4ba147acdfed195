// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/cluster/internal/wake"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// nodeChanges passes what a decision goes by; a node's heartbeat is none of it.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !maps.Equal(old.Labels, now.Labels) || !maps.Equal(old.Annotations, now.Annotations) ||
			short(old) != short(now) || !sameResources(old.Status.Capacity, now.Status.Capacity) || !sameResources(old.Status.Allocatable, now.Status.Allocatable)
	}}
}

func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// reportChanges passes new reports, not what the manager itself writes of a NodeMetric.
func reportChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*kept.NodeMetric), e.ObjectNew.(*kept.NodeMetric)
		return !old.Status.UpdateTime.Equal(now.Status.UpdateTime)
	}}
}

// specChanges passes new generations, and labels, of which there is none.
func specChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Or[client.Object](wake.OfSpec(), predicate.LabelChangedPredicate{}))
}

// arrivals passes pods that come to a node and that nothing may be lent from: until they are in a report their requests count. A pod that
// goes is in the next report, or no longer is.
func arrivals() predicate.Predicate {
	counts := func(p *kept.Pod) bool {
		return p.Node != "" && !p.Finished && capacity.Above(p.Value.Class, protocol.PriorityBatch)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList && counts(e.Object.(*kept.Pod)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, now := e.ObjectOld.(*kept.Pod), e.ObjectNew.(*kept.Pod)
			return old.Node != now.Node && counts(now)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

func nodeOfPod(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.(*kept.Pod).Node}}}
}
