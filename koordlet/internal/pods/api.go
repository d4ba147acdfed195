// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"maps"
	"slices"
	"sync"

	"github.com/koord-rt/koord-rt/koordlet/internal/jsonscan"
)

// APISink takes the node's pods from whoever follows them at the API server. Its methods but [APISink.take] are called by
// one goroutine; raw is not kept.
type APISink struct {
	notify chan struct{}

	mu sync.Mutex
	// pods by the API server's UID; next while a complete list comes in.
	pods, next map[string]known
	synced     bool
	err        error
}

func newAPISink() *APISink {
	return &APISink{notify: make(chan struct{}, 1), pods: map[string]known{}}
}

// Begin announces a complete list.
func (s *APISink) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = map[string]known{}
}

// Object is a pod of the list, or one that is new or has changed.
func (s *APISink) Object(raw []byte) { s.put(raw, decoded) }

// TooLarge is the same of a pod of which there is only the beginning.
func (s *APISink) TooLarge(head []byte) { s.put(head, tooLarge) }

func (s *APISink) put(raw []byte, read func(raw []byte) known) {
	uid, ok := metadataOf(raw, "uid")
	if !ok {
		return
	}
	entry := read(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		if len(s.next) < maxPods {
			s.next[uid] = entry
		}
		return
	}
	if _, have := s.pods[uid]; have || len(s.pods) < maxPods {
		s.pods[uid] = entry
	}
	s.signal()
}

// Delete is a pod that is gone.
func (s *APISink) Delete(raw []byte) {
	uid, ok := metadataOf(raw, "uid")
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
	s.signal()
}

// End makes the list the truth.
func (s *APISink) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		s.pods, s.next, s.synced = s.next, nil, true
	}
	s.signal()
}

// State says whether the API server is being followed; nil is yes.
func (s *APISink) State(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.next = nil
	}
	s.err = err
	s.signal()
}

// signal wakes the reader; the mutex is held.
func (s *APISink) signal() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// take copies what is known. synced is false before the first complete list; err is why it may be old.
func (s *APISink) take() (pods []*Pod, problems []string, synced bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		entry := s.pods[uid]
		problems = append(problems, entry.problems...)
		if entry.pod != nil {
			pods = append(pods, entry.pod)
		}
	}
	return pods, problems, s.synced, s.err
}

// metadataOf is a text of an object's metadata.
func metadataOf(raw []byte, key string) (string, bool) {
	field, ok := jsonscan.Field(raw, "metadata", key)
	if !ok {
		return "", false
	}
	return jsonscan.String(field)
}
