// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommend

import (
	"math"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// Advice is what a container should ask for: Lower ≤ Target ≤ Upper.
type Advice struct {
	Container            string
	Target, Lower, Upper predict.Resources
	// Known is false while too little is known; then the amounts are 0.
	Known bool
}

// Advice of all containers that are still there, in order of their names.
//
// Example: one pod that used one core in each of 1,440 measurements of a day. The bucket of one core ends at 1.0358 cores, the
// confidence is 1439/1440: target 1192m, lower bound 1189m, upper bound 2384m.
func (m *Model) Advice() []Advice {
	var newest predict.Wall
	for _, c := range m.containers {
		newest = max(newest, c.last())
	}
	var out []Advice
	for _, name := range m.names() {
		c := m.containers[name]
		if newest-c.last() > predict.Wall(absent) {
			continue
		}
		out = append(out, m.advise(name, c))
	}
	return out
}

func (m *Model) advise(name string, c *container) Advice {
	out := Advice{Container: name}
	if !c.cpu.warm(m.cfg.ColdStart) || !c.memory.warm(m.cfg.ColdStart) {
		return out
	}
	out.Known = true
	memory := c.memory.histogram
	if c.since != 0 {
		// The interval that has not ended counts with what it has had.
		memory = memory.Clone()
		memory.Add(c.peak, c.memory.seen)
	}
	cpu := m.estimate(c.cpu.histogram, c.cpu.confidence(), 1000, mostCPU)
	mem := m.estimate(memory, c.memory.confidence(), 1, mostMemory)
	at := func(i int) predict.Resources {
		return predict.Resources{CPU: unit.MilliCPU(cpu[i]), Memory: unit.Bytes(mem[i])}
	}
	out.Lower, out.Target, out.Upper = at(0), at(1), at(2)
	return out
}

// warm reports whether it was measured for long enough, and at all.
func (s *series) warm(cold unit.Micros) bool { return s.samples > 0 && s.measured >= float64(cold) }

// confidence is min(days measured, measurements / 1440).
func (s *series) confidence() float64 {
	return min(s.measured/float64(day), s.samples/1440)
}

// estimate is lower bound, target and upper bound in whole amounts, rounded up; scale is how many of them a unit of the histogram is.
func (m *Model) estimate(h *predict.Histogram, confidence, scale, most float64) [3]int64 {
	// After a single measurement there is no time yet: as if a minute had been measured.
	confidence = max(confidence, 1.0/1440)
	factor := scale * (1 + float64(m.cfg.Margin)/100)
	p := h.Quantiles(50, 90, 95)
	whole := func(v float64) int64 {
		const hair = 1e-6 // 1.1 cores are 1100 milli, although 1.1 · 1000 is a little more in floats
		return int64(min(math.Ceil(v*factor-hair), most))
	}
	return [3]int64{
		whole(p[0] * math.Pow(1+0.001/confidence, -2)),
		whole(p[1]),
		whole(p[2] * (1 + 1/confidence)),
	}
}
