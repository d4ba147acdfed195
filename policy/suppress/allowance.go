// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"strconv"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// formula computes the allowance as the package comment has it, or says what is missing.
func (w *work) formula() {
	u, percent := &w.in.Usage, w.in.Strategy.CPUSuppressThresholdPercent
	switch {
	case percent == nil:
		w.missing = "no cpuSuppressThresholdPercent"
	case !u.Node.OK:
		w.missing = "the node's CPU use was not measured"
	case !u.LSPods.OK || !u.BEPods.OK:
		w.missing = "the pods' CPU use was not measured"
	default:
		ls, hosts := positive(u.LSPods), positive(u.LSHostApps)
		if untold := positive(u.BEUntold); untold >= bandPercent.Milli(w.capacity) {
			w.untold = untold
		}
		used := ls + positive(u.BEPods) + w.untold + hosts + positive(u.BEHostApps)
		w.system = max(positive(u.Node)-used, u.Reserved, 0)
		w.allowance = unit.Got(unit.Percent(*percent).Milli(w.capacity) - ls - hosts - w.system)
	}
}

// positive is a use; what is missing or negative (counters of different instants) is none.
func positive(m unit.Measured[unit.MilliCPU]) unit.MilliCPU {
	if !m.OK {
		return 0
	}
	return max(m.V, 0)
}

// beUsed is what the tier uses, not OK when it was not measured.
func (w *work) beUsed() (unit.MilliCPU, bool) {
	u := &w.in.Usage
	return positive(u.BEPods) + positive(u.BEHostApps) + w.untold, u.BEPods.OK
}

// appendFormula writes "65% of 32 CPUs - 8 (LS pods) - 1 (host applications) - 2 (system) = 9.8".
func (w *work) appendFormula(b []byte) []byte {
	u := &w.in.Usage
	b = strconv.AppendInt(b, *w.in.Strategy.CPUSuppressThresholdPercent, 10)
	b = append(b, "% of "+figure.CPUs(w.capacity)...)
	b = append(b, " - "+figure.Cores(positive(u.LSPods))+" (LS pods)"...)
	if hosts := positive(u.LSHostApps); hosts > 0 {
		b = append(b, " - "+figure.Cores(hosts)+" (host applications)"...)
	}
	if w.system > 0 {
		what := " (system)"
		if w.system == u.Reserved {
			what = " (reserved for the system)"
		}
		b = append(b, " - "+figure.Cores(w.system)+what...)
	}
	return append(b, " = "+figure.Cores(w.allowance.V)...)
}
