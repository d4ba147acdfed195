// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"errors"
	"fmt"
	"os"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// elsewhere decides the knobs that are no cgroup files.
func (p *prober) elsewhere(k plan.Knob) node.Support {
	switch k {
	case plan.SchedPolicy:
		// faa42d29419d changed what a wakeup compares.
		if p.k.AtLeast(6, 12) {
			return node.Support{OK: true, Degraded: "since Linux 6.12 SCHED_IDLE only counts among the tasks of one cgroup"}
		}
		return node.Support{OK: true}
	case plan.RDTClass, plan.RDTSchemata:
		if p.k.RDT.Mounted && (p.k.RDT.L3 || p.k.RDT.MB) {
			return node.Support{OK: true}
		}
		return node.Support{Why: p.k.RDT.Why}
	case plan.RDTMonGroup:
		if p.k.RDT.Mon {
			return node.Support{OK: true}
		}
		if p.k.RDT.Why != "" {
			return node.Support{Why: p.k.RDT.Why}
		}
		return node.Support{Why: "resctrl has no L3_MON: the hardware does not count"}
	case plan.CoreSchedCookie:
		return p.coreSched()
	}
	if cgroup.OfNode(k) {
		return p.parameter(k)
	}
	// Fields of the container's specification are the runtime's doing, whatever the kernel; of links' queues the attempt will tell.
	return node.Support{OK: true}
}

func (p *prober) coreSched() node.Support {
	err := proc.CoreSchedSupported()
	var unsupported *proc.UnsupportedError
	switch {
	case err == nil:
		return node.Support{OK: true}
	case errors.As(err, &unsupported):
		return node.Support{Why: unsupported.Why}
	}
	p.errs = append(p.errs, fmt.Errorf("probe core scheduling: %w: %w", ErrInconclusive, err))
	return node.Support{Why: "not probed: " + err.Error()}
}

// rootFile decides a knob of the root cgroup by its file. What the kernel takes for which disk only a write tells.
func (p *prober) rootFile(f cgroup.File) node.Support {
	name, since := f.V2, f.SinceV2
	if p.fs.Version() == node.CgroupV1 {
		name, since = f.V1, f.SinceV1
	}
	_, err := p.fs.Lines(f.Knob)
	switch {
	case err == nil:
		return node.Support{OK: true}
	case errors.Is(err, os.ErrNotExist):
		return node.Support{Why: absence(name, since, p.k)}
	}
	return node.Support{Why: "no " + name + ": " + err.Error()}
}

// parameter decides a knob of the whole node by its file.
func (p *prober) parameter(k plan.Knob) node.Support {
	if _, err := p.fs.Read(plan.ID{Target: plan.Target{Level: plan.LevelNode}, Knob: k}); err != nil {
		return node.Support{Why: "no " + k.String() + ": " + err.Error()}
	}
	return node.Support{OK: true}
}
