// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"regexp"
	"slices"
	"strings"
)

// message is the text of a line of the log.
var message = regexp.MustCompile(`msg=("(?:[^"\\]|\\.)*"|\S+)`)

// ofEvents are messages that tell of what has happened to pods or their settings, and may have on a machine with other work.
var ofEvents = []string{"interference", `"wrote what the writer that goes first has left"`}

// saysLittle: on a node where nothing happens koordlet logs next to nothing in this many ticks: no message comes again each few of them, and all
// together are fewer than one a tick. One that comes by an event may come again where pods beside compute.
func (h *alone) saysLittle(ticks int) {
	h.t.Helper()
	before := len(h.a.log.String())
	h.a.ticks(float64(ticks), quietly)
	text := h.a.log.String()
	if before > 0 && text[before-1] != '\n' { // what was half written is of the time before
		before += strings.IndexByte(text[before:], '\n') + 1
	}
	lines, seen := 0, map[string]int{}
	for line := range strings.Lines(text[before:]) {
		m := message.FindStringSubmatch(line)
		if m == nil || slices.Contains(ofEvents, m[1]) {
			continue
		}
		lines++
		seen[m[1]]++
	}
	for m, n := range seen {
		if n > ticks/5 {
			h.t.Errorf("%d times in %d ticks of a quiet node: %s", n, ticks, m)
		}
	}
	if lines >= ticks {
		h.t.Errorf("%d lines in %d ticks of a quiet node:\n%s", lines, ticks, text[before:])
	}
}
