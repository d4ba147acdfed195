// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"math"
	"slices"

	"github.com/koord-rt/koord-rt/model/unit"
)

// Histogram is one decaying distribution by itself, for who learns of something else than the pods of a node. It is not safe for
// concurrent use.
type Histogram struct{ h histogram }

// NewCPU makes an empty distribution of cores, NewMemory one of bytes.
func NewCPU(halfLife unit.Micros) *Histogram { return &Histogram{newHistogram(cpuBuckets, halfLife)} }

// NewMemory makes an empty distribution of bytes.
func NewMemory(halfLife unit.Micros) *Histogram {
	return &Histogram{newHistogram(memoryBuckets, halfLife)}
}

// Add takes a sample; false for what can be no amount, which is not learned.
func (h *Histogram) Add(v float64, at Wall) bool {
	if !(v >= 0) || math.IsInf(v, 0) {
		return false
	}
	h.h.add(v, at)
	return true
}

// Quantiles are percentiles, ps ascending: the upper bounds of their buckets, 0 when nothing is known.
func (h *Histogram) Quantiles(ps ...int) []float64 {
	out := make([]float64, len(ps))
	h.h.quantiles(ps, out)
	return out
}

// Clone is another one with the same content.
func (h *Histogram) Clone() *Histogram {
	out := &Histogram{h.h}
	out.h.weights = slices.Clone(h.h.weights)
	return out
}

// Distribution is the content as it is kept through restarts; its Reference is the time of the newest sample. The measurements of
// thousands of pods together can be more evidence than Restore takes: it is told as that much, with the same shares.
func (h *Histogram) Distribution() Distribution {
	d := h.h.distribution()
	d.Total = min(d.Total, maxEvidence*(1-1e-6)) // float32 weights sum up to a little more
	return d
}

// Restore takes over what Distribution has told. What no training can have left is an error, and the histogram is as before.
func (h *Histogram) Restore(d Distribution) error {
	next := newHistogram(h.h.starts, h.h.halfLife)
	if err := next.restore(d, d.Reference); err != nil {
		return err
	}
	h.h = next
	return nil
}
