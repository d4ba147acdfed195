// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package llc

import (
	"slices"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// contains reports whether the map names one of the ids.
func contains[T any](m map[int]T, ids []int) bool {
	for id := range m {
		if slices.Contains(ids, id) {
			return true
		}
	}
	return false
}

// unknown reports cache ids of a map that this node has not, lowest first.
func unknown[T any](problems []protocol.Problem, m map[int]T, ids []int) []protocol.Problem {
	var missing []int
	for id := range m {
		if !slices.Contains(ids, id) {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	for _, id := range missing[:min(len(missing), 8)] {
		problems = problem(problems, "this node has no cache "+strconv.Itoa(id))
	}
	return problems
}
