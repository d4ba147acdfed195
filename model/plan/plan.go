// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package plan holds desired settings: which knob of which target shall have which value, who wants it and why.
//
// Policies return plans; the adapters and kernel/apply consume them. A plan is a value: comparing, merging and printing
// it needs no machine. The package imports model/unit, api/protocol and the standard library only.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Level is the kind of thing a setting applies to.
type Level uint8

// The levels, outermost first: also the order in which growing values are written.
const (
	LevelNode Level = iota
	LevelGroup
	LevelQoS
	LevelPod
	LevelContainer
)

var levelNames = [...]string{"node", "group", "qos", "pod", "container"}

// String names the level.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "level(" + strconv.Itoa(int(l)) + ")"
}

// Target is what a setting applies to. Targets are comparable and can be map keys.
type Target struct {
	Level Level
	// Cgroup is the path below the cgroup root, with a leading slash, the same in every v1 hierarchy; for LevelGroup it
	// is the resctrl group's name ("" is the root group); empty for LevelNode.
	Cgroup string
	// Pod is the pod's UID, Container the container's id; empty above those levels.
	Pod       string
	Container string
	// Name is for people: "namespace/pod" or "namespace/pod/container".
	Name string
}

// String is "level name", or the cgroup where there is no name.
func (t Target) String() string {
	name := t.Name
	if name == "" {
		name = t.Cgroup
	}
	return strings.TrimSuffix(t.Level.String()+" "+name, " ")
}

// Value is an integer in the knob's unit or a text.
type Value struct {
	n    int64
	s    string
	text bool
}

// Int makes an integer value; -1 is "unlimited" where the knob has it.
func Int[T ~int64 | ~int](n T) Value { return Value{n: int64(n)} }

// Text makes a text value.
func Text(s string) Value { return Value{s: s, text: true} }

// IsText reports a text value.
func (v Value) IsText() bool { return v.text }

// Int returns the integer; 0 for a text.
func (v Value) Int() int64 { return v.n }

// String renders either kind.
func (v Value) String() string {
	if v.text {
		return v.s
	}
	return strconv.FormatInt(v.n, 10)
}

// Setting is one desired value.
type Setting struct {
	Target Target
	Knob   Knob
	// Key selects among the values of a keyed knob.
	Key   string
	Value Value
	Owner protocol.Feature
	// Reason is one short sentence for people; it names the cap when one has bound the value.
	Reason string
	// Only, of an OOM score, leaves the processes alone that have neither this one nor Value: they have set their own. Not set, all have Value.
	Only unit.Opt
	// Observe marks a value that is only recorded, not written (D14).
	Observe bool
	// Hook names the external hook server that wants the value; empty for ours. Owner is then the feature whose knob it
	// is.
	Hook string
}

// HookPrefix begins the name of an external hook server among owners.
const HookPrefix = "hook:"

// By is who wants the value: "hook:<name>" for a hook server's, else the feature's name.
func (s *Setting) By() string {
	if s.Hook != "" {
		return HookPrefix + s.Hook
	}
	return s.Owner.String()
}

// ID identifies what a setting sets; two settings with one ID in a plan are a conflict.
type ID struct {
	Target Target
	Knob   Knob
	Key    string
}

// InRuntime reports whether the runtime's own record of a container has the value, and can be told to have another.
func (i ID) InRuntime() bool { return i.Target.Level == LevelContainer && !i.Knob.OfProcesses() }

// ID of the setting.
func (s *Setting) ID() ID { return ID{s.Target, s.Knob, s.Key} }

// InResources reports whether the resources of a container have a field of its own that can say the setting, in NRI and in
// CRI, at creation and in updates: neither can say a memory limit of 0, or empty a cpuset.
func (s *Setting) InResources() bool {
	switch s.Knob {
	case CPUShares, CPUQuota, CPUPeriod:
		return true
	case MemoryLimit:
		return s.Value.Int() != 0
	case CPUSetCPUs, CPUSetMems:
		return s.Value.String() != ""
	}
	return false
}

// String is the line that goldens and people read: `container default/web/app cpu.shares = 512 (batch: reason)`.
func (s *Setting) String() string {
	var b strings.Builder
	b.WriteString(s.Target.String())
	b.WriteByte(' ')
	b.WriteString(s.Knob.String())
	if s.Key != "" {
		b.WriteString("[" + s.Key + "]")
	}
	b.WriteString(" = ")
	if s.Hook != "" && s.Knob == Env {
		b.WriteString("(hidden)") // ours are device lists; a hook server's may be a secret
	} else {
		b.WriteString(s.Value.String())
	}
	b.WriteString(" (" + s.By() + ": " + s.Reason + ")")
	if s.Observe {
		b.WriteString(" observe-only")
	}
	return b.String()
}

// Plan is a list of settings. Order carries no meaning until Sort.
type Plan []Setting

// ErrConflict is wrapped by Merge's errors.
var ErrConflict = errors.New("two owners for one knob")

// Merge joins plans. The same ID twice with one owner and one value is kept once; with two owners or two values it is
// a conflict: the first stays and the error names both.
func Merge(plans ...Plan) (Plan, error) {
	n := 0
	for _, p := range plans {
		n += len(p)
	}
	out := make(Plan, 0, n)
	var errs []error
	for _, p := range plans {
		for i := range p {
			s := &p[i]
			if prev := out.Find(s.Target, s.Knob, s.Key); prev != nil {
				if prev.Owner != s.Owner || prev.Hook != s.Hook || prev.Value != s.Value {
					errs = append(errs, fmt.Errorf("%w: %s of %s: %s wants %s, %s wants %s", ErrConflict, s.Knob, s.Target, prev.By(), prev.Value, s.By(), s.Value))
				}
				continue
			}
			out = append(out, *s)
		}
	}
	return out, errors.Join(errs...)
}

// Find returns the setting with this identity, or nil.
func (p Plan) Find(t Target, k Knob, key string) *Setting {
	for i := range p {
		if p[i].Knob == k && p[i].Key == key && p[i].Target == t {
			return &p[i]
		}
	}
	return nil
}

// Get returns the first setting of a knob at any target, or nil; for plans of one target.
func (p Plan) Get(k Knob) *Setting {
	for i := range p {
		if p[i].Knob == k {
			return &p[i]
		}
	}
	return nil
}

// Sort orders a plan outermost target first, then by name, knob and key.
func (p Plan) Sort() {
	slices.SortStableFunc(p, func(a, b Setting) int {
		return cmp.Or(cmp.Compare(a.Target.Level, b.Target.Level), cmp.Compare(a.Target.Name, b.Target.Name),
			cmp.Compare(a.Target.Cgroup, b.Target.Cgroup), cmp.Compare(a.Knob, b.Knob), cmp.Compare(a.Key, b.Key))
	})
}

// String prints one setting a line, sorted.
func (p Plan) String() string {
	sorted := slices.Clone(p)
	sorted.Sort()
	var b strings.Builder
	for i := range sorted {
		b.WriteString(sorted[i].String())
		b.WriteByte('\n')
	}
	return b.String()
}
