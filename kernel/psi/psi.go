// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package psi reads pressure stall information, of the machine (/proc/pressure) and of cgroups (*.pressure), and waits for
// the kernel to say that a pressure has passed a threshold.
//
// Inputs are paths and thresholds; outputs are the totals and averages of a file, and a call back for each crossing. It
// imports kernel/root, kernel/scan, kernel/proc (for the type of its errors), golang.org/x/sys and the standard library.
// Kernel document: Documentation/accounting/psi.rst, Linux 4.20; triggers 5.2.
package psi

import (
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// Line is one line of a pressure file.
type Line struct {
	// Avg10 is the share of wall time of the last ten seconds, in hundredths of a percent.
	Avg10 uint64
	// TotalUS is the stall time in microseconds since boot, or since the cgroup was made.
	TotalUS uint64
}

// Stat is a pressure file.
type Stat struct {
	// Some: at least one task waited. Full: all tasks that were not idle waited.
	Some, Full Line
	// HasFull is false for cpu.pressure before Linux 5.13. For the whole machine's CPU the line is there and always zero.
	HasFull bool
}

// Parse reads a pressure file:
//
//	some avg10=0.12 avg60=0.05 avg300=0.01 total=43211
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=1099
//
// irq.pressure (Linux 6.1) has the second line only. Documentation/accounting/psi.rst. It does not allocate. On an error s is as before.
func Parse(b []byte, s *Stat) error {
	var out Stat
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		kind, rest := scan.Field(line)
		switch string(kind) {
		case "some":
			if !parseLine(rest, &out.Some) {
				return scan.ErrFormat
			}
			seen = true
		case "full":
			if !parseLine(rest, &out.Full) {
				return scan.ErrFormat
			}
			seen, out.HasFull = true, true
		}
	}
	if !seen {
		return scan.ErrFormat
	}
	*s = out
	return nil
}

// parseLine wants the total of a line of psi.rst; averages that a kernel may add or drop do not matter.
func parseLine(rest []byte, l *Line) bool {
	total := false
	for {
		var field []byte
		if field, rest = scan.Field(rest); len(field) == 0 {
			return total
		}
		key, value := scan.Pair(field)
		ok := true
		switch string(key) {
		case "avg10":
			l.Avg10, ok = scan.Hundredths(value)
		case "total":
			l.TotalUS, ok = scan.Uint(value)
			total = true
		}
		if !ok {
			return false
		}
	}
}
