// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package unit is the only place where quantities convert.
//
// Inputs and outputs are typed integers; nothing here reads the machine. It imports the standard library only, and no
// other room may convert shares, quotas, percents or pages by itself: two formulas for one value leave siblings with
// incomparable weights.
package unit

import (
	"math"
	"math/bits"
)

// MilliCPU is CPU time in thousandths of a CPU.
type MilliCPU int64

// Shares is a cgroup v1 cpu.shares value, 2..262144, 1024 for one CPU.
type Shares int64

// Weight is a cgroup v2 cpu.weight value, 1..10000, 100 by default.
type Weight int64

// Micros is a duration in microseconds.
type Micros int64

// Bytes is an amount of memory.
type Bytes int64

// Percent is a hundredth; 100 is the whole.
type Percent int64

// Unlimited stands for "max" (v2) or -1 (v1) wherever a limit may be absent.
const Unlimited = -1

// Limits of the kernel's files.
const (
	MinShares Shares = 2      // kernel/sched/sched.h MIN_SHARES
	MaxShares Shares = 262144 // kernel/sched/sched.h MAX_SHARES
	MinWeight Weight = 1
	MaxWeight Weight = 10000
	// CFSPeriod is the period that the kubelet, unless its cpuCFSQuotaPeriod says otherwise, runc and Koordinator use.
	CFSPeriod Micros = 100000
	// MinPeriod and MaxPeriod bound what the kernel accepts for one (min_cfs_quota_period, max_cfs_quota_period).
	MinPeriod Micros = 1000
	MaxPeriod Micros = 1000000
	// MinQuota is the smallest quota the kernel accepts (1 ms, min_cfs_quota_period).
	MinQuota Micros = 1000
	pageSize Bytes  = 4096
)

// Opt is an int64 that may be absent. The zero value is absent.
type Opt struct {
	V   int64
	Set bool
}

// Some returns a present Opt.
func Some(v int64) Opt { return Opt{V: v, Set: true} }

// Or returns the value, or d when absent.
func (o Opt) Or(d int64) int64 {
	if o.Set {
		return o.V
	}
	return d
}

// SharesFromMilli is the kubelet's rule: milli × 1024 / 1000, held within the kernel's limits.
func SharesFromMilli(m MilliCPU) Shares {
	if m <= 0 {
		return MinShares
	}
	if int64(m) > math.MaxInt64/1024 {
		return MaxShares
	}
	return min(max(Shares(int64(m)*1024/1000), MinShares), MaxShares)
}

// MilliFromShares is the inverse as far as it goes: the smallest request that gives these shares. MinShares means no
// request.
func MilliFromShares(s Shares) MilliCPU {
	if s <= MinShares {
		return 0
	}
	return MilliCPU((int64(s)*1000 + 1023) / 1024)
}

// QuotaFromMilli is milli × period / 1000, at least MinQuota; a limit of zero or less is Unlimited.
func QuotaFromMilli(m MilliCPU) Micros {
	if m <= 0 {
		return Unlimited
	}
	if int64(m) > math.MaxInt64/int64(CFSPeriod) {
		return Unlimited
	}
	return max(Micros(int64(m)*int64(CFSPeriod)/1000), MinQuota)
}

// UnitQuota is what a quota of a period becomes as the property of a systemd unit: CPU time per second in steps of 10 ms, which
// who tells it rounds up, and from which systemd reckons back, rounding down.
func UnitQuota(q, period Micros) Micros {
	told, ok := UnitQuotaPerSecond(q, period)
	if !ok {
		return q
	}
	return Micros(scale(int64(told), int64(period), second))
}

const second = 1000000 // µs

// UnitQuotaPerSecond is ⌈q × 10⁶ / period⌉ in microseconds of CPU time per second, rounded up to 10 ms: systemd rounds the quota that it
// derives from the property down (src/core/cgroup.c), and a container would get less than it asked. ok is false for no limit, and for what
// no kernel takes.
func UnitQuotaPerSecond(q, period Micros) (told Micros, ok bool) {
	const step = 10000
	if q <= 0 || period <= 0 || q > math.MaxInt64/second {
		return 0, false
	}
	per := (int64(q)*second-1)/int64(period) + 1
	return Micros((per-1)/step+1) * step, true
}

