// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AnnotationLendingWeight on a Node says what part of the usual is lent out of a node that is not sound, and why. A sound node has
// none. koord-manager writes it, and reads it back: what a node has lost comes back step by step, whoever leads meanwhile.
const AnnotationLendingWeight = "koord-rt.dev/lending-weight"

// Words of [LendingWeight.Reasons].
const (
	// UnsoundStale: the node has not reported for some time.
	UnsoundStale = "stale-report"
	// UnsoundContradiction: what it reports cannot be.
	UnsoundContradiction = "contradictory-report"
	// UnsoundMemory, UnsoundDisk and UnsoundPIDs: the kubelet says that it is short of them.
	UnsoundMemory = "memory-pressure"
	UnsoundDisk   = "disk-pressure"
	UnsoundPIDs   = "pid-pressure"
	// UnsoundEvictions: its agent has evicted many pods of late.
	UnsoundEvictions = "evictions"
)

// unsound are the words in order.
var unsound = []string{UnsoundStale, UnsoundContradiction, UnsoundMemory, UnsoundDisk, UnsoundPIDs, UnsoundEvictions}

// LendingWeight is the value of [AnnotationLendingWeight].
type LendingWeight struct {
	// Percent of what would be lent out of a sound node, 0 to 99.
	Percent int64
	// Reasons are why, or, of a node that is recovering, why it was.
	Reasons []string
	// Since is when the percentage was last changed, in seconds of Unix time.
	Since int64
}

// lendingWeight is how it is written.
type lendingWeight struct {
	Percent *int64   `json:"percent"`
	Reasons []string `json:"reasons,omitempty"`
	Since   string   `json:"since"`
}

// ParseLendingWeight reads {"percent":50,"reasons":["memory-pressure"],"since":"2026-11-22T12:00:00Z"}.
func ParseLendingWeight(s string) (LendingWeight, error) {
	var wire lendingWeight
	if err := decode(s, &wire); err != nil {
		return LendingWeight{}, err
	}
	if wire.Percent == nil || *wire.Percent < 0 || *wire.Percent > 99 {
		return LendingWeight{}, errors.New("percent: want 0..99")
	}
	since, err := time.Parse(time.RFC3339, wire.Since)
	if since = since.UTC(); err != nil || since.Unix() < 0 || since.Year() > 9999 {
		return LendingWeight{}, fmt.Errorf("since: %s, want a time such as 2026-11-22T12:00:00Z", quote(wire.Since))
	}
	for i, r := range wire.Reasons {
		if !slices.Contains(unsound, r) {
			return LendingWeight{}, fmt.Errorf("reasons: %s is none; known are %s", quote(r), strings.Join(unsound, ", "))
		}
		if slices.Contains(wire.Reasons[:i], r) { // there is a metric of each
			return LendingWeight{}, fmt.Errorf("reasons: %s stands twice", quote(r))
		}
	}
	out := LendingWeight{Percent: *wire.Percent, Since: since.Unix()}
	if len(wire.Reasons) > 0 {
		out.Reasons = wire.Reasons
	}
	return out, nil
}

// FormatLendingWeight writes it.
func FormatLendingWeight(w LendingWeight) string {
	return encode(lendingWeight{Percent: &w.Percent, Reasons: w.Reasons, Since: time.Unix(w.Since, 0).UTC().Format(time.RFC3339)})
}
