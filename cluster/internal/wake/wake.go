// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package wake makes controllers look at every node when the cluster's strategy has changed.
//
// Inputs are the store of the strategy and the cache of nodes; output is a source of requests, one per node, by its name. Changes
// that come while nodes are being listed are one change.
package wake

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
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
