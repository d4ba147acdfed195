// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Property is a unit property with the Go type that its D-Bus signature has: uint64 ("t") or []byte ("ay").
type Property struct {
	Name  string
	Value any
}

// infinity is systemd's "no limit" for weights, sizes and times (UINT64_MAX; org.freedesktop.systemd1(5)).
const infinity = uint64(math.MaxUint64)

// weightIdle is CPUWeight=idle, since version 252 (CGROUP_WEIGHT_IDLE).
const weightIdle = uint64(0)

// mapped are the knobs whose files systemd writes itself. runc maps the same ones, plus pids.max; nearly every other file of
// a unit's cgroup survives a daemon-reload, because systemd does not know it. The io files it knows: it writes the lines of
// disks that a unit's own properties name, and no others, and it keeps the controller, because the library that kubelet and
// runc make their units with asks for IOAccounting (lifecycle BlockIO of test/e2e under systemd).
var mapped = plan.KnobSet(plan.CPUShares, plan.CPUIdle, plan.CPUQuota, plan.CPUPeriod, plan.CPUSetCPUs, plan.CPUSetMems,
	plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.MemoryLimit)

// mappedV1 are those of them that systemd writes on cgroup v1, and runc and the kubelet's library set there. It has no file of cpusets then.
// Nor may memory.min, low or high be set, which vendor kernels have on v1: a unit with any of them has its limit from MemoryMax,
// which nobody has set, and not from runc's MemoryLimit any more (src/core/cgroup.c, unit_has_unified_memory_config).
var mappedV1 = plan.KnobSet(plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.MemoryLimit)

// Mapped reports whether a knob has a unit property: cpu.shares and cpu.idle (together CPUWeight), cpu.quota, cpu.period,
// cpuset.cpus, cpuset.mems, memory.min, memory.low, memory.high and memory.limit; on cgroup v1 cpu.shares, cpu.quota, cpu.period and
// memory.limit.
//
// cpu.idle must be one: from version 252 on systemd writes 0 to it along with every plain weight. A daemon-reload does not by
// itself, but after it the next pod that starts nearby makes systemd write all attributes of all units beside that.
func Mapped(k plan.Knob, v1 bool) bool {
	if v1 {
		return mappedV1.Has(k)
	}
	return mapped.Has(k)
}

// ErrNoUnit is wrapped when a cgroup path does not end in a unit.
var ErrNoUnit = errors.New("cgroup is not a systemd unit")

// Unit is the unit that a cgroup path belongs to: its last element, when that is a slice or a scope. The path of a
// container below "cri-containerd-ID.scope" with its own subtree is not a unit.
func Unit(cgroup string) (string, error) {
	name := path.Base(path.Clean("/" + cgroup))
	if strings.HasSuffix(name, ".slice") || strings.HasSuffix(name, ".scope") || strings.HasSuffix(name, ".service") {
		return name, nil
	}
	return "", fmt.Errorf("%w: %q", ErrNoUnit, cgroup)
}

