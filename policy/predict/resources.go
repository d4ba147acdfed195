// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"math"

	"github.com/koord-rt/koord-rt/model/unit"
)

// Resources is an amount of both resources.
type Resources struct {
	CPU    unit.MilliCPU
	Memory unit.Bytes
}

func (r Resources) plus(o Resources) Resources {
	return Resources{unit.Add(r.CPU, o.CPU), unit.Add(r.Memory, o.Memory)}
}

// less is max(r − o, 0), by resource.
func (r Resources) less(o Resources) Resources {
	return Resources{max(r.CPU-o.CPU, 0), max(r.Memory-o.Memory, 0)}
}

func (r Resources) least(o Resources) Resources {
	return Resources{min(r.CPU, o.CPU), min(r.Memory, o.Memory)}
}

func (r Resources) most(o Resources) Resources {
	return Resources{max(r.CPU, o.CPU), max(r.Memory, o.Memory)}
}

// with is r plus p percent of it.
func (r Resources) with(p unit.Percent) Resources {
	return r.plus(Resources{p.Milli(r.CPU), p.Of(r.Memory)})
}

// round makes whole amounts of measured ones, upwards: a peak is never rounded away.
func round(cores, bytes float64) Resources {
	const hair = 1e-6 // 1.1 cores are 1100 milli, although 1.1 · 1000 is a little more in floats
	return Resources{unit.MilliCPU(math.Ceil(cores*1000 - hair)), unit.Bytes(math.Ceil(bytes))}
}
