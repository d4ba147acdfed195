// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// lateWords are how our programs log that they answered a request before all that it needs was in force.
var lateWords = [...]string{
	"decision is late",
	"cgroup is still being written at start",
	"claimed CPUs are still being freed at start",
}

// lateKeys stand before the pod or container that such a line is about.
var lateKeys = [...]string{" subject=", " where="}

// MostExcused is how often a part of a test forgives a value that follows its answer, unless it looks so often that excusedPart of its looks
// is more: what never comes in time is broken, and a slow machine is late in proportion to what it does.
const MostExcused = 3

// excusedPart is the part of all looks that a whole test may excuse, and a part of it that looks often: one in so many, and never all of them.
const excusedPart = 10

// Late is, from the log of one of our programs, the pod of each request that was answered before all of it was in force, as a machine
// without a free CPU makes it: the rest follows the answer then. A pod is "namespace/name".
func Late(log string) (pods []string) {
	for line := range strings.Lines(log) {
		late := func(words string) bool { return strings.Contains(line, words) }
		if slices.ContainsFunc(lateWords[:], late) {
			pods = append(pods, podIn(line))
		}
	}
	return pods
}

// podIn is the pod that a line is about, "" for none: "default/web/app" is of "default/web".
func podIn(line string) string {
	for _, key := range lateKeys {
		if _, rest, ok := strings.Cut(line, key); ok {
			subject, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			namespace, rest, _ := strings.Cut(strings.Trim(subject, `"`), "/")
			name, _, _ := strings.Cut(rest, "/")
			return namespace + "/" + name
		}
	}
	return ""
}

// Excuses are what a test forgives late programs: each time one pod, which has to be named by the program, MostExcused times in a part of
// the test, or one look in excusedPart where that is more, and in the whole of it one look in excusedPart.
type Excuses struct {
	whole        *whole
	looks, taken int // of this part; whole's lock is held
}

// whole counts over all parts of a test.
type whole struct {
	mu           sync.Mutex
	looks, taken int
}

// NewExcuses are those of a test that has excused nothing yet.
func NewExcuses() *Excuses { return &Excuses{whole: &whole{}} }

// Part are those of a part of the test, such as a subtest.
func (e *Excuses) Part() *Excuses { return &Excuses{whole: e.whole} }

// Look counts a look at what has to stand at that moment, of one pod or of what is above the pods.
func (e *Excuses) Look() {
	e.whole.mu.Lock()
	defer e.whole.mu.Unlock()
	e.looks++
	e.whole.looks++
}

// Reporter is what is needed of a *testing.T.
type Reporter interface {
	Helper()
	Logf(format string, args ...any)
}

// Take tells whether err is excused: one of the pods that it may be due to is among those that were late, and no more than the part of
// the test may have are.
func (e *Excuses) Take(t Reporter, late []string, err error, pods ...string) bool {
	t.Helper()
	at := slices.IndexFunc(late, func(pod string) bool { return slices.Contains(pods, pod) })
	if at < 0 {
		return false
	}
	e.whole.mu.Lock()
	defer e.whole.mu.Unlock()
	if e.taken >= max(MostExcused, e.looks/excusedPart) {
		t.Logf("%d values were excused by requests that were late: no more", e.taken)
		return false
	}
	e.taken++
	e.whole.taken++
	t.Logf("%s was late, so this may follow: %v", late[at], err)
	return true
}

// Err says that too much was excused in the whole test. A single excuse is none too many, unless it was the only look.
func (e *Excuses) Err() error {
	e.whole.mu.Lock()
	defer e.whole.mu.Unlock()
	looks, taken := e.whole.looks, e.whole.taken
	if taken == 0 || taken < looks && taken <= max(1, looks/excusedPart) {
		return nil
	}
	return fmt.Errorf("%d of %d looks at what has to stand at once were excused by late programs: no more than one in %d may be", taken, looks, excusedPart)
}
