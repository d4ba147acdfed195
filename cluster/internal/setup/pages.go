// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informerOf makes informers for a cache. Where the API server streams first lists (WatchList) they are as any other. Where it does not,
// client-go would ask for all objects at once, and hold them whole until the last has come: here they come in pages, and of each page what
// the cache keeps is all that is held while the next one comes.
func informerOf(kinds map[client.Object]cache.ByObject) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(from toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, index toolscache.Indexers) toolscache.SharedIndexInformer {
		slim := func(o any) (any, error) { return o, nil }
		for of, how := range kinds {
			if reflect.TypeOf(of) == reflect.TypeOf(kind) && how.Transform != nil {
				slim = how.Transform
			}
		}
		return toolscache.NewSharedIndexInformer(paged(from, slim), kind, resync, index)
	}
}

// paged lists in pages, which the caller asks for by opts.Limit.
func paged(from toolscache.ListerWatcher, slim toolscache.TransformFunc) *toolscache.ListWatch {
	ask := toolscache.ToListerWatcherWithContext(from)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if opts.ResourceVersion == "0" {
				opts.ResourceVersion = "" // of version 0 API servers give all, whatever the limit
			}
			list, err := ask.ListWithContext(ctx, opts)
			if err != nil {
				return nil, err //nolint:wrapcheck // the reflector looks at its kind
			}
			return slimList(list, slim)
		},
		WatchFuncWithContext: ask.WatchWithContext,
	}
}

// slimList is a list of what slim keeps of the objects of another.
func slimList(list runtime.Object, slim toolscache.TransformFunc) (runtime.Object, error) {
	from, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("read a list: %w", err)
	}
	all, err := meta.ExtractListWithAlloc(list) // one by one: an object of a slice would hold the slice
	if err != nil {
		return nil, fmt.Errorf("read a list: %w", err)
	}
	out := &metainternal.List{Items: make([]runtime.Object, len(all))}
	out.ResourceVersion, out.Continue, out.RemainingItemCount = from.GetResourceVersion(), from.GetContinue(), from.GetRemainingItemCount()
	for i, o := range all {
		small, err := slim(o)
		if err != nil {
			return nil, fmt.Errorf("keep of a %T what is read: %w", o, err)
		}
		object, is := small.(runtime.Object)
		if !is {
			return nil, fmt.Errorf("keep of a %T what is read: %T is no object", o, small)
		}
		out.Items[i] = object
	}
	return out, nil
}
