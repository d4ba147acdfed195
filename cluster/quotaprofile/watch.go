// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotaprofile

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/rootquota"
	"github.com/koord-rt/koord-rt/cluster/internal/wake"
)

// Changes that come within such a time are one: a node pool that grows is hundreds of nodes, and what is lent out of nodes changes
// all the time somewhere.
const (
	soon  = time.Second
	later = 10 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// delay is how long a change of a node can wait, 0 for one that is none of ours.
func delay(old, now *corev1.Node) time.Duration {
	same := func(name corev1.ResourceName) bool {
		a, b := old.Status.Allocatable[name], now.Status.Allocatable[name]
		return a.Cmp(b) == 0
	}
	switch {
	case !maps.Equal(old.Labels, now.Labels), rootquota.Takes(old) != rootquota.Takes(now), !same(corev1.ResourceCPU), !same(corev1.ResourceMemory):
		return soon
	case !maps.EqualFunc(old.Status.Allocatable, now.Status.Allocatable, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }):
		return later
	}
	return 0
}

// onNode looks at the profiles that select a node or did. Nodes that are there from the start need no look of their own: profiles are too.
func (r *reconciler) onNode() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList {
				r.wake(ctx, q, soon, selects(e.Object))
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if after := delay(e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)); after > 0 {
				r.wake(ctx, q, after, selects(e.ObjectOld, e.ObjectNew))
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.wake(ctx, q, soon, selects(e.Object)) },
	}
}

// selects are the profiles of one of these nodes.
func selects(nodes ...client.Object) func(*quotav1alpha1.ElasticQuotaProfile) bool {
	return func(p *quotav1alpha1.ElasticQuotaProfile) bool {
		s, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
		if err != nil {
			return false
		}
		for _, n := range nodes {
			if s.Matches(labels.Set(n.GetLabels())) {
				return true
			}
		}
		return false
	}
}

// onQuota looks at the profiles of a quota that somebody has changed or deleted.
func (r *reconciler) onQuota() handler.EventHandler {
	look := func(ctx context.Context, q queue, o client.Object) {
		r.wake(ctx, q, soon, makes(o.GetNamespace(), o.GetName()))
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { look(ctx, q, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { look(ctx, q, e.Object) },
	}
}

// onProfile looks at the others of a quota when one leaves it: the next one makes it.
func (r *reconciler) onProfile() handler.EventHandler {
	look := func(ctx context.Context, q queue, o client.Object) {
		p := o.(*quotav1alpha1.ElasticQuotaProfile)
		r.wake(ctx, q, soon, makes(p.Namespace, p.Spec.QuotaName))
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { look(ctx, q, e.ObjectOld) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { look(ctx, q, e.Object) },
	}
}

// makes are the profiles of a quota.
func makes(namespace, quota string) func(*quotav1alpha1.ElasticQuotaProfile) bool {
	return func(p *quotav1alpha1.ElasticQuotaProfile) bool {
		return p.Namespace == namespace && p.Spec.QuotaName == quota
	}
}

// wake asks for a look at profiles; the queue has each once, at the earliest time that was asked for.
func (r *reconciler) wake(ctx context.Context, q queue, after time.Duration, which func(*quotav1alpha1.ElasticQuotaProfile) bool) {
	var list quotav1alpha1.ElasticQuotaProfileList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list ElasticQuotaProfiles; a change of what they are made of waits for the next one")
		return
	}
	for i := range list.Items {
		if which(&list.Items[i]) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, after)
		}
	}
}

// profileChanges passes what a quota is made by.
func profileChanges() predicate.Predicate {
	return predicate.Or[client.Object](wake.OfSpec(), predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// quotaChanges passes what is ours of a quota: its scheduler writes annotations and status all the time.
func quotaChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld, e.ObjectNew
		for _, key := range []string{protocol.AnnotationQuotaTotal, protocol.AnnotationQuotaUnschedulable} {
			if old.GetAnnotations()[key] != now.GetAnnotations()[key] {
				return true
			}
		}
		return old.GetUID() != now.GetUID() || old.GetGeneration() != now.GetGeneration() || !maps.Equal(old.GetLabels(), now.GetLabels())
	}}
}
