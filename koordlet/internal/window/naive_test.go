// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// naive keeps everything: the value of each second that has one.
type naive map[int]float64

// summary of the seconds (from, to], and by how much each value may be off in the store: nothing in the fine part, and as
// the package says for the blocks that are older.
func (n naive) summary(from, to, newest int) (want sample.Summary, off float64) {
	var v []float64
	var sum float64
	for s := from + 1; s <= to; s++ {
		x, ok := n[s]
		if !ok {
			continue
		}
		if len(v) == 0 {
			want.From = at(s)
		}
		want.To, want.Last = at(s), x
		v = append(v, x)
		sum += x
		off = max(off, n.off(s, newest))
	}
	if len(v) == 0 {
		return sample.Summary{}, 0
	}
	slices.Sort(v)
	nearest := func(p float64) float64 { return v[int(math.Ceil(p*float64(len(v))/100))-1] }
	want.Count, want.Avg, want.Covered = len(v), sum/float64(len(v)), float64(len(v))/float64(to-from)
	want.P50, want.P90, want.P95, want.P99, want.Max = nearest(50), nearest(90), nearest(95), nearest(99), v[len(v)-1]
	return want, off
}

// What is promised, in numbers and not by the code's constants, which could change it unseen: the block of ten seconds that is being filled, 30 more
// with every second, and 150 with less.
const (
	tenSeconds   = 10
	promisedFine = 31
	promisedAll  = 181
)

// block of a second as the store numbers it: slot 0 lies an hour before second 0, which is the first to be appended.
func block(s int) int { return (s + 3600) / tenSeconds }

func (n naive) off(s, newest int) float64 {
	if block(s) > block(newest)-promisedFine {
		return 1e-7 * n[s]
	}
	small, large := math.Inf(1), 0.0
	first := block(s)*tenSeconds - 3600
	for i := first; i < first+tenSeconds; i++ {
		if x, ok := n[i]; ok {
			small, large = min(small, x), max(large, x)
		}
	}
	return (large-small)/12 + 0.0011*large
}

// shapes of load; each gives the value of a second.
func shapes(r *rand.Rand) map[string]func(s int) float64 {
	level := 100 << 30 * 1.0
	return map[string]func(int) float64{
		"idle":     func(int) float64 { return 0 },
		"constant": func(int) float64 { return 3.25 },
		"noise":    func(int) float64 { return r.Float64() * 64 },
		"bursts": func(s int) float64 {
			if s%7 == 0 {
				return 12
			}
			return 0.01
		},
		"memory": func(int) float64 { level += (r.Float64() - 0.5) * (1 << 28); return level },
		"tiny":   func(int) float64 { return r.Float64() * 1e-4 },
		"wide":   func(int) float64 { return math.Exp(r.Float64()*60 - 30) },
		"counts": func(int) float64 { return float64(r.IntN(5)) },
	}
}

func TestAgainstKeepingEverything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		load := shapes(r)
		m := New(Options{})
		all := map[string]naive{}
		names := slices.Sorted(func(yield func(string) bool) {
			for name := range load {
				if !yield(name) {
					return
				}
			}
		})
		const seconds = 2400
		newest := map[string]int{}
		for s := range seconds {
			for _, name := range names {
				// Sometimes a second is missed, sometimes minutes are.
				if s > 0 && (r.IntN(20) == 0 || int(seed) > 2 && s/200%4 == 2) {
					continue
				}
				if all[name] == nil {
					all[name] = naive{}
				}
				v := load[name](s)
				all[name][s] = v
				newest[name] = s
				m.Append([]sample.Sample{cpu(name, s, v)})
			}
			m.Append([]sample.Sample{{Subject: sample.OfNode(), Metric: sample.CPUUsage, Value: 1, At: at(s)}})
			if s%97 != 0 {
				continue
			}
			for _, name := range names {
				for range 4 {
					to := s - r.IntN(min(s+1, 600))
					if r.IntN(2) == 0 {
						to -= to%tenSeconds + 1 // whole blocks
					}
					oldest := max((block(newest[name])-promisedAll+1)*tenSeconds-3600-1, -1)
					from := to - 1 - r.IntN(1800)
					if r.IntN(2) == 0 {
						from -= from%tenSeconds + 1
					}
					from = max(from, oldest)
					if from >= to {
						continue
					}
					compare(t, fmt.Sprintf("seed %d, %s at %d", seed, name, s), m, all[name], name, from, to, newest[name])
				}
			}
		}
	}
}

