// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package v2 is the rendering of knobs on cgroup v2: one directory per cgroup, every controller's files in it.
//
// Input is a setting, output a file's name and the text to write, or the value that a file's text means. It does no IO
// and imports model/*, kernel/cgroup/format and the standard library only.
package v2

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/cgroup/format"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// ErrNeedsCurrent says that a text can only be rendered with the file's present content at hand.
var ErrNeedsCurrent = errors.New("cpu.max takes the quota with the period: current content needed")

// Hierarchy is the unified hierarchy at one mount.
type Hierarchy struct{ Root string }

// File is the knob's file in the cgroup's directory; "" when v2 has none.
func (Hierarchy) File(k plan.Knob) string {
	switch k {
	case plan.CPUShares:
		return "cpu.weight"
	case plan.CPUQuota, plan.CPUPeriod:
		return "cpu.max"
	case plan.CPUSetCPUs:
		return "cpuset.cpus"
	case plan.CPUSetMems:
		return "cpuset.mems"
	case plan.MemoryLimit:
		return "memory.max"
	case plan.IOCostQoS:
		return "io.cost.qos"
	case plan.IOCostModel:
		return "io.cost.model"
	default:
		return k.UnifiedKey()
	}
}

// Base is the directory below which the knob's cgroups lie.
func (h Hierarchy) Base(plan.Knob) string { return h.Root }

// ProcsBase is the directory below which cgroup.procs is read.
func (h Hierarchy) ProcsBase() string { return h.Root }

// UsageFile is the memory in use.
func (Hierarchy) UsageFile() string { return "memory.current" }

// Companion names a file that must move together with the knob's own; v2 has none.
func (Hierarchy) Companion(plan.Knob) string { return "" }

// Nested reports whether a child's value may not exceed its parent's. On v2 the kernel takes the smaller one.
func (Hierarchy) Nested(plan.Knob) bool { return false }

// Render is the text to write. current is the file's present content, needed by cpu.max's period only.
func (Hierarchy) Render(s plan.Setting, w unit.WeightFormula, current []byte) (string, error) {
	n := s.Value.Int()
	switch s.Knob {
	case plan.CPUShares:
		return strconv.FormatInt(int64(w.Weight(unit.Shares(n))), 10), nil
	case plan.CPUQuota, plan.MemoryLimit:
		// "$MAX" alone leaves cpu.max's period as it is.
		return limit(n), nil
	case plan.CPUPeriod:
		q := format.Word(current, 0)
		if q == nil {
			return "", ErrNeedsCurrent
		}
		return string(q) + " " + strconv.FormatInt(n, 10), nil
	case plan.CPUSetCPUs, plan.CPUSetMems:
		// write(2) of nothing does not reach the kernel's parser; an empty line clears the list.
		if s.Value.String() == "" {
			return "\n", nil
		}
		return s.Value.String(), nil
	case plan.IOCostQoS, plan.IOCostModel:
		return format.CostLine(s)
	}
	_, text, ok := plan.Unified(s)
	if !ok {
		return "", fmt.Errorf("%s[%s] = %s has no cgroup v2 form", s.Knob, s.Key, s.Value)
	}
	return text, nil
}

func limit(n int64) string {
	if n == unit.Unlimited {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// Parse is the value that a file's content means, in the knob's unit. A cpu.weight becomes the smallest shares that the
// formula turns into it; while cpu.idle is 1 it reads 0, since Linux 6.12 1. Documentation/admin-guide/cgroup-v2.rst.
func (Hierarchy) Parse(k plan.Knob, key string, raw []byte, w unit.WeightFormula) (plan.Value, error) {
	switch k {
	case plan.CPUShares:
		n, err := format.Int(raw)
		return plan.Int(format.SharesOf(unit.Weight(n), w)), err
	case plan.CPUQuota:
		return format.Value(format.Int(format.Word(raw, 0)))
	case plan.CPUPeriod:
		if format.Word(raw, 1) == nil {
			return plan.Value{}, fmt.Errorf("%w: no period in %.64q", format.ErrFormat, raw)
		}
		return format.Value(format.Int(format.Word(raw, 1)))
	case plan.CPUSetCPUs, plan.CPUSetMems:
		return plan.Text(string(raw)), nil
	case plan.IOReadBPS, plan.IOWriteBPS, plan.IOReadIOPS, plan.IOWriteIOPS:
		return format.Value(format.IOMax(raw, key, k.IOMaxField()))
	case plan.IOWeight:
		return format.Value(format.Weights(raw, key))
	case plan.IOLatency:
		return format.Value(format.Latency(raw, key))
	case plan.IOCostQoS, plan.IOCostModel:
		return format.Cost(raw, k, key), nil
	default:
		return format.Value(format.Int(raw))
	}
}
