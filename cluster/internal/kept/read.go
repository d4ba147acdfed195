// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kept

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
)

// byNode is the index of pods.
const byNode = "koord-rt.node"

// informers is a cache of controller-runtime.
type informers interface {
	GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error)
}

// Cache reads what a cache keeps: pods by [PodOf], NodeMetrics by [NodeMetricOf]. A client cannot: it makes objects of the API. Nobody
// may change what is read.
type Cache struct{ of informers }

// NewCache reads of a manager's cache.
func NewCache(of informers) Cache { return Cache{of: of} }

// IndexPods lets pods be found by their node; before the cache starts.
func (c Cache) IndexPods(ctx context.Context) error {
	i, err := c.of.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("get the informer of pods: %w", err)
	}
	err = i.AddIndexers(toolscache.Indexers{byNode: func(o any) ([]string, error) {
		if p, is := o.(*Pod); is {
			return []string{p.Node}, nil
		}
		return nil, nil // an error is a panic there; who reads is told
	}})
	if err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	return nil
}

// PodsOn are the pods of a node.
func (c Cache) PodsOn(ctx context.Context, node string) ([]*Pod, error) {
	return some[*Pod](ctx, c, &corev1.Pod{}, byNode, node)
}

// PodsIn are the pods of a namespace.
func (c Cache) PodsIn(ctx context.Context, namespace string) ([]*Pod, error) {
	return some[*Pod](ctx, c, &corev1.Pod{}, toolscache.NamespaceIndex, namespace)
}

// NodeMetrics are all of them.
func (c Cache) NodeMetrics(ctx context.Context) ([]*NodeMetric, error) {
	store, err := c.store(ctx, &v1alpha1.NodeMetric{})
	if err != nil {
		return nil, err
	}
	return typed[*NodeMetric](store.List())
}

// NodeMetric is that of a node, nil where there is none.
func (c Cache) NodeMetric(ctx context.Context, node string) (*NodeMetric, error) {
	store, err := c.store(ctx, &v1alpha1.NodeMetric{})
	if err != nil {
		return nil, err
	}
	o, is, err := store.GetByKey(node)
	if err != nil || !is {
		return nil, err
	}
	all, err := typed[*NodeMetric]([]any{o})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// store is what the cache holds of a kind, once it has it.
func (c Cache) store(ctx context.Context, kind client.Object) (toolscache.Indexer, error) {
	i, err := c.of.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("get the informer of %T: %w", kind, err)
	}
	has, is := i.(interface{ GetIndexer() toolscache.Indexer })
	if !is {
		return nil, fmt.Errorf("read the cache of %T: its informer %T shows no store", kind, i)
	}
	return has.GetIndexer(), nil
}

func some[T any](ctx context.Context, c Cache, kind client.Object, index, key string) ([]T, error) {
	store, err := c.store(ctx, kind)
	if err != nil {
		return nil, err
	}
	all, err := store.ByIndex(index, key)
	if err != nil {
		return nil, fmt.Errorf("look up %T by %s: %w", kind, index, err)
	}
	return typed[T](all)
}

func typed[T any](all []any) ([]T, error) {
	out := make([]T, len(all))
	for i, o := range all {
		var is bool
		if out[i], is = o.(T); !is {
			return nil, fmt.Errorf("read the cache: it holds %T, want %T: its transform is another", o, out[i])
		}
	}
	return out, nil
}
