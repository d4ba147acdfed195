// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"math"
	"time"

	"github.com/koord-rt/koord-rt/policy/suppress"
)

// grant is what a test waits for of the best-effort tier. The system's share is not the test's to say: a guest that gets half a CPU of its
// machine shows several times that of one that gets a whole one, since nobody tells its kernel of the time that it was not run. So the amount is judged by the
// formula of policy/suppress with the figures that koordlet tells at that moment, and what LS pods use, which the test makes, by itself.
type grant struct {
	what string
	// read is the amount: thousandths of a CPU, or CPUs of a set.
	read func() (int, error)
	set  bool
	// spare is how many CPUs there are for the tier, where those of LSR pods are not.
	spare int
	// busy is how many CPUs LS pods use. While they do, pressure may take more from the tier than the formula does.
	busy float64
	// least and most bound the amount further; 0 for not at all.
	least, most int
}

// granted waits until koordlet has granted that.
func (a *agent) granted(limit time.Duration, g grant) (got int) {
	a.r.t.Helper()
	a.r.eventually(limit, func() error {
		v, err := g.read()
		if err == nil && v < 0 {
			err = fmt.Errorf("%s is without bounds", g.what)
		}
		if err != nil {
			return err
		}
		m, err := a.figures()
		if err != nil {
			return err
		}
		allowance, ls, system := sum(m, "koord_rt_koordlet_be_allowance_cores"), sum(m, "koordlet_be_suppress_ls_used_cpu_cores"), sum(m, "koord_rt_koordlet_system_cpu_cores")
		got = v
		low, high := 0, int(1000*(allowance+0.3)) // a quota grows by steps
		if g.set {
			high = max(int(math.Ceil(allowance)), suppress.MinCPUs)
			if g.spare > 0 {
				high = min(high, g.spare)
			}
			low = high
		}
		if g.busy > 0 {
			low = 0
		}
		if math.Abs(ls-g.busy) > 0.4*max(g.busy, 1) || v < low || v > high || g.least > 0 && v < g.least || g.most > 0 && v > g.most {
			return fmt.Errorf("%s is %d, want %d to %d by the formula (allowance %.2f), at least %d and at most %d where that is not 0; LS pods use %.2f CPUs, want %v; the system %.2f",
				g.what, v, low, high, allowance, g.least, g.most, ls, g.busy, system)
		}
		return nil
	})
	return got
}
