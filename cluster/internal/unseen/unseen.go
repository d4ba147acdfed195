// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package unseen tells a cache that does not have yet what was written last, so that nobody decides by what was there before: he would write the
// same a second time, or take back what he has just done.
//
// Inputs are objects as writes have made them and as a cache has them; output is whether to wait, and until when. It must not import a webhook or
// a controller.
package unseen

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Again is how long a cache that is behind is waited for until the next look; Most is how often. An API server that was put back to an earlier
// state will never tell of what was written.
const (
	Again = time.Second
	Most  = 30
)

// Writes are the last ones, by whatever names their objects, of which a cache is not known to have them. The zero value is ready; it is safe for
// concurrent use.
type Writes[K comparable] struct {
	mu sync.Mutex
	of map[K]write
}

// write is what it made of an object.
type write struct {
	uid     types.UID
	version string
	looks   int // at a cache that is behind
}

// Wrote notes an object as an API server has answered with it.
func (w *Writes[K]) Wrote(key K, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[K]write{}
	}
	w.of[key] = write{uid: o.GetUID(), version: o.GetResourceVersion()}
}

// Behind reports whether a cache that has an object so is behind. What is another object, or is newer, is forgotten.
func (w *Writes[K]) Behind(key K, cached metav1.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.of[key]
	if !known {
		return false
	}
	if cached.GetUID() == last.uid {
		// Versions that are no numbers tell nothing.
		order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), last.version)
		if last.looks++; err == nil && order < 0 && last.looks <= Most {
			w.of[key] = last
			return true
		}
	}
	delete(w.of, key)
	return false
}

// Forget is for an object that has gone.
func (w *Writes[K]) Forget(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, key)
}
