// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"github.com/koord-rt/koord-rt/model/unit"
)

// NotNormalized is the ratio of CPUs that count as they are: 1.00.
const NotNormalized unit.Ratio = 100

// Switch is what a node's label says: nothing, on, or off.
type Switch uint8

// Values of a Switch.
const (
	NotSaid Switch = iota
	On
	Off
)

// Normalization is what is known of a node's CPUs and what the cluster says of them.
type Normalization struct {
	// Enabled by the strategy; the label goes before it.
	Enabled bool
	Label   Switch
	// Ratio that the strategy has for the node's CPU model; not OK where the node has not told its model, or the strategy
	// says nothing of it. Problem is why.
	Ratio   float64
	OK      bool
	Problem string
}

// Normalize is the ratio of the node's CPUs to the slowest of the cluster, in hundredths: 1.00 when it is off. With a problem
// the ratio that the node has stays.
//
// Example: 1.2 → 1.20; off → 1.00; 5.5 → a problem.
func Normalize(in Normalization) (ratio unit.Ratio, problem string) {
	if in.Label == Off || in.Label == NotSaid && !in.Enabled {
		return NotNormalized, ""
	}
	if !in.OK {
		return 0, in.Problem
	}
	if !(in.Ratio >= 1 && in.Ratio <= 5) {
		return 0, "the ratio of the CPU model must be from 1 to 5"
	}
	return hundredths(in.Ratio), ""
}

// Normalized is batch CPU in CPUs of the slowest kind: × ratio where that is more than one, rounded down.
//
// Example: 25000 × 1.20 = 30000.
func Normalized(cpu unit.MilliCPU, ratio unit.Ratio) unit.MilliCPU {
	if ratio <= NotNormalized {
		return cpu
	}
	return unit.Percent(ratio).Milli(cpu)
}

// Amplify is by how much each resource of the node is told larger than it is: the strategy's ratios, CPU's × the normalisation
// of now, in hundredths. A resource with a ratio of one is left out. A ratio below one is a problem and changes nothing.
//
// Example: cpu 1.5 and memory 1.0 with normalisation 1.20: cpu 1.80.
func Amplify(ratios map[string]float64, normalization unit.Ratio) (out map[string]unit.Ratio, problem string) {
	out = map[string]unit.Ratio{}
	for name, r := range ratios {
		if !(r >= 1) || r > maxAmplification {
			return nil, "the amplification ratio of " + name + " must be from 1 to 100"
		}
		out[name] = hundredths(r)
	}
	const cpu = "cpu"
	if normalization > NotNormalized {
		own, ok := ratios[cpu]
		if !ok {
			own = 1
		}
		out[cpu] = hundredths(own * float64(normalization) / 100)
	}
	for name, r := range out {
		if r <= 100 {
			delete(out, name)
		}
	}
	return out, ""
}

// maxAmplification keeps a slip of the pen from telling a node to be a thousand.
const maxAmplification = 100

func hundredths(f float64) unit.Ratio { return unit.Ratio(f*100 + 0.5) }
