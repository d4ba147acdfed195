// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNoBody: the runtime has no such pod on this node, or none whose containers could be stopped.
var ErrNoBody = errors.New("no container of it runs here")

// Body is a pod as the runtime of this node has it.
type Body struct {
	// Cgroup is what all of its processes are below; empty when that is not known.
	Cgroup string
	// Containers are the ids of those that run.
	Containers []string
}

// Hands reach a pod where it runs, beside the API server: they tell whether processes of it are left, and stop its containers.
// All fields are required. Its methods are safe for concurrent use.
type Hands struct {
	// Bodies are a pod (by UID) in each of its sandboxes; none when the runtime has no such pod.
	Bodies func(uid string) []Body
	// Kill ends one container (by id): it is asked to, and killed after the grace period.
	Kill func(ctx context.Context, container string, grace time.Duration) error
	// Populated reports whether a process is left in a cgroup or below it.
	Populated func(cgroup string) (bool, error)

	mu sync.Mutex
	// places are the cgroups of pods that were asked for and are not gone, by UID: the runtime forgets a pod sooner than the
	// kernel its processes.
	places map[string]string
}

// Alive reports whether a process of the pod is left; not known where its cgroup is not, or cannot be read.
func (h *Hands) Alive(uid string) (alive, known bool) {
	place := h.place(uid)
	if place == "" {
		return false, false
	}
	alive, err := h.Populated(place)
	if err != nil {
		return false, false
	}
	return alive, true
}

// forget forgets where the pod was.
func (h *Hands) forget(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.places, uid)
}

// place is the pod's cgroup, as the runtime tells or has told.
func (h *Hands) place(uid string) string {
	place := ""
	for _, b := range h.Bodies(uid) {
		if b.Cgroup != "" {
			place = b.Cgroup
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if place == "" {
		return h.places[uid]
	}
	if h.places == nil {
		h.places = map[string]string{}
	}
	h.places[uid] = place
	return place
}

// Stop ends the pod's containers, all at once, and returns when the runtime has answered for each.
func (h *Hands) Stop(ctx context.Context, uid string, grace time.Duration) error {
	var ids []string
	for _, b := range h.Bodies(uid) {
		ids = append(ids, b.Containers...)
	}
	if len(ids) == 0 {
		return ErrNoBody
	}
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			if err := h.Kill(ctx, id, grace); err != nil {
				errs[i] = fmt.Errorf("stop its container: %w", err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
