// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/shape"
)

// ErrFull: more pods have limits than there are numbers for classes.
var ErrFull = errors.New("no class is left for another pod with a limit")

// Sync brings the pods of a direction to what is wanted and returns how many changes that took. The shape must be in force. Pods
// share the leaf of their class, or the system's, unless they have a limit.
//
// An address that goes to another class is sent there before it is taken from the old one, and a class goes when nothing leads to
// it any more: no packet of a pod passes by its limit meanwhile.
func (Shaper) Sync(key string, pods []shape.Pod) (changes int, err error) {
	name, d, err := shape.ParseKey(key)
	if err != nil {
		return 0, err
	}
	err = with(func(c *conn) error {
		l, err := c.link(name)
		if err == nil && d == shape.Ingress {
			l, err = c.link(ifbName(l.index))
		}
		if err != nil {
			return err
		}
		s := &syncing{conn: c, index: l.index, d: d}
		err = s.run(pods)
		changes = s.changes
		return err
	})
	return changes, err
}

// syncing is one Sync in progress.
type syncing struct {
	*conn
	index   int
	d       shape.Direction
	changes int

	classes map[uint16]class
	filters []filter
	// leads are the filters' addresses with their classes.
	leads  map[lead]bool
	tables [len(families)]bool
	// used are the classes of pods that go on, by number.
	used map[uint16]bool
	next uint16
}

// lead is an address and the class that it leads to.
type lead struct {
	address netip.Addr
	minor   uint16
}

func (s *syncing) run(pods []shape.Pod) (err error) {
	if s.classes, err = s.conn.classes(s.index); err != nil {
		return err
	}
	if _, ok := s.classes[minorSystem]; !ok {
		return errors.New("the link is not shaped")
	}
	if s.filters, s.tables, err = s.conn.filters(s.index, s.d); err != nil {
		return err
	}
	s.learn()
	want, full := s.place(pods)
	if err := s.make(want); err != nil {
		return err
	}
	if err := s.drop(want); err != nil {
		return err
	}
	return errors.Join(s.turns(want), full)
}

func (s *syncing) learn() {
	s.leads = make(map[lead]bool, len(s.filters))
	for i := range s.filters {
		s.leads[lead{s.filters[i].address, s.filters[i].minor}] = true
	}
}

// placed is one pod with its class.
type placed struct {
	pod   *shape.Pod
	minor uint16
	class *class // nil for the leaf that it shares
}

// place gives every pod a class. One with a limit keeps the one that its first address leads to.
func (s *syncing) place(pods []shape.Pod) (out []placed, full error) {
	s.used, s.next = map[uint16]bool{}, minorPod
	now := make(map[netip.Addr]uint16, len(s.filters))
	for i := range s.filters {
		now[s.filters[i].address] = s.filters[i].minor
	}
	for i := range pods {
		p := &pods[i]
		parent := minorOf(p.Class)
		k, ok := s.classes[parent]
		if !ok || p.Class == shape.System {
			parent, k = minorSystem, s.classes[minorSystem]
		}
		if len(p.Addresses) == 0 {
			continue
		}
		if p.Limit <= 0 {
			m := parent
			if parent != minorSystem {
				m |= minorLeaf
			}
			out = append(out, placed{p, m, nil})
			continue
		}
		prio := k.prio
		if parent == minorSystem {
			parent = minorAll
		} else {
			prio = s.classes[parent|minorLeaf].prio
		}
		ceil := min(p.Limit.BytesPerSecond(), k.ceil)
		want := &class{parent: parent, rate: min(ceil, leafRate), ceil: ceil, prio: prio, quantum: quantum}
		if m := now[p.Addresses[0]]; m >= minorPod && !s.used[m] && s.classes[m].parent == parent {
			want.minor = m
			s.used[m] = true
		}
		out = append(out, placed{p, want.minor, want})
	}
	for i := range out {
		o := &out[i]
		if o.class == nil || o.minor != 0 {
			continue
		}
		if o.minor = s.free(); o.minor == 0 {
			full = fmt.Errorf("pod %s: %w", o.pod.Name, ErrFull)
			o.minor, o.class = s.shared(o.class.parent), nil
			continue
		}
		o.class.minor = o.minor
	}
	return out, full
}

// shared is the leaf below a class that pods without a limit use.
func (s *syncing) shared(parent uint16) uint16 {
	if parent == minorAll {
		return minorSystem
	}
	return parent | minorLeaf
}

// free is a number that no class has, 0 without one. Numbers of classes that are to go are not taken: filters still lead there.
func (s *syncing) free() uint16 {
	for ; s.next <= lastPod; s.next++ {
		if _, taken := s.classes[s.next]; !taken && !s.used[s.next] {
			s.used[s.next] = true
			return s.next
		}
	}
	return 0
}

