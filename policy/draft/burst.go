// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"math"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Burst plans cpu.burst for a CPU limit under the final quota. The node's strategy is overlaid field by field by the
// cpuBurst annotation; policies cpuBurstOnly and auto switch it on. Not for LSE, LSR and BE pods, nor without limit or
// quota.
//
//	burst = limit milli × percent µs (= limit/1000 × percent/100 × 100000, and so much less in a shorter period), at most the quota
//
// The kernel refuses a burst above the quota, and a quota below the burst (Documentation/scheduler/sched-bwc.rst). So a limit below the one
// that stands, which is written, holds the burst at the quota that the kubelet is about to write for it. A percentage from the annotation
// is capped by Limits.CPUBurstPercentMax.
//
// Example: limit 2000m, 1000 %, quota 200000 gives 2000000 and is held at 200000.
func (d *Draft) Burst(limit, written unit.MilliCPU, quota unit.Micros) {
	switch d.Pod.Ask.QoS {
	case protocol.QoSLSE, protocol.QoSLSR, protocol.QoSBE:
		return
	}
	if limit <= 0 || quota <= 0 || !d.Takes(protocol.FeatureBurst, plan.CPUBurst) {
		return
	}
	s := d.View.Strategy.Burst()
	policy, percent, capped := Str(s.Policy), Num(s.CPUBurstPercent), false
	if a := d.Pod.Ask.CPUBurst; a != nil {
		if a.Policy != nil {
			policy = *a.Policy
		}
		if a.CPUBurstPercent != nil {
			most := int64(d.View.Limits.CPUBurstPercentMax)
			percent, capped = min(*a.CPUBurstPercent, most), *a.CPUBurstPercent > most
		}
	}
	if policy != strategy.BurstCPUBurstOnly && policy != strategy.BurstAuto || percent <= 0 {
		return
	}
	coming := limit < written && written > leastLimit
	if coming {
		quota = quota * unit.Micros(limit) / unit.Micros(written)
	}
	burst := quota
	if percent <= math.MaxInt64/int64(limit) {
		burst = min(quota, unit.Micros(int64(limit)*percent).OfPeriod(d.period()))
	}
	if burst <= 0 {
		return
	}
	b := make([]byte, 0, 96)
	b = strconv.AppendInt(b, percent, 10)
	b = append(b, "% of limit "...)
	b = strconv.AppendInt(b, int64(limit), 10)
	b = append(b, 'm')
	if capped {
		b = append(b, ", capped by the node's cpuBurstPercentMax"...)
	}
	switch {
	case burst == quota && coming:
		b = append(b, ", held at the quota that this limit is about to have"...)
	case burst == quota:
		b = append(b, ", held at the quota"...)
	}
	d.Set(protocol.FeatureBurst, plan.CPUBurst, plan.Int(burst), string(b))
}

// leastLimit is what the smallest quota of a kubelet stands for: 1 ms in 100.
const leastLimit = 10
