// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

// maxRemoved is how many removed containers are remembered: those that went while a list was read, or an event of theirs worked on.
const maxRemoved = 1024

// removals are the ids of the containers that were removed last. An event that came before such an end, or a list that was asked for
// before it, may still be at work, and must not bring the container back.
type removals struct {
	ids  map[string]struct{}
	ring []string
	next int
}

func (r *removals) add(id string) {
	if r.has(id) {
		return
	}
	if r.ids == nil {
		r.ids = map[string]struct{}{}
	}
	r.ids[id] = struct{}{}
	if len(r.ring) < maxRemoved {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % maxRemoved
}

func (r *removals) has(id string) bool {
	_, ok := r.ids[id]
	return ok
}

// forget is for one that the runtime has all the same, as after a removal that failed. Its place in the ring stays until its turn.
func (r *removals) forget(id string) { delete(r.ids, id) }

// removed reports a container that has been removed.
func (r *registry) removed(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone.has(id)
}
