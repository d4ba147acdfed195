// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// InSpec reports whether the runtime would keep the setting in the container's OCI spec, so that it is applied before
// the process exists and again at every update.
func InSpec(v *node.View, s *plan.Setting) bool {
	if s.Target.Level != plan.LevelContainer {
		return false
	}
	switch s.Knob {
	case plan.OOMScoreAdj:
		return v.Runtime.Fields.OOMScoreAdj
	case plan.RDTClass:
		return v.Runtime.Fields.RDTClass
	case plan.SchedPolicy:
		return v.Runtime.Fields.Scheduler
	case plan.CDIDevice:
		return v.Runtime.Fields.CDI
	case plan.Env, plan.Mount, plan.Device:
		return true
	}
	return s.InResources() || v.InUnified(s.Knob)
}

// Adjust turns a container's plan into the reply of CreateContainer and the settings that are left to write once the
// container exists. Values that already stand in the request are not repeated: claiming a field that another plugin
// has set fails the creation. adj is nil when nothing is to be changed, so that the container's spec stays byte for
// byte. version is that of this program, for the annotation.
//
// A group with cpu.idle gets shares 0, which runc reads as "do not write cpu.weight": writing it is EINVAL while
// cpu.idle is 1.
func Adjust(v *node.View, p plan.Plan, c *workload.Container, version string) (adj *api.ContainerAdjustment, rest plan.Plan) {
	var b builder
	keeps := func(s *plan.Setting) bool { return InSpec(v, s) }
	idle := mark.Idle(p, keeps)
	left := len(p)
	for i := range p {
		s := &p[i]
		switch {
		case s.Observe || !InSpec(v, s):
		case s.Knob == plan.CPUShares && idle || mark.Holds(&c.Base, s) || b.put(s):
			left--
			continue
		}
		if rest == nil {
			rest = make(plan.Plan, 0, left)
		}
		rest = append(rest, *s)
	}
	if idle {
		b.open().SetLinuxCPUShares(0)
	}
	w := writers.Get().(*mark.Writer)
	defer writers.Put(w)
	if text := w.Text(by(v, version), p, &c.Base, keeps); text != "" {
		b.open().AddAnnotation(protocol.AnnotationApplied, text)
	}
	return b.adj, rest
}

// Program is the name of koord-nri in marks.
const Program = "koord-nri"

// writers keep the buffers of annotations: one stands in the reply to every CreateContainer.
var writers = sync.Pool{New: func() any { return &mark.Writer{} }}

func by(v *node.View, version string) mark.By {
	return mark.By{Generation: v.Generation, Program: Program, Version: version}
}

// Mark says what the plan changes on a container and what stood there before: the annotation's content, nil when
// nothing changes.
func Mark(v *node.View, p plan.Plan, c *workload.Container, version string) *protocol.Applied {
	return mark.Of(by(v, version), p, &c.Base, func(s *plan.Setting) bool { return InSpec(v, s) })
}

// builder makes the adjustment on first use.
type builder struct{ adj *api.ContainerAdjustment }

func (b *builder) open() *api.ContainerAdjustment {
	if b.adj == nil {
		b.adj = &api.ContainerAdjustment{}
	}
	return b.adj
}

// put sets one field. It is false for a value that NRI cannot carry.
func (b *builder) put(s *plan.Setting) bool {
	a := b.open()
	n := s.Value.Int()
	switch s.Knob {
	case plan.CPUShares:
		a.SetLinuxCPUShares(uint64(max(n, 0)))
	case plan.CPUQuota:
		a.SetLinuxCPUQuota(n)
	case plan.CPUPeriod:
		a.SetLinuxCPUPeriod(n)
	case plan.CPUSetCPUs:
		a.SetLinuxCPUSetCPUs(s.Value.String())
	case plan.CPUSetMems:
		a.SetLinuxCPUSetMems(s.Value.String())
	case plan.MemoryLimit:
		a.SetLinuxMemoryLimit(n)
	case plan.OOMScoreAdj:
		score := int(n)
		a.SetLinuxOomScoreAdj(&score)
	case plan.RDTClass:
		a.SetLinuxRDTClass(s.Value.String())
	case plan.SchedPolicy:
		return putScheduler(a, n)
	case plan.CDIDevice:
		a.AddCDIDevice(&api.CDIDevice{Name: cdiName(s)})
	case plan.Env:
		a.AddEnv(s.Key, s.Value.String())
	case plan.Mount:
		return putMount(a, s)
	case plan.Device:
		return putDevice(a, s)
	default:
		key, value, ok := plan.Unified(*s)
		if ok {
			a.AddLinuxUnified(key, value)
		}
		return ok
	}
	return true
}

// cdiName is the qualified name, which a keyed setting carries as its key.
func cdiName(s *plan.Setting) string {
	if v := s.Value.String(); v != "" {
		return v
	}
	return s.Key
}

// schedPolicies are the fair policies by SCHED_* number (include/uapi/linux/sched.h).
var schedPolicies = map[int64]api.LinuxSchedulerPolicy{
	0: api.LinuxSchedulerPolicy_SCHED_OTHER,
	3: api.LinuxSchedulerPolicy_SCHED_BATCH,
	5: api.LinuxSchedulerPolicy_SCHED_IDLE,
}

func putScheduler(a *api.ContainerAdjustment, policy int64) bool {
	p, ok := schedPolicies[policy]
	if ok {
		a.SetLinuxScheduler(&api.LinuxScheduler{Policy: p})
	}
	return ok
}
