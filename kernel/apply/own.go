// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// own is what we have written to one knob of a cgroup, and have not given back.
type own struct {
	knob plan.Knob
	key  string
	// value is the last, older are others: the first, and the newest before the last. systemd may bring one back, which is nobody
	// else's. Those that gave back what stood before us are left out: that is theirs when they set it again.
	value plan.Value
	older []plan.Value
	// original is what stood before us, or what they have set since; known is false where no record tells it.
	original plan.Value
	known    bool
}

// maxOlder bounds the older values. A restore believes what is recorded as theirs, so that compaction need not keep all that we have
// written.
const maxOlder = 8

// keepOwn keeps a value that was written over what was found; theirs says that somebody else had set that.
func (a *Applier) keepOwn(t *target, s plan.Setting, found plan.Value, theirs bool) {
	i := t.ownAt(s)
	if i < 0 {
		t.own = append(t.own, own{knob: s.Knob, key: strings.Clone(s.Key), value: s.Value, original: found, known: true})
		return
	}
	o := &t.own[i]
	if o.value != s.Value && !s.Knob.OfProcesses() {
		a.age(o, s)
	}
	o.value = s.Value
	if theirs {
		o.original, o.known = found, true
	}
}

// age puts the last value among the older ones, before another is written.
func (a *Applier) age(o *own, s plan.Setting) {
	was := s
	was.Value = o.value
	if o.known && a.same(was, o.original) {
		return
	}
	for i, v := range o.older {
		if was.Value = v; a.same(was, o.value) {
			if i > 0 {
				o.older = append(slices.Delete(o.older, i, i+1), o.value)
			}
			return
		}
	}
	if len(o.older) == maxOlder {
		o.older = slices.Delete(o.older, 1, 2)
	}
	o.older = append(o.older, o.value)
}

// recallOwn is keepOwn for what the ledger tells of a knob whose last value is known.
func (a *Applier) recallOwn(t *target, s plan.Setting, h *history, originals map[string]string) {
	o := own{knob: s.Knob, key: strings.Clone(s.Key)}
	if text, ok := h.original(originals, h.file(a)); ok && !s.Knob.OfProcesses() {
		v, err := a.textOf(h, text)
		o.original, o.known = v, err == nil
	}
	keep := func(r *journal.Record) {
		if v, err := a.valueIn(h, r); err == nil && !slices.Contains(o.older, v) {
			o.older = append(o.older, v)
		}
	}
	if h.first != nil {
		keep(h.first)
	}
	for _, w := range h.recent {
		if !w.back {
			keep(w.Record)
		}
	}
	o.value = s.Value
	if i := t.ownAt(s); i >= 0 {
		t.own[i] = o
		return
	}
	t.own = append(t.own, o)
}

// hasWritten reports whether a value that stands is one of ours.
func (a *Applier) hasWritten(o *own, s plan.Setting, current plan.Value) bool {
	if s.Value = o.value; a.same(s, current) {
		return true
	}
	for _, v := range o.older {
		if s.Value = v; a.same(s, current) {
			return true
		}
	}
	return false
}

// same reports whether a value that stands is a setting's, as far as the kernel can hold it.
func (a *Applier) same(s plan.Setting, current plan.Value) bool {
	switch {
	case s.Knob == plan.RDTSchemata:
		return sameDomains(s.Key, s.Value.String(), current.String()) // a setting may name fewer domains than there are
	case !isCgroupKnob(s.Knob):
		return s.Value == current
	}
	return a.o.FS.Same(s, current)
}

// Found reports whether what a record has found is a value that was wanted of its knob, as far as the kernel can hold it.
func (a *Applier) Found(r *journal.Record, want string) bool {
	id, ok := r.ID()
	if !ok {
		return false
	}
	value, err := valueOf(id.Knob, want)
	found, err2 := valueOf(id.Knob, r.Found)
	return err == nil && err2 == nil && a.same(plan.Setting{Target: id.Target, Knob: id.Knob, Key: id.Key, Value: value}, found)
}

// theirs reports whether what is about to be written over was written by somebody else since our last write: the kubelet
// after a resize, an administrator. A weight that the kernel has changed beside cpu.idle is nobody's.
func (a *Applier) theirs(t *target, s plan.Setting, current plan.Value) bool {
	switch {
	case isLinkKnob(s.Knob):
		return theirLink(t, s, current.String())
	case s.Knob.OfProcesses():
		return false // each process has an original of its own
	}
	i := t.ownAt(s)
	if i < 0 || s.Knob == plan.CPUShares && t.ownAt(plan.Setting{Knob: plan.CPUIdle}) >= 0 {
		return false
	}
	return !a.hasWritten(&t.own[i], s, current)
}

// Last is what this process has written last to a knob of a cgroup, and has not given back. It is read from memory and waits for
// nobody: false where nothing was written, or while somebody writes to the cgroup.
func (a *Applier) Last(id plan.ID) (plan.Value, bool) {
	a.mu.Lock()
	t := a.targets[keyOf(id.Target)]
	a.mu.Unlock()
	if t == nil || !t.mu.TryLock() {
		return plan.Value{}, false
	}
	defer t.mu.Unlock()
	if t.dead {
		return plan.Value{}, false
	}
	return t.lastOwn(plan.Setting{Knob: id.Knob, Key: id.Key})
}

// lastOwn is what we have written last to the knob of a setting, and have not given back.
func (t *target) lastOwn(s plan.Setting) (plan.Value, bool) {
	if i := t.ownAt(s); i >= 0 {
		return t.own[i].value, true
	}
	return plan.Value{}, false
}

// disown forgets what was given back.
func (t *target) disown(s plan.Setting) {
	if i := t.ownAt(s); i >= 0 {
		t.own = slices.Delete(t.own, i, i+1)
	}
}

func (t *target) ownAt(s plan.Setting) int {
	return slices.IndexFunc(t.own, func(o own) bool { return o.knob == s.Knob && o.key == s.Key })
}
