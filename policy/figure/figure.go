// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package figure writes amounts the way people read them, for the reasons that the loops give.
//
// Inputs are quantities of model/unit, outputs short texts with their unit; at most two decimals, no trailing zeros. It
// imports model/unit and the standard library only; never fmt, os, net, log or time.
package figure

import (
	"math"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/unit"
)

// CPUs is "9.8 CPUs", "1 CPU".
func CPUs(m unit.MilliCPU) string {
	if m == 1000 {
		return "1 CPU"
	}
	return Cores(m) + " CPUs"
}

// Cores is CPUs without the word: "9.8".
func Cores(m unit.MilliCPU) string { return decimal(float64(m) / 1000) }

// Count is "1 pod", "3 pods".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Bytes is "10.56 GiB", "512 MiB", "4 KiB" or "17 B".
func Bytes(b unit.Bytes) string {
	for _, u := range [...]struct {
		size unit.Bytes
		name string
	}{{1 << 40, " TiB"}, {1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}} {
		if b >= u.size || b <= -u.size {
			return decimal(float64(b)/float64(u.size)) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// BytesOf is a part of a whole: "104 GiB of 128 GiB (81.25%)".
func BytesOf(part, whole unit.Bytes) string {
	return Bytes(part) + " of " + Bytes(whole) + " (" + Percent(unit.Part(part, whole)) + ")"
}

// CoresOf is a part of a whole: "28.8 of 32 CPUs (90%)".
func CoresOf(part, whole unit.MilliCPU) string {
	return Cores(part) + " of " + CPUs(whole) + " (" + Percent(unit.Part(part, whole)) + ")"
}

// Percent is "81.25%".
func Percent(f unit.Fraction) string { return decimal(float64(f)*100) + "%" }

// Duration is "250 ms", "1.5 s" or "12 min"; minutes from two on.
func Duration(m unit.Micros) string {
	switch {
	case m >= 2*unit.Minute:
		return decimal(float64(m)/float64(unit.Minute)) + " min"
	case m >= unit.Second:
		return decimal(m.Seconds()) + " s"
	default:
		return decimal(float64(m)/float64(unit.Millisecond)) + " ms"
	}
}

// Quota is "980000 µs", or "none" for unit.Unlimited.
func Quota(m unit.Micros) string {
	if m < 0 {
		return "none"
	}
	return strconv.FormatInt(int64(m), 10) + " µs"
}

// decimal rounds to two places and drops zeros at the end; no number at all is "?".
func decimal(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "?"
	}
	s := strconv.FormatFloat(f, 'f', 2, 64)
	s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}
