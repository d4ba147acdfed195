// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package wake makes controllers look at every node when the cluster's strategy has changed, and at objects that have changed more than their
// status, or have taken another's name.
//
// Inputs are the store of the strategy, the cache of nodes, and events; outputs are a source of requests, one per node, by its name, and a
// predicate. Changes that come while nodes are being listed are one change.
package wake

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// again is the time until nodes are listed anew when that has failed.
const again = time.Second

// EveryNode is a source that asks for every node of the cache whenever there is a strategy that the controller has not seen.
func EveryNode(store *config.Store, nodes client.Reader) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		changed := store.Subscribe()
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-changed:
				}
				for !enqueue(ctx, nodes, queue) {
					select {
					case <-ctx.Done():
						return
					case <-time.After(again):
					}
				}
			}
		}()
		return nil
	})
}

// enqueue asks for every node, false where they cannot be listed.
func enqueue(ctx context.Context, nodes client.Reader, queue workqueue.TypedInterface[reconcile.Request]) bool {
	var list corev1.NodeList
	// Names only are read: no need to copy what the cache holds.
	if err := nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list nodes for a new strategy; trying again", "after", again)
		return false
	}
	for i := range list.Items {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
	}
	return true
}

// OfSpec passes what controller-runtime's predicate of generations does, and an object in the place of another: where a watch was broken, one that
// was deleted and made anew comes as an update, of the first generation as the one before.
func OfSpec() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
	}})
}