// Properties turns the settings of one unit into properties, sorted by name. Settings of knobs that are not mapped, and
// those only observed, are left out. weight is how this level's shares become a cpu.weight. A value that has no property
// is an error naming the knob; the others are returned with it.
//
//	CPUWeight           = weight(shares), 1..10000; 0 ("idle") where cpu.idle is 1, whatever the shares; infinity (the kernel's
//	                      default) where cpu.idle becomes 0 and no shares are given
//	CPUQuotaPerSecUSec  = quota × 10⁶ / period, rounded up to 10 ms as systemd does itself; infinity for no limit
//	CPUQuotaPeriodUSec  = period
//	AllowedCPUs, AllowedMemoryNodes = the set as bits, lowest byte first
//	MemoryMin, MemoryLow, MemoryHigh, MemoryMax = bytes; infinity for no limit
//
// On cgroup v1 CPUShares is the shares themselves, and MemoryLimit the limit: CPUWeight goes before CPUShares, which runc sets there, and
// would be made shares again by another formula.
func Properties(settings []plan.Setting, weight unit.WeightFormula, v1 bool) ([]Property, error) {
	var out []Property
	var errs []error
	period := unit.CFSPeriod
	for i := range settings {
		if settings[i].Knob == plan.CPUPeriod && !settings[i].Observe {
			period = unit.Micros(settings[i].Value.Int())
		}
	}
	idle, weighed := cpuIdle(settings)
	for i := range settings {
		s := &settings[i]
		switch {
		case !Mapped(s.Knob, v1) || s.Observe:
			continue
		case s.Knob == plan.CPUShares && idle && !v1, s.Knob == plan.CPUIdle && !idle && weighed:
			continue // the other one says it
		}
		p, err := property(s, period, weight, v1)
		if err != nil {
			errs = append(errs, fmt.Errorf("map %s = %s of %s to a unit property: %w", s.Knob, s.Value, s.Target, err))
			continue
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b Property) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(errs...)
}

// cpuIdle reports whether the settings make the unit idle, and whether they say anything of its weight.
func cpuIdle(settings []plan.Setting) (idle, weighed bool) {
	for i := range settings {
		if s := &settings[i]; !s.Observe {
			idle = idle || s.Knob == plan.CPUIdle && s.Value.Int() > 0
			weighed = weighed || s.Knob == plan.CPUShares
		}
	}
	return idle, weighed
}

func property(s *plan.Setting, period unit.Micros, weight unit.WeightFormula, v1 bool) (Property, error) {
	switch s.Knob {
	case plan.CPUShares:
		if n := s.Value.Int(); v1 && n > 0 {
			return Property{"CPUShares", uint64(max(n, int64(unit.MinShares)))}, nil
		}
		w := weight.Weight(unit.Shares(s.Value.Int()))
		if w < unit.MinWeight {
			return Property{}, errors.New("no shares")
		}
		return Property{"CPUWeight", uint64(w)}, nil
	case plan.CPUIdle:
		if s.Value.Int() > 0 {
			return Property{"CPUWeight", weightIdle}, nil
		}
		return Property{"CPUWeight", infinity}, nil
	case plan.CPUQuota:
		q, err := quotaPerSecond(unit.Micros(s.Value.Int()), period)
		return Property{"CPUQuotaPerSecUSec", q}, err
	case plan.CPUPeriod:
		if period < unit.MinPeriod || period > unit.MaxPeriod {
			return Property{}, errors.New("not between 1 ms and 1 s")
		}
		return Property{"CPUQuotaPeriodUSec", uint64(period)}, nil
	case plan.CPUSetCPUs:
		b, err := setBits(s.Value.String())
		return Property{"AllowedCPUs", b}, err
	case plan.CPUSetMems:
		b, err := setBits(s.Value.String())
		return Property{"AllowedMemoryNodes", b}, err
	}
	name, ok := memoryProperty(s.Knob, v1)
	if !ok {
		return Property{}, errors.New("no property")
	}
	return Property{name, limit(s.Value.Int())}, nil
}

func memoryProperty(k plan.Knob, v1 bool) (string, bool) {
	switch k {
	case plan.MemoryMin:
		return "MemoryMin", true
	case plan.MemoryLow:
		return "MemoryLow", true
	case plan.MemoryHigh:
		return "MemoryHigh", true
	case plan.MemoryLimit:
		if v1 {
			return "MemoryLimit", true
		}
		return "MemoryMax", true
	}
	return "", false
}

func limit(n int64) uint64 {
	if n < 0 {
		return infinity
	}
	return uint64(n)
}

// quotaPerSecond is the property of a quota.
func quotaPerSecond(quota, period unit.Micros) (uint64, error) {
	if quota < 0 {
		return infinity, nil
	}
	told, ok := unit.UnitQuotaPerSecond(quota, period)
	if !ok {
		return 0, fmt.Errorf("quota %d µs in a period of %d µs", quota, period)
	}
	return uint64(told), nil
}

// setBits renders a list of ids as systemd's CPU mask: bit n of byte n/8. An empty set means "all" to systemd and is
// what an empty cpuset file says too.
func setBits(list string) ([]byte, error) {
	set, err := topo.ParseCPUSet(list)
	if err != nil {
		return nil, err
	}
	bits := []byte{}
	for _, id := range set.List() {
		for len(bits) <= id/8 {
			bits = append(bits, 0)
		}
		bits[id/8] |= 1 << (id % 8)
	}
	return bits, nil
}
