// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

import "strings"

// A value of [IOCostQoS] or [IOCostModel] is the words of a disk's line in io.cost.qos or io.cost.model, without the disk's number: "enable=1
// ctrl=user rpct=95.00 rlat=5000" (Documentation/admin-guide/cgroup-v2.rst, IO Interface Files). A write changes the words that it names;
// what is read has them all.

// CostOff is what the kernel does with a disk that has no line yet: it keeps no cost, and has figures of its own.
func CostOff(k Knob) string {
	if k == IOCostModel {
		return "ctrl=auto"
	}
	return "enable=0 ctrl=auto"
}

// CostWords are the words of a line that make it again when they are written. Under ctrl=auto the kernel chooses the figures by the kind
// of the disk; to name one would make it ctrl=user.
//
//	"enable=1 ctrl=auto rpct=0.00 rlat=25000" → "enable=1 ctrl=auto"
func CostWords(line string) string {
	if CostWord(line, "ctrl") != "auto" {
		return line
	}
	var words []string
	for w := range strings.FieldsSeq(line) {
		if strings.HasPrefix(w, "enable=") || strings.HasPrefix(w, "ctrl=") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// CostHeld reports whether a disk's line has every word of a value, as far as a value can say it ([CostWords]).
func CostHeld(value, line string) bool {
	auto := CostWord(value, "ctrl") == "auto"
	for w := range strings.FieldsSeq(value) {
		name, want, ok := strings.Cut(w, "=")
		if auto && name != "enable" && name != "ctrl" {
			continue
		}
		if !ok || CostWord(line, name) != want {
			return false
		}
	}
	return true
}

// CostWord is the figure of one word of a line, "" where it has none.
func CostWord(line, name string) string {
	for w := range strings.FieldsSeq(line) {
		if n, figure, ok := strings.Cut(w, "="); ok && n == name {
			return figure
		}
	}
	return ""
}
