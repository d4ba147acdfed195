// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"strconv"
	"strings"
	"sync"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// InCreate reports whether a CreateContainerRequest carries the setting and the runtime applies it.
func InCreate(v *node.View, s *plan.Setting) bool {
	if s.Target.Level != plan.LevelContainer {
		return false
	}
	switch s.Knob {
	case plan.OOMScoreAdj:
		return v.Runtime.Fields.OOMScoreAdj
	case plan.CDIDevice:
		return v.Runtime.Fields.CDI
	case plan.Env:
		return true
	case plan.Mount:
		_, ok := mountOf(s)
		return ok
	case plan.Device:
		_, ok := deviceOf(v, s)
		return ok
	}
	return s.InResources() || v.InUnified(s.Knob)
}

// InUpdate reports whether an UpdateContainerResourcesRequest carries the setting and the runtime applies it.
func InUpdate(v *node.View, s *plan.Setting) bool {
	if s.Target.Level != plan.LevelContainer {
		return false
	}
	return s.InResources() || v.InUnified(s.Knob) && !dropsUnified(&v.Runtime)
}

// Create turns a container's plan into a change of its CreateContainerRequest and the settings that are left to write
// once the container exists: groups of resctrl, cookies, v1's burst and throttles, SCHED_IDLE. What the request already
// has is not repeated. patch is nil when nothing is to be changed; then the request goes on byte for byte. The mark goes
// with the change, as an annotation.
func Create(v *node.View, p plan.Plan, r *CreateContainer, c *workload.Container, by mark.By) (patch *ContainerPatch, rest plan.Plan) {
	keeps := func(s *plan.Setting) bool { return InCreate(v, s) }
	b := builder{v: v, was: r.Resources}
	idle := mark.Idle(p, keeps)
	rest = b.all(p, r.Resources.Base(), keeps, idle)
	if idle && r.Resources.Shares != 0 {
		b.out.Resources.Shares = unit.Some(0)
	}
	if text := markText(by, p, &c.Base, keeps); text != "" {
		b.out.Annotations = []Pair{{protocol.AnnotationApplied, text}}
	} else if !b.changed {
		return nil, rest
	}
	return &b.out, rest
}

// Update turns a plan that was decided with the request already in c.Base into a change of the request, and the settings
// that the request cannot carry. Runtimes do not keep the annotations of an update; the mark in them is for a runtime
// or a hook server that reads them. patch is nil when the request goes on byte for byte.
//
// Before a quota falls below the burst that stands in the kernel, the caller lowers the burst: the kernel refuses such a
// quota.
func Update(v *node.View, p plan.Plan, r *UpdateContainer, c *workload.Container, by mark.By) (patch *UpdatePatch, rest plan.Plan) {
	keeps := func(s *plan.Setting) bool { return InUpdate(v, s) }
	b := builder{v: v, was: r.Resources}
	idle := mark.Idle(p, keeps)
	rest = b.all(p, r.Stated(), keeps, idle)
	if idle && r.Resources.Shares != 0 {
		b.out.Resources.Shares, b.changed = unit.Some(0), true
	}
	if !b.changed {
		return nil, rest
	}
	patch = &UpdatePatch{Resources: b.out.Resources}
	if text := markText(by, p, &c.Base, keeps); text != "" {
		patch.Annotations = []Pair{{protocol.AnnotationApplied, text}}
	}
	return patch, rest
}

// writers are the buffers of marks.
var writers = sync.Pool{New: func() any { return new(mark.Writer) }}

func markText(by mark.By, p plan.Plan, base *workload.Resources, keeps func(*plan.Setting) bool) string {
	w := writers.Get().(*mark.Writer)
	defer writers.Put(w)
	return w.Text(by, p, base, keeps)
}

// builder collects a request's changes.
type builder struct {
	v       *node.View
	was     Resources
	out     ContainerPatch
	changed bool
}

// all puts every setting that fits and returns the others. Shares of a group with cpu.idle are left out: runc writes
// cpu.weight before or after cpu.idle, and it is refused while cpu.idle is 1.
func (b *builder) all(p plan.Plan, req workload.Resources, keeps func(*plan.Setting) bool, idle bool) (rest plan.Plan) {
	left := len(p)
	for i := range p {
		s := &p[i]
		switch {
		case s.Observe || !keeps(s):
		case s.Knob == plan.CPUShares && idle || mark.Holds(&req, s) || b.put(s):
			left--
			continue
		}
		if rest == nil {
			rest = make(plan.Plan, 0, left)
		}
		rest = append(rest, *s)
	}
	return rest
}

