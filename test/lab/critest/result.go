// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result of one run. A spec's name is its containers' texts and its own, joined by
// spaces; they are unique in critest.
type Result struct {
	Passed  []string          // sorted
	Failed  map[string]string // name -> first line of why and where
	Skipped map[string]string // name -> why; specs left out by Focus or Skip are not here
	Slow    map[string]time.Duration
	Took    time.Duration // of the whole run, by the clock
}

// suiteReport is the part of ginkgo's JSON report (types.Report) that is read.
type suiteReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct {
			Message  string
			Location struct {
				FileName   string
				LineNumber int
			}
		}
	}
}

// slowSpec is from when a spec's own time is reported.
const slowSpec = 10 * time.Second

// parseReport reads a report of exactly one suite. A failed suite node (BeforeSuite) is an error.
func parseReport(data []byte) (Result, error) {
	var suites []suiteReport
	if err := json.Unmarshal(data, &suites); err != nil {
		return Result{}, fmt.Errorf("parse critest report: %w", err)
	}
	if len(suites) != 1 {
		return Result{}, fmt.Errorf("parse critest report: %d suites, want 1", len(suites))
	}
	r := Result{Failed: map[string]string{}, Skipped: map[string]string{}, Slow: map[string]time.Duration{}}
	for _, s := range suites[0].SpecReports {
		name := strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
		why, _, _ := strings.Cut(strings.TrimSpace(s.Failure.Message), "\n")
		if s.LeafNodeType != "It" {
			if s.State != "passed" {
				return Result{}, fmt.Errorf("critest's %s %s: %s", s.LeafNodeType, s.State, why)
			}
			continue
		}
		switch s.State {
		case "passed":
			r.Passed = append(r.Passed, name)
		case "skipped":
			if why != "" { // otherwise left out by name
				r.Skipped[name] = why
			}
		case "pending":
			r.Skipped[name] = "pending"
		default:
			file := s.Failure.Location.FileName
			r.Failed[name] = fmt.Sprintf("%s: %s (%s:%d)", s.State, why, file[strings.LastIndexByte(file, '/')+1:], s.Failure.Location.LineNumber)
		}
		if s.RunTime >= slowSpec {
			r.Slow[name] = s.RunTime.Round(100 * time.Millisecond)
		}
	}
	slices.Sort(r.Passed)
	return r, nil
}

// String lists failures, skips and slow specs, for a test's log.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "critest: %d passed, %d failed, %d skipped in %s", len(r.Passed), len(r.Failed), len(r.Skipped), r.Took.Round(100*time.Millisecond))
	for _, n := range slices.Sorted(maps.Keys(r.Failed)) {
		fmt.Fprintf(&b, "\n  failed: %s: %s", n, r.Failed[n])
	}
	for _, n := range slices.Sorted(maps.Keys(r.Skipped)) {
		fmt.Fprintf(&b, "\n  skipped: %s: %s", n, r.Skipped[n])
	}
	for _, n := range slices.Sorted(maps.Keys(r.Slow)) {
		fmt.Fprintf(&b, "\n  slow: %s: %s", n, r.Slow[n])
	}
	return b.String()
}

// CompareSets checks that the specs that pass directly are the specs that pass through a
// proxy, and that they are at least the wanted number. The error names every
// difference with the reason that the other run gave.
func CompareSets(direct, proxied Result, atLeast int) error {
	var errs []error
	if len(direct.Passed) < atLeast {
		errs = append(errs, fmt.Errorf("%d specs pass directly, want at least %d", len(direct.Passed), atLeast))
	}
	for _, n := range direct.Passed {
		if !slices.Contains(proxied.Passed, n) {
			errs = append(errs, fmt.Errorf("passes directly, not through the proxy: %s: %s", n, proxied.reason(n)))
		}
	}
	for _, n := range proxied.Passed {
		if !slices.Contains(direct.Passed, n) {
			errs = append(errs, fmt.Errorf("passes through the proxy, not directly: %s: %s", n, direct.reason(n)))
		}
	}
	return errors.Join(errs...)
}

func (r Result) reason(name string) string {
	if why, ok := r.Failed[name]; ok {
		return why
	}
	if why, ok := r.Skipped[name]; ok {
		return "skipped: " + why
	}
	return "not run"
}
