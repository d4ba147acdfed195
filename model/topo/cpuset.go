// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package topo

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPU is the largest CPU id accepted anywhere (NR_CPUS is 8192 in the largest kernel configuration).
const MaxCPU = 8191

// ErrCPUList is wrapped by every error of ParseCPUSet.
var ErrCPUList = errors.New("not a CPU list")

// CPUSet is an immutable set of CPU (or NUMA node) ids. The zero value is empty. It is a bit mask rather than a map:
// it is built in the hot path, and a hostile "0-4294967295" must not allocate.
type CPUSet struct{ words []uint64 }

// CPUs returns the set of the given ids; ids outside 0..MaxCPU are dropped.
func CPUs(ids ...int) CPUSet {
	var s CPUSet
	for _, id := range ids {
		s.add(id)
	}
	return s
}

// Range returns the set lo..hi.
func Range(lo, hi int) CPUSet {
	var s CPUSet
	s.addRange(lo, hi)
	return s
}

func (s *CPUSet) add(id int) { s.addRange(id, id) }

// addRange sets whole words, not each id: a file of thousands of lists that each say "0-8191" must not cost millions of steps.
func (s *CPUSet) addRange(lo, hi int) {
	lo, hi = max(lo, 0), min(hi, MaxCPU)
	if lo > hi {
		return
	}
	if missing := hi/64 + 1 - len(s.words); missing > 0 {
		s.words = append(s.words, make([]uint64, missing)...)
	}
	const all = ^uint64(0)
	for w := lo / 64; w <= hi/64; w++ {
		mask := all
		if w == lo/64 {
			mask &= all << (lo % 64)
		}
		if w == hi/64 {
			mask &= all >> (63 - hi%64)
		}
		s.words[w] |= mask
	}
}

// ParseCPUSet reads the kernel's list format ("0-3,8", cpuset(7)). Empty is the empty set; strides are not accepted.
// Parts may overlap, but no list names more CPUs than there are ids, or "0-8191,0-8191,…" would be added for a long time.
func ParseCPUSet(list string) (CPUSet, error) {
	var s CPUSet
	cpus := 0
	list = strings.TrimSpace(list)
	for list != "" {
		part, rest, more := strings.Cut(list, ",")
		lo, hi, err := parseRange(part)
		if err != nil {
			return CPUSet{}, err
		}
		if cpus += hi - lo + 1; cpus > MaxCPU+1 {
			return CPUSet{}, fmt.Errorf("%w: names more than %d CPUs", ErrCPUList, MaxCPU+1)
		}
		s.addRange(lo, hi)
		if more && rest == "" {
			return CPUSet{}, fmt.Errorf("%w: ends with a comma", ErrCPUList)
		}
		list = rest
	}
	return s, nil
}

func parseRange(part string) (lo, hi int, err error) {
	first, last, isRange := strings.Cut(part, "-")
	if lo, err = parseID(first); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return lo, lo, nil
	}
	if hi, err = parseID(last); err != nil {
		return 0, 0, err
	}
	if hi < lo {
		return 0, 0, fmt.Errorf("%w: %d-%d runs backwards", ErrCPUList, lo, hi)
	}
	return lo, hi, nil
}

func parseID(s string) (int, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err != nil || id > MaxCPU {
		if len(s) > 20 {
			s = s[:20] + "…"
		}
		return 0, fmt.Errorf("%w: %q is no id between 0 and %d", ErrCPUList, s, MaxCPU)
	}
	return int(id), nil
}

// String renders the kernel's list format; the empty set is "".
func (s CPUSet) String() string {
	var buf [96]byte
	b := buf[:0]
	for id := s.next(0); id >= 0; {
		end := id
		for s.Has(end + 1) {
			end++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
		if end > id {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(end), 10)
		}
		id = s.next(end + 1)
	}
	return string(b)
}

// next returns the first member ≥ id, or -1.
func (s CPUSet) next(id int) int {
	for w := id / 64; w < len(s.words); w++ {
		word := s.words[w]
		if w == id/64 {
			word &= ^uint64(0) << (id % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// List returns the members in ascending order.
func (s CPUSet) List() []int {
	ids := make([]int, 0, s.Len())
	for id := s.next(0); id >= 0; id = s.next(id + 1) {
		ids = append(ids, id)
	}
	return ids
}

// Has reports membership.
func (s CPUSet) Has(id int) bool {
	return id >= 0 && id/64 < len(s.words) && s.words[id/64]&(1<<(id%64)) != 0
}

// Len is the number of members.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether the set has no member.
func (s CPUSet) Empty() bool { return s.next(0) < 0 }

// Equal reports equality of members.
func (s CPUSet) Equal(o CPUSet) bool { return s.SubsetOf(o) && o.SubsetOf(s) }

// SubsetOf reports whether every member of s is in o.
func (s CPUSet) SubsetOf(o CPUSet) bool {
	for i, w := range s.words {
		if w&^o.word(i) != 0 {
			return false
		}
	}
	return true
}

// Overlaps reports whether the sets share a member.
func (s CPUSet) Overlaps(o CPUSet) bool {
	for i, w := range s.words {
		if w&o.word(i) != 0 {
			return true
		}
	}
	return false
}

// Union returns s ∪ o. Like the two below it allocates only where the result is neither of the two.
func (s CPUSet) Union(o CPUSet) CPUSet {
	switch {
	case o.SubsetOf(s):
		return s
	case s.SubsetOf(o):
		return o
	}
	return s.combine(o, func(a, b uint64) uint64 { return a | b })
}

// Minus returns s \ o.
func (s CPUSet) Minus(o CPUSet) CPUSet {
	if !s.Overlaps(o) {
		return s
	}
	return s.combine(o, func(a, b uint64) uint64 { return a &^ b })
}

// MinusAll returns s without the members of any of the others, with one allocation.
func (s CPUSet) MinusAll(others ...CPUSet) CPUSet {
	out := make([]uint64, len(s.words))
	for i, w := range s.words {
		for _, o := range others {
			w &^= o.word(i)
		}
		out[i] = w
	}
	return CPUSet{words: out}
}

// Intersect returns s ∩ o.
func (s CPUSet) Intersect(o CPUSet) CPUSet {
	switch {
	case s.SubsetOf(o):
		return s
	case o.SubsetOf(s):
		return o
	}
	return s.combine(o, func(a, b uint64) uint64 { return a & b })
}

func (s CPUSet) word(i int) uint64 {
	if i < len(s.words) {
		return s.words[i]
	}
	return 0
}

func (s CPUSet) combine(o CPUSet, op func(a, b uint64) uint64) CPUSet {
	out := make([]uint64, max(len(s.words), len(o.words)))
	for i := range out {
		out[i] = op(s.word(i), o.word(i))
	}
	return CPUSet{words: out}
}

// MarshalText renders the list format, so that JSON and YAML carry "0-3".
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the list format.
func (s *CPUSet) UnmarshalText(b []byte) error {
	v, err := ParseCPUSet(string(b))
	if err != nil {
		return err
	}
	*s = v
	return nil
}
