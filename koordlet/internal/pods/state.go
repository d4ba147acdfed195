// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Source of a snapshot.
type Source uint8

// The sources.
const (
	FromNobody Source = iota
	FromKubelet
	FromAPI
)

// String is a word for logs and metrics.
func (s Source) String() string { return [...]string{"none", "kubelet", "apiserver"}[min(int(s), 2)] }

// State says how much the snapshot is worth.
type State struct {
	// Source is whom the snapshot comes from; FromNobody before the first answer.
	Source Source
	// Good is when a source last confirmed it.
	Good time.Time
	// Current says that the source answered the last time it was asked.
	Current      bool
	Kubelet, API Health
	// Kept is the number of pods that vanished without having ended and are still kept.
	Kept int
	// Problems are about pods that could not be read, or not in full.
	Problems []string
	// Weakness says what the way to the kubelet gives up, empty when nothing.
	Weakness string
}

// Health of one source.
type Health struct {
	// Configured sources exist; OK says that the last answer was one. Reason says why not.
	Configured, OK bool
	Reason         string
	// Since is when OK changed last.
	Since time.Time
}

// learn takes what happened.
func (h *Health) learn(err error, now time.Time) {
	if ok := err == nil; ok != h.OK {
		h.OK, h.Since = ok, now
	}
	h.Reason = ""
	if err != nil {
		h.Reason = err.Error()
	}
}

// Degraded says in one line what is wrong, empty when nothing is.
func (s *State) Degraded() string {
	switch {
	case !s.Kubelet.Configured && !s.API.Configured:
		return "neither kubelet nor API server is configured: pods are known from the runtime only"
	case !s.Current && s.Source == FromNobody:
		return "no answer yet: " + s.reasons()
	case !s.Current:
		return fmt.Sprintf("pods as the %s knew them at %s: %s", s.Source, s.Good.UTC().Format(time.RFC3339), s.reasons())
	case s.Source == FromAPI && s.Kubelet.Configured && !s.Kubelet.OK && s.Kubelet.Reason != "":
		return "pods from the API server: " + s.Kubelet.Reason
	case s.Source == FromKubelet && s.API.Configured && !s.API.OK && s.API.Reason != "":
		return "pods from the kubelet: " + s.API.Reason
	case len(s.Problems) > 0:
		return some(s.Problems)
	}
	return s.Weakness
}

// named is how many problems a line tells.
const named = 3

// some is the first few problems, and how many there are beside them.
func some(problems []string) string {
	n := min(len(problems), named)
	out := strings.Join(problems[:n], "; ")
	if more := len(problems) - n; more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}

// reasons joins those of the configured sources.
func (s *State) reasons() string {
	out := ""
	for _, h := range []Health{s.Kubelet, s.API} {
		if h.Reason == "" {
			continue
		}
		if out != "" {
			out += "; "
		}
		out += h.Reason
	}
	return out
}

// describe is the state of now.
func (k *Keeper) describe(from Source, good time.Time) *State {
	s := &State{Source: from, Good: good, Kubelet: k.kubelet.Health, API: k.api.Health, Kept: len(k.missing)}
	if from != FromNobody {
		s.Current, s.Problems = k.of(from).OK, slices.Sorted(slices.Values(k.of(from).problems)) // a kubelet lists pods in any order
	}
	if k.o.Kubelet != nil {
		s.Weakness = k.o.Kubelet.Weakness()
	}
	return s
}