func compare(t *testing.T, what string, m *Memory, n naive, name string, from, to, newest int) {
	t.Helper()
	want, off := n.summary(from, to, newest)
	got := m.Query(sample.OfContainer(name), sample.CPUUsage, at(from), at(to))
	near := func(a, b float64) bool { return math.Abs(a-b) <= off+1e-7*b+1e-7 }
	if got.Count != want.Count || got.From != want.From || got.To != want.To || math.Abs(got.Covered-want.Covered) > 1e-9 {
		t.Fatalf("%s: (%d, %d]: got %+v, want %+v", what, from, to, got, want)
	}
	for _, pair := range [][2]float64{{got.Avg, want.Avg}, {got.P50, want.P50}, {got.P90, want.P90}, {got.P95, want.P95}, {got.P99, want.P99}, {got.Last, want.Last}} {
		if !near(pair[0], pair[1]) {
			t.Fatalf("%s: (%d, %d]: off by more than %g\n got %+v\nwant %+v", what, from, to, off, got, want)
		}
	}
	// The largest sample of a block is kept; only in a window that cuts a block may its largest lie outside.
	whole := (from+1+3600)%tenSeconds == 0 && (to+1+3600)%tenSeconds == 0
	if !near(got.Max, want.Max) || whole && math.Abs(got.Max-want.Max) > 0.0011*want.Max+1e-7 {
		t.Fatalf("%s: (%d, %d]: maximum %g, want %g", what, from, to, got.Max, want.Max)
	}
}

// TestWhatIsPromised: at any moment each second of the last 300 is told as it was, of the 25 minutes before each ten seconds by their number, their
// average to a twelfth of their spread, and their largest; any window of up to half an hour is covered, and what is older is gone.
func TestWhatIsPromised(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 5))
	m := New(Options{})
	c := sample.OfContainer("c")
	values := make([]float64, 4001)
	ask := func(from, to int) sample.Summary { return m.Query(c, sample.CPUUsage, at(from), at(to)) }
	for s := 1; s <= 4000; s++ {
		values[s] = float64(1 + r.IntN(1000))
		m.Append([]sample.Sample{cpu("c", s, values[s])})
		if s < 3600 || s%13 > 0 { // 13 meets every second of a block
			continue
		}
		for back := range 300 {
			if got, want := ask(s-back-1, s-back), values[s-back]; got.Count != 1 || got.Last != want || got.Max != want {
				t.Fatalf("at %d the second %d s ago is %+v, want %g", s, back, got, want)
			}
		}
		for to := s - 300 - s%10; to >= s-1790; to -= 10 { // a block begins with second 1
			var sum, small, large float64
			for i := to - 9; i <= to; i++ {
				if sum += values[i]; small == 0 || values[i] < small {
					small = values[i]
				}
				large = max(large, values[i])
			}
			got := ask(to-10, to)
			if got.Count != 10 || got.Covered != 1 || math.Abs(got.Avg-sum/10) > (large-small)/12+0.0011*large || math.Abs(got.Max-large) > 0.0011*large {
				t.Fatalf("at %d the ten seconds up to %d s ago: %+v, want an average of %g and a maximum of %g", s, s-to, got, sum/10, large)
			}
		}
		for _, length := range []int{1, 10, 60, 299, 300, 301, 600, 1000, 1799, 1800} {
			if got := ask(s-length, s); got.Count != length || got.Covered != 1 || got.From != at(s-length+1) || got.Last != values[s] {
				t.Fatalf("at %d a window of %d s: %+v", s, length, got)
			}
		}
		if got := ask(0, s); got.Count > 1810 {
			t.Fatalf("at %d there are %d seconds: more than half an hour and a block", s, got.Count)
		}
	}
	if Horizon != 1800*unit.Second {
		t.Errorf("the longest window is %d s", Horizon/unit.Second)
	}
}

func TestSmallFloats(t *testing.T) {
	t.Parallel()
	for want, v := range map[uint16]float64{
		0:      0,
		1:      1.0 / (1 << 24),
		1 << 9: 1.0 / (1 << 15),
		1023:   1023.0 / (1 << 24),
		1024:   1.0 / (1 << 14),
		15360:  1,
		15361:  1 + 1.0/1024,
		0xffff: math.MaxFloat32,
	} {
		if got := toSmall(v); got != want {
			t.Errorf("%g is %d, want %d", v, got, want)
		}
	}
	last := -1.0
	for b := range 1 << 16 {
		v := fromSmall(uint16(b))
		if v <= last || toSmall(v) != uint16(b) {
			t.Fatalf("%d is %g and comes back as %d; the one before is %g", b, v, toSmall(v), last)
		}
		last = v
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		v := math.Exp(r.Float64()*40 - 9)
		if got := fromSmall(toSmall(v)); math.Abs(got-v) > v/2048 {
			t.Fatalf("%g comes back as %g", v, got)
		}
	}
}

func TestPackedBlocks(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]float64{
		"nothing":           {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
		"zeros":             {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"one sample":        {-1, -1, -1, 5, -1, -1, -1, -1, -1, -1},
		"two levels, gap":   {0, 8, 8, 0, -1, 0, 8, 0, 0, 0},
		"all seven levels":  {0, 1, 2, 3, 4, 5, 6, 0, 6, 3},
		"same large values": {1 << 40, 1 << 40, 1 << 40, -1, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40},
	} {
		var in, out [perBlock]uint32
		for i, v := range values {
			if v >= 0 {
				in[i], _ = encode(v)
			}
		}
		pack(&in).unpack(&out)
		for i := range in {
			if in[i] != out[i] {
				t.Errorf("%s: second %d: %d comes back as %d", name, i, in[i], out[i])
			}
		}
	}
}
