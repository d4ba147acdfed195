// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Held is what systemd writes to the files of a unit when it writes them again, by the unit's properties as they are now:
// the text of the file for each mapped knob. It waits no longer than ctx does.
func (u *Units) Held(ctx context.Context, name string) (map[plan.Knob]string, error) {
	select {
	case <-u.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("read properties of unit %s: %w", name, ctx.Err())
	}
	defer func() { u.turn <- struct{}{} }()
	var props map[string]any
	err := u.call(ctx, func(b bus) (err error) {
		props, err = b.GetUnitTypePropertiesContext(ctx, name, typeOf(name))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read properties of unit %s: %w", name, err)
	}
	out := texts(props, u.v1)
	if u.plain {
		delete(out, plan.CPUIdle)
	}
	return out, nil
}

// typeOf is the unit's type as interfaces are named: "Scope".
func typeOf(name string) string {
	ext := strings.TrimPrefix(path.Ext(name), ".")
	if ext == "" {
		return ""
	}
	return strings.ToUpper(ext[:1]) + ext[1:]
}

// texts renders properties as systemd does (src/core/cgroup.c); a property that it lacks or has of another type has none.
func texts(props map[string]any, v1 bool) map[plan.Knob]string {
	out := map[plan.Knob]string{}
	number := func(name string, put func(n uint64)) {
		if n, ok := props[name].(uint64); ok {
			put(n)
		}
	}
	number("CPUQuotaPerSecUSec", func(quota uint64) {
		period := infinity
		number("CPUQuotaPeriodUSec", func(n uint64) { period = n })
		q, p := cpuMax(quota, period)
		if v1 {
			out[plan.CPUQuota], out[plan.CPUPeriod] = strings.Replace(q, "max", "-1", 1), p
			return
		}
		out[plan.CPUQuota] = q + " " + p
		out[plan.CPUPeriod] = out[plan.CPUQuota]
	})
	if v1 {
		number("CPUShares", func(n uint64) {
			if n == infinity {
				n = defaultShares
			}
			out[plan.CPUShares] = strconv.FormatUint(n, 10)
		})
		number("MemoryLimit", func(n uint64) { out[plan.MemoryLimit] = strings.Replace(max64(n), "max", "-1", 1) })
		return out
	}
	number("CPUWeight", func(n uint64) {
		switch n {
		case weightIdle:
			out[plan.CPUIdle] = "1"
			return
		case infinity:
			n = defaultWeight
		}
		out[plan.CPUShares], out[plan.CPUIdle] = strconv.FormatUint(n, 10), "0"
	})
	for name, k := range map[string]plan.Knob{"AllowedCPUs": plan.CPUSetCPUs, "AllowedMemoryNodes": plan.CPUSetMems} {
		if bits, ok := props[name].([]byte); ok {
			out[k] = setList(bits)
		}
	}
	for _, k := range [...]plan.Knob{plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.MemoryLimit} {
		name, _ := memoryProperty(k, v1)
		number(name, func(n uint64) { out[k] = max64(n) })
	}
	return out
}

// defaultWeight is what systemd writes where a unit has no CPUWeight (CGROUP_WEIGHT_DEFAULT).
const defaultWeight = 100

// defaultShares is the same of CPUShares (CGROUP_CPU_SHARES_DEFAULT).
const defaultShares = 1024

func max64(n uint64) string {
	if n == infinity {
		return "max"
	}
	return strconv.FormatUint(n, 10)
}

// cpuMax is quota and period of a quota per second: the period is lengthened, up to a second, until the quota is a millisecond.
func cpuMax(quota, period uint64) (string, string) {
	const second, least = 1000000, 1000
	if period == infinity {
		period = uint64(unit.CFSPeriod)
	}
	if quota == infinity {
		return "max", strconv.FormatUint(uint64(unit.CFSPeriod), 10) // cgroup_cpu_adjust_period: whatever the period
	}
	if quota > 0 {
		period = min(max(period, least*second/quota), second)
	}
	return strconv.FormatUint(max(quota*period/second, least), 10), strconv.FormatUint(period, 10)
}

// setList is setBits backwards.
func setList(bits []byte) string {
	var ids []int
	for i, b := range bits {
		for n := range 8 {
			if b&(1<<n) != 0 {
				ids = append(ids, i*8+n)
			}
		}
	}
	return topo.CPUs(ids...).String()
}
