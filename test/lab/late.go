// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import "strings"

// lateWords are how our programs log that they answered a request before all that it needs was in force.
var lateWords = [...]string{
	"decision is late",
	"cgroup is still being written at start",
	"claimed CPUs are still being freed at start",
}

// MostExcused is how often a test forgives a value that follows its answer: what never comes in time is broken.
const MostExcused = 3

// Late counts in the log of one of our programs the requests that were answered before all of it was in force, as a machine
// without a free CPU makes it: the rest follows the answer then.
func Late(log string) (n int) {
	for _, words := range lateWords {
		n += strings.Count(log, words)
	}
	return n
}
