// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import "math"

// packed is a block of ten seconds in 56 bits, little endian:
//
//	bits 0..15   the largest sample as a small float (toSmall)
//	bits 16..25  smallest / largest in 1023rds
//	bits 26..55  three bits per second: 0 is a gap, 1..7 the level: smallest + (level-1)/6 · (largest - smallest)
//
// The zero value is a block without samples.
type packed [7]byte

const (
	ratioBits, ratioMax = 10, 1<<10 - 1
	levelBits, levels   = 3, 6 // steps between smallest and largest
	ratioShift          = 16
	levelShift          = ratioShift + ratioBits
)

func pack(t *[perBlock]uint32) packed {
	var lo, hi uint32
	for _, v := range t {
		if v == 0 {
			continue
		}
		if lo == 0 || v < lo {
			lo = v
		}
		hi = max(hi, v)
	}
	if hi == 0 {
		return packed{}
	}
	small, large := decode(lo), decode(hi)
	word := uint64(toSmall(large))
	if large > 0 {
		word |= uint64(math.Round(small/large*ratioMax)) << ratioShift
	}
	for i, v := range t {
		if v == 0 {
			continue
		}
		level := uint64(1)
		if large > small {
			level += uint64(math.Round((decode(v) - small) / (large - small) * levels))
		}
		word |= level << (levelShift + levelBits*i)
	}
	var p packed
	for i := range p {
		p[i] = byte(word >> (8 * i))
	}
	return p
}

func (p packed) unpack(t *[perBlock]uint32) {
	var word uint64
	for i, b := range p {
		word |= uint64(b) << (8 * i)
	}
	large := fromSmall(uint16(word))
	small := large * float64(word>>ratioShift&ratioMax) / ratioMax
	for i := range t {
		t[i] = 0
		if level := word >> (levelShift + levelBits*i) & (1<<levelBits - 1); level > 0 {
			t[i], _ = encode(small + float64(level-1)/levels*(large-small))
		}
	}
}

// A small float has 6 bits of exponent (bias 15), 10 of mantissa and no sign: 6e-5 .. 5.6e14 to 0.05 %, below in steps of
// 6e-8, above held at the largest. Bytes of the largest machines and fractions of a core both fit.
const (
	smallMantissa = 10
	smallBias     = 15
	smallLargest  = 1<<16 - 1
)

func toSmall(v float64) uint16 {
	if v < 1.0/(1<<(smallBias-1)) { // subnormal; rounding up to the first normal number gives its bits
		return uint16(math.Round(v * (1 << (smallBias - 1 + smallMantissa))))
	}
	frac, exp := math.Frexp(v) // v = frac · 2^exp, frac in [0.5, 1)
	bits := (exp-1+smallBias)<<smallMantissa + int(math.Round((2*frac-1)*(1<<smallMantissa)))
	return uint16(min(bits, smallLargest)) // a mantissa rounded up to 1024 carries into the exponent
}

func fromSmall(b uint16) float64 {
	exp, mantissa := int(b>>smallMantissa), float64(b&(1<<smallMantissa-1))
	if exp == 0 {
		return mantissa / (1 << (smallBias - 1 + smallMantissa))
	}
	return math.Ldexp(1+mantissa/(1<<smallMantissa), exp-smallBias)
}