// OfPeriod is what a quota or a burst of CFSPeriod is in another period; PerCFSPeriod is the way back. Unlimited stays.
func (q Micros) OfPeriod(period Micros) Micros {
	if q <= 0 {
		return q
	}
	return Micros(scale(int64(q), int64(period), int64(CFSPeriod)))
}

// PerCFSPeriod is what a quota of a period is in CFSPeriod.
func (q Micros) PerCFSPeriod(period Micros) Micros {
	if q <= 0 {
		return q
	}
	return Micros(scale(int64(q), int64(CFSPeriod), int64(period)))
}

// MilliFromQuota is quota × 1000 / period; Unlimited or a bad period gives 0.
func MilliFromQuota(q, period Micros) MilliCPU {
	if q <= 0 || period <= 0 {
		return 0
	}
	return MilliCPU(scale(int64(q), 1000, int64(period)))
}

// WeightFormula says how a writer turns shares into cpu.weight.
type WeightFormula uint8

// The two formulas in the field. One node can carry both: the kubelet writes pods, runc writes containers.
const (
	// Linear is 1 + (shares−2) × 9999 / 262142: kubelet's pod cgroups, runc before 1.3.2.
	Linear WeightFormula = iota
	// Quadratic is ⌈10^((l²+125·l)/612 − 7/34)⌉ with l = log2(shares): runc ≥ 1.3.2, crun ≥ 1.23. 1024 gives 100.
	Quadratic
)

// String names the formula.
func (f WeightFormula) String() string {
	if f == Quadratic {
		return "quadratic"
	}
	return "linear"
}

// ParseWeightFormula reads a formula's name: "linear" or "quadratic".
func ParseWeightFormula(name string) (f WeightFormula, ok bool) {
	for _, f := range [...]WeightFormula{Linear, Quadratic} {
		if f.String() == name {
			return f, true
		}
	}
	return Linear, false
}

// Weight converts shares to cpu.weight. Shares of 0 (unset) give 0. Values beyond the limits are clamped first.
func (f WeightFormula) Weight(s Shares) Weight {
	if s <= 0 {
		return 0
	}
	s = min(max(s, MinShares), MaxShares)
	if f == Linear {
		return Weight(1 + (int64(s)-2)*9999/262142)
	}
	switch s {
	case MinShares:
		return MinWeight
	case MaxShares:
		return MaxWeight
	}
	l := math.Log2(float64(s))
	return Weight(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// PageDown rounds down to a 4 KiB page, as the kernel does when a memory file is written; one with larger pages rounds further, which
// kernel/cgroup knows.
func (b Bytes) PageDown() Bytes {
	if b <= 0 {
		return b
	}
	return b / pageSize * pageSize
}

// Of is b × p / 100 without overflow, saturating at the largest int64.
func (p Percent) Of(b Bytes) Bytes {
	if b <= 0 || p <= 0 {
		return 0
	}
	return Bytes(scale(int64(b), int64(p), 100))
}

// Micros is m × p / 100 without overflow.
func (p Percent) Micros(m Micros) Micros {
	if m <= 0 || p <= 0 {
		return 0
	}
	return Micros(scale(int64(m), int64(p), 100))
}

// Ratio is a fixed-point factor in hundredths: 120 is 1.20. Koordinator's ratios carry two decimals.
type Ratio int64

// CeilDiv is ⌈q / r⌉, the quota of a normalised container. Ratios of 1 or less leave q as it is (Koordinator only
// scales down).
func (r Ratio) CeilDiv(q Micros) Micros {
	if q <= 0 || r <= 100 {
		return q
	}
	if int64(q) > math.MaxInt64/100-int64(r) {
		return q
	}
	return Micros((int64(q)*100 + int64(r) - 1) / int64(r))
}

// Add is a + b, held at the ends of int64: a sum of what users wrote must not wrap round.
func Add[T ~int64](a, b T) T {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}

// scale is a × b / c for non-negative a, b and positive c with a 128-bit product, saturating.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}