// make adds what is missing.
func (s *syncing) make(want []placed) error {
	for i := range want {
		w := &want[i]
		if w.class != nil {
			k, ok := s.classes[w.minor]
			if !ok || !k.same(w.class, true) {
				if err := s.count(s.setClass(s.index, w.class)); err != nil {
					return err
				}
			}
			if !ok {
				if err := s.fair(s.index, w.minor); err != nil {
					return err
				}
			}
		}
		for _, a := range w.pod.Addresses {
			if err := s.table(familyOf(a)); err != nil {
				return err
			}
			if s.leads[lead{a, w.minor}] {
				continue
			}
			if err := s.count(s.addFilter(s.index, s.d, &filter{address: a, minor: w.minor})); err != nil {
				return err
			}
		}
	}
	return nil
}

// table makes a family's hash table where it is missing. One without the filter that leads to it is made again.
func (s *syncing) table(f *family) error {
	i := slices.IndexFunc(families[:], func(o family) bool { return o.proto == f.proto })
	if s.tables[i] {
		return nil
	}
	if err := s.clear(s.index, f); err != nil {
		return err
	}
	s.filters = slices.DeleteFunc(s.filters, func(o filter) bool { return familyOf(o.address) == f })
	s.learn()
	if err := s.addTable(s.index, f, s.d); err != nil {
		return err
	}
	s.tables[i] = true
	return nil
}

// turns gives the leaf that pods share a turn for each of them, so that one with a limit has no more than another.
func (s *syncing) turns(want []placed) error {
	pods := map[uint16]int{}
	for i := range want {
		if want[i].class == nil {
			pods[want[i].minor]++
		}
	}
	for _, name := range shape.Names() {
		m := minorOf(name)
		if m != minorSystem {
			m |= minorLeaf
		}
		k, ok := s.classes[m]
		turns := uint32(min(max(pods[m], 1), mostTurns)) //nolint:gosec // at most 20
		if m == minorSystem {
			turns = mostTurns // the node itself is there too
		}
		if !ok || k.quantum == turns*quantum {
			continue
		}
		k.quantum = turns * quantum
		if err := s.count(s.setClass(s.index, &k)); err != nil {
			return err
		}
	}
	return nil
}

// drop takes away what is not wanted: an address twice, one of a pod that has gone, and classes that nothing leads to.
func (s *syncing) drop(want []placed) error {
	wished := map[lead]bool{}
	for i := range want {
		for _, a := range want[i].pod.Addresses {
			wished[lead{a, want[i].minor}] = true
		}
	}
	for i := range s.filters {
		f := &s.filters[i]
		if w := (lead{f.address, f.minor}); wished[w] {
			delete(wished, w) // a second one with the same address goes
			continue
		}
		if err := s.count(s.removeFilter(s.index, f)); err != nil {
			return err
		}
	}
	for m := range s.classes {
		if m < minorPod || s.used[m] {
			continue
		}
		if err := s.count(s.removeClass(s.index, m)); err != nil && !is(err, unix.EBUSY) {
			return err
		}
	}
	return nil
}

// count counts a change that worked.
func (s *syncing) count(err error) error {
	if err == nil {
		s.changes++
	}
	return err
}

// total adds to a class what the kernel counts for its leaves only: what was dropped, and all of the system's pods that have limits.
func total(classes map[uint16]class, minor uint16, sum Count) Count {
	for m, k := range classes {
		switch {
		case k.parent == minor:
			sum.Dropped += k.sent.Dropped
		case minor == minorSystem && m >= minorPod && k.parent == minorAll:
			sum = Count{sum.Bytes + k.sent.Bytes, sum.Packets + k.sent.Packets, sum.Dropped + k.sent.Dropped}
		}
	}
	return sum
}

// Counts are what has gone through each class of a direction since it was made, by class.
func (Shaper) Counts(key string) (map[string]Count, error) {
	name, d, err := shape.ParseKey(key)
	if err != nil {
		return nil, err
	}
	out := map[string]Count{}
	err = with(func(c *conn) error {
		l, err := c.link(name)
		if err == nil && d == shape.Ingress {
			l, err = c.link(ifbName(l.index))
		}
		if err != nil {
			return err
		}
		classes, err := c.classes(l.index)
		for _, n := range shape.Names() {
			m := minorOf(n)
			if k, ok := classes[m]; ok {
				out[n] = total(classes, m, k.sent)
			}
		}
		return err
	})
	return out, err
}