// put changes one field. It is false for a value that CRI cannot carry.
func (b *builder) put(s *plan.Setting) bool {
	r, n := &b.out.Resources, s.Value.Int()
	switch s.Knob {
	case plan.CPUShares:
		r.Shares = unit.Some(max(n, 0))
	case plan.CPUQuota:
		r.Quota = unit.Some(n)
	case plan.CPUPeriod:
		r.Period = unit.Some(n)
	case plan.CPUSetCPUs:
		r.CPUs = s.Value.String()
	case plan.CPUSetMems:
		r.Mems = s.Value.String()
	case plan.MemoryLimit:
		r.Memory, r.Swap = unit.Some(n), swapFor(&b.was, n)
	case plan.OOMScoreAdj:
		r.OOMScoreAdj = unit.Some(n)
	default:
		if !b.putOther(s) {
			return false
		}
	}
	b.changed = true
	return true
}

func (b *builder) putOther(s *plan.Setting) bool {
	switch s.Knob {
	case plan.Env:
		b.out.Envs = append(b.out.Envs, Pair{s.Key, s.Value.String()})
	case plan.CDIDevice:
		name := s.Value.String()
		if name == "" {
			name = s.Key
		}
		b.out.CDIDevices = append(b.out.CDIDevices, name)
	case plan.Mount:
		m, ok := mountOf(s)
		if !ok {
			return false
		}
		b.out.Mounts = append(b.out.Mounts, m)
	case plan.Device:
		d, ok := deviceOf(b.v, s)
		if !ok {
			return false
		}
		b.out.Devices = append(b.out.Devices, d)
	default:
		key, value, ok := plan.Unified(*s)
		if !ok {
			return false
		}
		b.out.Resources.Unified = append(b.out.Resources.Unified, Pair{key, value})
	}
	return true
}

// swapFor keeps the swap that the request allows beside a new memory limit: CRI's value is the sum, and runc refuses a
// sum below the limit. A request that states none leaves it to the runtime, which takes the limit itself.
func swapFor(was *Resources, limit int64) unit.Opt {
	switch {
	case was.Swap == 0 || was.Swap == unit.Unlimited:
		return unit.Opt{}
	case limit == unit.Unlimited:
		return unit.Some(unit.Unlimited)
	case was.Memory > 0 && was.Swap > was.Memory:
		return unit.Some(limit + was.Swap - was.Memory)
	}
	return unit.Some(limit)
}

// deviceOf finds the host's node of "TYPE MAJOR:MINOR ACCESS": CRI names devices by path, not by number.
func deviceOf(v *node.View, s *plan.Setting) (Device, bool) {
	kind, rest, _ := strings.Cut(s.Value.String(), " ")
	numbers, access, _ := strings.Cut(rest, " ")
	major, minor, ok := strings.Cut(numbers, ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || kind != "c" || s.Key == "" || err1 != nil || err2 != nil {
		return Device{}, false
	}
	if access == "" {
		access = "rwm"
	}
	for i := range v.Kernel.Devices {
		if d := &v.Kernel.Devices[i]; d.Major == int64(ma) && d.MinorNumber == int64(mi) && d.Path != "" {
			return Device{Path: s.Key, Host: d.Path, Permissions: access}, true
		}
	}
	return Device{}, false
}

// mountOf reads "SOURCE OPTION[,OPTION…]" of a bind mount. CRI knows ro and the propagation; the rest is refused.
func mountOf(s *plan.Setting) (Mount, bool) {
	source, options, _ := strings.Cut(s.Value.String(), " ")
	m := Mount{Path: s.Key, Host: source}
	if source == "" || s.Key == "" {
		return m, false
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "", "bind", "rbind", "rw", "private", "rprivate":
		case "ro":
			m.ReadOnly = true
		case "slave", "rslave":
			m.Propagation = 1
		case "shared", "rshared":
			m.Propagation = 2
		default:
			return m, false
		}
	}
	return m, true
}
