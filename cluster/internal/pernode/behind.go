// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unseen is how long what was just written, and the cache does not have, is waited for until the next look; mostLooks is how often. An API server
// that was put back to an earlier state will never tell of it.
const (
	unseen    = time.Second
	mostLooks = 30
)

// version is what a write made of an object.
type version struct {
	uid        types.UID
	generation int64
	looks      int // at a cache that is behind
}

func (r *reconciler) wrote(name string, v version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[name] = v
}

// behind reports whether the cache does not have yet what was written last. A node can be asked for again just after it was written: its own
// event and the strategy's come apart, as they do to a new leader. Who decides by what was there before writes the same a second time.
//
// An object that is not there at all is made, which an API server that has it refuses ([ownership.Absent]).
func (r *reconciler) behind(name string, object client.Object, there bool) (again time.Duration, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.written[name]
	if !known {
		return 0, false
	}
	if there && object.GetUID() == last.uid && object.GetGeneration() < last.generation {
		if last.looks++; last.looks <= mostLooks {
			r.written[name] = last
			return unseen, true
		}
	}
	delete(r.written, name)
	return 0, false
}
