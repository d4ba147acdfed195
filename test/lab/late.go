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

// Excuses counts what a test has forgiven a late program.
type Excuses struct{ n int }

// Reporter is what is needed of a *testing.T.
type Reporter interface {
	Helper()
	Logf(format string, args ...any)
}

// Take tells whether err is excused: the program's log says that it was late, and no more than MostExcused are.
func (e *Excuses) Take(t Reporter, log string, err error) bool {
	t.Helper()
	if e.n >= MostExcused || Late(log) == 0 {
		return false
	}
	e.n++
	t.Logf("the program was late, which excuses: %v", err)
	return true
}
