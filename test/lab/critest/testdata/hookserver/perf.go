//go:build linux && !cgo

// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package perf_group has no counters where there is no cgo: upstream reads them through libpfm. Its hook server imports the
// package and never asks it.
package perf_group

import (
	"errors"
	"os"
)

// PerfGroupCollector reads nothing.
type PerfGroupCollector struct{}

var errNoCounters = errors.New("built without counters")

// GetAndStartPerfGroupCollectorOnContainer is refused.
func GetAndStartPerfGroupCollectorOnContainer(*os.File, []int, []string) (*PerfGroupCollector, error) {
	return nil, errNoCounters
}

// GetContainerCyclesAndInstructionsGroup is refused.
func GetContainerCyclesAndInstructionsGroup(*PerfGroupCollector) (float64, float64, error) {
	return 0, 0, errNoCounters
}
