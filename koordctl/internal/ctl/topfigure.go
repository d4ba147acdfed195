// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/model/unit"
)

// share is used / whole; nil when either is not known.
func share[T unit.MilliCPU | unit.Bytes](used *T, whole T) *unit.Fraction {
	if used == nil || whole <= 0 {
		return nil
	}
	f := unit.Part(*used, whole)
	return &f
}

// bar is a picture of a share, in eighths of a column; dots where nothing is known.
func bar(f *unit.Fraction, width int) string {
	if f == nil {
		return strings.Repeat("·", width)
	}
	const eighths = "▏▎▍▌▋▊▉█"
	n := int(math.Round(min(max(float64(*f), 0), 1) * float64(8*width)))
	if *f > 0 && n == 0 {
		n = 1 // a little is not nothing
	}
	out := strings.Repeat("█", n/8)
	left := width - n/8
	if part := n % 8; part > 0 {
		out += string([]rune(eighths)[part-1])
		left--
	}
	return out + strings.Repeat("░", left)
}

// none is a figure that is not known, or a limit that there is not.
const none = "-"

// cpuText is CPUs: "0.05", "12.5".
func cpuText(m *unit.MilliCPU) string {
	if m == nil {
		return none
	}
	digits := 2
	switch {
	case *m%1000 == 0:
		digits = 0
	case *m >= 10000:
		digits = 1
	}
	return strconv.FormatFloat(float64(*m)/1000, 'f', digits, 64)
}

// memoryText is memory in the unit that leaves one to four digits before the point: "512 MiB", "12.5 GiB".
func memoryText(b *unit.Bytes) string {
	if b == nil {
		return none
	}
	const units = "KMGTPE"
	v, i := float64(*b), -1
	for v >= 1000 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	switch {
	case i < 0:
		return strconv.FormatInt(int64(*b), 10) + " B"
	case v < 10 && v != math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i:i+1] + "iB"
	}
	return strconv.FormatFloat(math.Round(v), 'f', 0, 64) + " " + units[i:i+1] + "iB"
}

// orNone is a request or a limit, for which 0 is none.
func orNone[T unit.MilliCPU | unit.Bytes](text func(*T) string, v T) string {
	if v == 0 {
		return none
	}
	return text(&v)
}

// percent is a ratio: "0 %", "3.2 %", "48 %".
func percent(f *unit.Fraction) string {
	if f == nil {
		return none
	}
	v := 100 * float64(*f)
	if v < 9.95 && v >= 0.05 {
		return strconv.FormatFloat(v, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " %"
}

// span is a length of time in its two largest units: "4s", "3h12m", "9d4h".
func span(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	day := 24 * time.Hour
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return two(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "m")
	}
	return two(d, day, "d", time.Hour, "h")
}

func two(d, large time.Duration, l string, small time.Duration, s string) string {
	out := strconv.Itoa(int(d/large)) + l
	if rest := int(d % large / small); rest > 0 {
		out += strconv.Itoa(rest) + s
	}
	return out
}
