// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package interference

import (
	"math"

	"github.com/koord-rt/koord-rt/model/unit"
)

// Figures of baselines.
const (
	halfLife = 30 * unit.Minute
	// A baseline is worth something after warmSamples samples over Pace.History.
	warmSamples = 20
	// confirm and calmAfter are how many samples in a row change the state.
	confirm   = 3
	calmAfter = 5
	highSigma = 3
	calmSigma = 1.5
	// adopt is when what was disturbed is taken for normal.
	adopt = 30 * unit.Minute
	// excessMost bounds what one sample can say, valueMost what can be a sample.
	excessMost = 100
	valueMost  = 1e15
	// gone is how long an excess counts without a new sample.
	gone = 90 * unit.Second
	// longest is the longest time that one sample can stand for.
	longest = 2 * unit.Minute
)

// Baseline is what is usual for one signal of one pod, and whether it is disturbed. Instants are 0 when they do not apply.
type Baseline struct {
	Mean float64 `json:"mean,omitempty"`
	Var  float64 `json:"var,omitempty"`
	// Count of samples learned, FirstAt and LastAt of the first and the last sample.
	Count   int64       `json:"count,omitempty"`
	FirstAt unit.Micros `json:"firstAt,omitempty"`
	LastAt  unit.Micros `json:"lastAt,omitempty"`
	// Highs and Lows count samples in a row; HighAt is when a row of high ones began.
	Highs  int         `json:"highs,omitempty"`
	Lows   int         `json:"lows,omitempty"`
	HighAt unit.Micros `json:"highAt,omitempty"`
	// Disturbed since Since, with the last value and its excess.
	Disturbed bool        `json:"disturbed,omitempty"`
	Since     unit.Micros `json:"since,omitempty"`
	Value     float64     `json:"value,omitempty"`
	Excess    float64     `json:"excess,omitempty"`
}

// reset forgets instants and keeps what was learned; a warm baseline stays warm.
func (b *Baseline) reset() {
	*b = Baseline{Mean: b.Mean, Var: b.Var, Count: b.Count}
}

// warm says that the baseline may be judged by, after a history of that length.
func (b *Baseline) warm(history unit.Micros) bool {
	return b.Count >= warmSamples && (b.FirstAt == 0 || b.LastAt-b.FirstAt >= history)
}

// sigma is the deviation, not below a twentieth of the mean and of the signal's least.
func (b *Baseline) sigma(least float64) float64 {
	return max(math.Sqrt(max(b.Var, 0)), math.Abs(b.Mean)/20, least/20)
}

// learn moves mean and variance towards x: by 1/(n+1) at first, later by what the time since the last sample is worth.
func (b *Baseline) learn(x float64, now unit.Micros) {
	a := 1.0
	if b.Count > 0 {
		a = 1 / float64(b.Count+1)
		if b.LastAt > 0 {
			a = max(a, 1-math.Exp2(-min(now-b.LastAt, longest).Seconds()/halfLife.Seconds()))
		}
	}
	diff := x - b.Mean
	b.Mean += a * diff
	b.Var = (1 - a) * (b.Var + a*diff*diff)
	b.Count++
}

// see takes one sample. High says that it is above the band; the state changes after some of a kind in a row.
func (b *Baseline) see(x float64, now unit.Micros, f *facts, history unit.Micros) (high bool) {
	if b.FirstAt == 0 && b.Count == 0 {
		b.FirstAt = now
	}
	if !b.warm(history) {
		b.learn(x, now)
		b.LastAt, b.Value = now, x
		return false
	}
	sigma := b.sigma(f.least)
	b.Value, b.Excess = x, min(max((x-b.Mean)/max(b.Mean, f.least), 0), excessMost)
	high = x > b.Mean+highSigma*sigma && x > b.Mean*(1+f.margin) && x >= f.least
	switch {
	case high:
		if b.Highs == 0 {
			b.HighAt = now
		}
		b.Highs, b.Lows = min(b.Highs+1, confirm), 0
		if b.Highs == confirm && !b.Disturbed {
			b.Disturbed, b.Since = true, b.HighAt
		}
	case b.Disturbed:
		b.Highs = 0
		if x < b.Mean+calmSigma*sigma {
			b.Lows++
		} else {
			b.Lows = 0
		}
		if b.Lows >= calmAfter {
			b.Disturbed, b.Since, b.Lows, b.HighAt = false, 0, 0, 0
		}
	default:
		b.Highs, b.HighAt = 0, 0
		b.learn(x, now)
	}
	if b.Disturbed && now-b.Since >= adopt {
		*b = Baseline{FirstAt: now, Value: x}
		b.learn(x, now)
	}
	b.LastAt = now
	return high
}

// excess is what counts of the last sample now.
func (b *Baseline) excess(now unit.Micros) float64 {
	if b.LastAt == 0 || now-b.LastAt > gone {
		return 0
	}
	return b.Excess
}
