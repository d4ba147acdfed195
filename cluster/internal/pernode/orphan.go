// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// missing is for how long a node has been seen missing, at least a nanosecond; 0 while it is there.
func (r *reconciler) missing(name string, gone, object bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !gone || !object {
		delete(r.gone, name)
		if gone {
			return 1
		}
		return 0
	}
	now := time.Now()
	since, known := r.gone[name]
	if !known {
		since = now
		r.gone[name] = now
	}
	return max(now.Sub(since), 1)
}

// remove deletes what a node has left behind. Where the API server has the node, and the cache has not seen yet that it is back, what users have
// written into the object would go too: the node's going counts anew then.
func (r *reconciler) remove(ctx context.Context, name string, object client.Object) (again time.Duration, err error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	// A list, for which the right is there.
	if err := r.live.List(ctx, nodes, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
		r.metrics.did(err, whyRead)
		return 0, fmt.Errorf("look for node %s: %w", name, err)
	}
	if len(nodes.Items) > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gone[name] = time.Now()
		return r.orphan, nil
	}
	// As it was read: a user may have just made it his own.
	uid, version := object.GetUID(), object.GetResourceVersion()
	err = client.IgnoreNotFound(r.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	r.metrics.did(err, whyDelete)
	return 0, err
}
