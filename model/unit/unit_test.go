// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unit

import (
	"math"
	"testing"

	libcgroups "github.com/opencontainers/cgroups"
)

func TestSharesAndQuota(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want int64 }{
		"500m batch-cpu is 512 shares":      {int64(SharesFromMilli(500)), 512},
		"no request is the least":           {int64(SharesFromMilli(0)), 2},
		"absurd request is the most":        {int64(SharesFromMilli(math.MaxInt64)), 262144},
		"1500m limit is 150 ms":             {int64(QuotaFromMilli(1500)), 150000},
		"5m limit is raised to 1 ms":        {int64(QuotaFromMilli(5)), 1000},
		"no limit is unlimited":             {int64(QuotaFromMilli(0)), Unlimited},
		"absurd limit is unlimited":         {int64(QuotaFromMilli(math.MaxInt64)), Unlimited},
		"512 shares were a request of 500m": {int64(MilliFromShares(512)), 500},
		"2 shares were no request":          {int64(MilliFromShares(2)), 0},
		"150 ms of 100 ms is 1500m":         {int64(MilliFromQuota(150000, CFSPeriod)), 1500},
		"ratio 1.2 of 400 ms":               {int64(Ratio(120).CeilDiv(400000)), 333334},
		"ratio 1.0 changes nothing":         {int64(Ratio(100).CeilDiv(400000)), 400000},
		"ratio -1 is off":                   {int64(Ratio(-100).CeilDiv(400000)), 400000},
		"unlimited stays":                   {int64(Ratio(120).CeilDiv(Unlimited)), Unlimited},
		"120 % of 8 GiB":                    {int64(Percent(120).Of(8 << 30).PageDown()), 10307919872},
		"80 % of 2 GiB":                     {int64(Percent(80).Of(2 << 30).PageDown()), 1717985280},
		"20 % of 2 GiB":                     {int64(Percent(20).Of(2 << 30).PageDown()), 429494272},
		"quota in another period":           {int64(Micros(150000).OfPeriod(10000)), 15000},
		"and back":                          {int64(Micros(15000).PerCFSPeriod(10000)), 150000},
		"unlimited has no period":           {int64(Micros(Unlimited).OfPeriod(10000) + Micros(Unlimited).PerCFSPeriod(10000)), 2 * Unlimited},
		"an absurd burst saturates":         {int64(Micros(math.MaxInt64).OfPeriod(1000000)), math.MaxInt64},
		"a unit's quota":                    {int64(UnitQuota(33330, 10000)), 33400},
		"a unit's absurd quota":             {int64(UnitQuota(math.MaxInt64-5, 1000)), math.MaxInt64 - 5},
		"a unit's without limit":            {int64(UnitQuota(Unlimited, 10000)), Unlimited},
		"percent does not overflow":         {int64(Percent(1000).Of(math.MaxInt64)), math.MaxInt64},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", name, c.got, c.want)
		}
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	const most, least = math.MaxInt64, math.MinInt64
	for _, c := range [][3]Bytes{
		{1, 2, 3}, {most - 1, 1, most}, {most, 1, most}, {1, most, most}, {most, most, most}, {most, -1, most - 1}, {-1, most, most - 1},
		{least + 1, -1, least}, {least, -1, least}, {-1, least, least}, {least, least, least}, {least, 1, least + 1}, {most, least, -1},
	} {
		if got := Add(c[0], c[1]); got != c[2] {
			t.Errorf("%d + %d is %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestWeightFormulas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f      WeightFormula
		shares Shares
		want   Weight
	}{
		"linear 1024":      {Linear, 1024, 39},
		"linear least":     {Linear, 2, 1},
		"linear most":      {Linear, 262144, 10000},
		"unset":            {Linear, 0, 0},
		"quadratic 1024":   {Quadratic, 1024, 100},
		"quadratic least":  {Quadratic, 2, 1},
		"quadratic most":   {Quadratic, 262144, 10000},
		"beyond the range": {Quadratic, 1 << 40, 10000},
	} {
		if got := c.f.Weight(c.shares); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// TestQuadraticIsRuncs compares with the library that runc is built from, for every power of two and its neighbours.
func TestQuadraticIsRuncs(t *testing.T) {
	t.Parallel()
	for s := Shares(2); s <= MaxShares; s *= 2 {
		for _, n := range []Shares{s - 1, s, s + 1, s + s/3} {
			if n < MinShares || n > MaxShares {
				continue
			}
			if got, want := Quadratic.Weight(n), Weight(libcgroups.ConvertCPUSharesToCgroupV2Value(uint64(n))); got != want {
				t.Errorf("%d shares: got weight %d, runc writes %d", n, got, want)
			}
		}
	}
}

func FuzzPercent(f *testing.F) {
	f.Add(int64(50), int64(8<<30))
	f.Fuzz(func(t *testing.T, p, b int64) {
		got := Percent(p).Of(Bytes(b))
		if got < 0 || p >= 0 && p <= 100 && b >= 0 && int64(got) > b {
			t.Errorf("%d %% of %d is %d", p, b, got)
		}
	})
}

func TestParseWeightFormula(t *testing.T) {
	t.Parallel()
	for _, f := range []WeightFormula{Linear, Quadratic} {
		if got, ok := ParseWeightFormula(f.String()); !ok || got != f {
			t.Errorf("%s: %v, %v", f, got, ok)
		}
	}
	if _, ok := ParseWeightFormula(""); ok {
		t.Error("no name is a formula")
	}
}
