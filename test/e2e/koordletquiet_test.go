// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"regexp"
	"strings"
)

// message is the text of a line of the log.
var message = regexp.MustCompile(`msg=("(?:[^"\\]|\\.)*"|\S+)`)

// saysLittle: on a node where nothing happens koordlet logs next to nothing in this many ticks, and nothing twice.
func (h *alone) saysLittle(ticks float64) {
	h.t.Helper()
	before := len(h.a.log.String())
	h.a.ticks(ticks, quietly)
	said := h.a.log.String()[before:]
	seen := map[string]int{}
	for _, m := range message.FindAllString(said, -1) {
		if seen[m]++; seen[m] == 2 {
			h.t.Errorf("twice in %v ticks of a quiet node: %s", ticks, m)
		}
	}
	if n := strings.Count(said, "\n"); n > 2 {
		h.t.Errorf("%d lines in %v ticks of a quiet node:\n%s", n, ticks, said)
	}
}
