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

// granted waits until koordlet has granted that: not more than the formula says now, and not less than the least that it has said meanwhile,
// since an amount falls at once and grows by steps. Of a set beside load one CPU may be missing: it grows after 15 s only.
func (a *agent) granted(limit time.Duration, g grant) (got int) {
	a.r.t.Helper()
	const figure = "koord_rt_koordlet_be_allowance_cores"
	fewest := math.Inf(1)
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
		allowance, told := m[figure]
		if !told {
			return fmt.Errorf("%s: koordlet tells no %s", g.what, figure)
		}
		fewest = min(fewest, allowance)
		ls, system := sum(m, "koordlet_be_suppress_ls_used_cpu_cores"), sum(m, "koord_rt_koordlet_system_cpu_cores")
		got = v
		low, high := int(1000*(fewest-0.3)), int(1000*(allowance+0.3))
		if g.set {
			cpus := func(allowance float64) int {
				n := max(int(math.Ceil(allowance)), suppress.MinCPUs)
				if g.spare > 0 {
					n = min(n, g.spare)
				}
				return n
			}
			low, high = cpus(fewest), cpus(allowance)
		}
		if g.busy > 0 {
			low = map[bool]int{true: low - 1}[g.set]
		}
		if math.Abs(ls-g.busy) > 0.4*max(g.busy, 1) || v < low || v > high || g.least > 0 && v < g.least || g.most > 0 && v > g.most {
			return fmt.Errorf("%s is %d, want %d to %d by the formula (allowance %.2f), at least %d and at most %d where that is not 0; LS pods use %.2f CPUs, want %v; the system %.2f",
				g.what, v, low, high, allowance, g.least, g.most, ls, g.busy, system)
		}
		return nil
	})
	return got
}
