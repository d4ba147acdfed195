// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Checkpoint is a model as it is kept through restarts. It has the content of upstream's checkpoint files
// (koordinator-node.md §7.3); their text is the business of the edge.
type Checkpoint struct {
	Key         Key
	Updated     Wall
	CPU, Memory Distribution
}

// Distribution is what is known of one resource. The zero value knows nothing.
type Distribution struct {
	// Reference is where a sample weighs 1. We write the time of the newest sample, so that Total is in samples of now and
	// a changed half-life does no harm; upstream writes a multiple of the half-life.
	Reference Wall
	// Weights by bucket, scaled so that the heaviest has 10000; lighter ones than half of 1 are left out.
	Weights map[int]uint32
	// Total is the sum of the weights before they were scaled.
	Total float64
}

const (
	maxWeight = 10000
	// maxTotal keeps every weight within float32.
	maxTotal = math.MaxFloat32 / 2
	// maxEvidence is above what a sample per second leaves with a half-life of a month. More would take as many half-lives
	// to forget as it has bits.
	maxEvidence = 1e7
)

// Checkpoints are all models, ordered by key.
func (s *Set) Checkpoints() []Checkpoint {
	out := make([]Checkpoint, 0, len(s.models))
	for _, k := range slices.Sorted(maps.Keys(s.models)) {
		m := s.models[k]
		out = append(out, Checkpoint{Key: k, Updated: m.updated, CPU: m.cpu.distribution(), Memory: m.memory.distribution()})
	}
	return out
}

// Restore takes a model in, replacing what the set has under its key. It is kept for Config.Expire from now on, so that
// the pods of a node whose agent was away find theirs again. What no training can have left is an error, and the set is as
// before.
func (s *Set) Restore(now Wall, c Checkpoint) error {
	if c.Key == "" {
		return errors.New("restore a model: it has no key")
	}
	m := s.empty()
	m.updated, m.seen = c.Updated, now
	if err := m.cpu.restore(c.CPU, c.Updated); err != nil {
		return errors.New("restore model of " + string(c.Key) + ": cpu: " + err.Error())
	}
	if err := m.memory.restore(c.Memory, c.Updated); err != nil {
		return errors.New("restore model of " + string(c.Key) + ": memory: " + err.Error())
	}
	s.models[c.Key] = m
	return nil
}

func (h *histogram) distribution() Distribution {
	heaviest := slices.Max(h.weights)
	if heaviest <= 0 {
		return Distribution{}
	}
	d := Distribution{Reference: h.newest, Weights: map[int]uint32{}, Total: h.evidence()}
	for i, w := range h.weights {
		if scaled := math.Round(float64(w) / float64(heaviest) * maxWeight); scaled > 0 {
			d.Weights[i] = uint32(scaled)
		}
	}
	return d
}

// restore fills an empty histogram.
func (h *histogram) restore(d Distribution, updated Wall) error {
	sum, err := d.check(len(h.starts))
	if err != nil || sum == 0 {
		return err
	}
	h.ref, h.newest = d.Reference, updated
	if e := h.exponent(); e < -1 || e > maxHalfLives+1 {
		return errors.New("the reference time is " + number(e) + " half-lives before the last update")
	}
	for i, w := range d.Weights {
		h.weights[i] = float32(float64(w) / float64(sum) * d.Total)
	}
	if e := h.evidence(); e > maxEvidence {
		return errors.New("the evidence of " + number(e) + " samples, no training leaves so much")
	}
	return nil
}

// check returns the sum of the scaled weights.
func (d Distribution) check(buckets int) (sum uint64, err error) {
	for _, i := range slices.Sorted(maps.Keys(d.Weights)) {
		w := d.Weights[i]
		if i < 0 || i >= buckets {
			return 0, errors.New("bucket " + strconv.Itoa(i) + ", there are " + strconv.Itoa(buckets))
		}
		if w > maxWeight {
			return 0, errors.New("bucket " + strconv.Itoa(i) + " weighs " + strconv.Itoa(int(w)) + ", the most is " + strconv.Itoa(maxWeight))
		}
		sum += uint64(w)
	}
	switch {
	case !(d.Total >= 0 && d.Total <= maxTotal):
		return 0, errors.New("the total weight is " + number(d.Total))
	case sum == 0 != (d.Total == 0):
		return 0, errors.New("the total weight is " + number(d.Total) + ", but the buckets sum up to " + strconv.FormatUint(sum, 10))
	case sum > 0 && d.Reference == 0:
		return 0, errors.New("there is no reference time")
	}
	return sum, nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
