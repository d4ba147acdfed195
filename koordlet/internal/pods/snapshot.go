// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/model/node"
)

// Snapshot is who was here at one moment. It never changes, and pods that did not change are the same values in the next
// one.
type Snapshot struct {
	// Generation grows when anything differs; 0 is the one before the first answer.
	Generation uint64
	// At is when the newest part of it was learned.
	At time.Time
	// Pods in the order of namespace, name, UID.
	Pods []*Pod

	byUID       map[string]*Pod
	byContainer map[string]place
}

// place is where a container stands.
type place struct {
	pod   *Pod
	index int
}

// newSnapshot sorts and indexes; pods is kept. Of two pods with one UID (a static pod and its mirror) the later one counts.
func newSnapshot(generation uint64, at time.Time, pods []*Pod) *Snapshot {
	slices.SortStableFunc(pods, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	s := &Snapshot{Generation: generation, At: at, byUID: make(map[string]*Pod, len(pods)), byContainer: map[string]place{}}
	for _, p := range pods {
		s.byUID[p.UID] = p
	}
	s.Pods = slices.DeleteFunc(pods, func(p *Pod) bool { return s.byUID[p.UID] != p })
	for _, p := range s.Pods {
		for i := range p.Containers {
			if id := p.Containers[i].ID; id != "" {
				s.byContainer[id] = place{p, i}
			}
		}
	}
	return s
}

// Pod finds a pod by the UID of its cgroup.
func (s *Snapshot) Pod(uid string) (*Pod, bool) {
	p, ok := s.byUID[uid]
	return p, ok
}

// Container finds a container by the runtime's id, without its scheme.
func (s *Snapshot) Container(id string) (*Pod, *Container, bool) {
	at, ok := s.byContainer[id]
	if !ok {
		return nil, nil, false
	}
	return at.pod, &at.pod.Containers[at.index], true
}

// Specs is the pod cache for the handoff, without pods that have finished.
func (s *Snapshot) Specs() map[string]node.PodSpec {
	out := make(map[string]node.PodSpec, len(s.Pods))
	for _, p := range s.Pods {
		if !p.Finished() {
			out[p.UID] = p.Spec()
		}
	}
	return out
}

// same reports that both hold the same values.
func (s *Snapshot) same(pods []*Pod) bool {
	return slices.EqualFunc(s.Pods, pods, func(a, b *Pod) bool { return a == b || reflect.DeepEqual(a, b) })
}

// reuse replaces pods that are equal to what the snapshot holds by the snapshot's.
func (s *Snapshot) reuse(pods []*Pod) {
	for i, p := range pods {
		if old, ok := s.byUID[p.UID]; ok && old != p && reflect.DeepEqual(old, p) {
			pods[i] = old
		}
	}
}
