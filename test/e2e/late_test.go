// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// late counts what koord-nri and the proxy have answered too early in this test, but for what was meant to be late.
func (r *rig) late() int {
	n := lab.Late(r.log.String())
	if r.proxyLog != nil {
		n += lab.Late(r.proxyLog.String())
	}
	return n - r.meant
}

// meantLate: what has been late until now the test has brought about, and it excuses nothing that follows.
func (r *rig) meantLate() { r.meant += r.late() }

// excused tells whether a value may follow the answer, which our programs do where they get no CPU: only where they have said so.
func (r *rig) excused(err error) bool {
	r.t.Helper()
	for end := time.Now().Add(time.Second); r.late() == 0; time.Sleep(10 * time.Millisecond) { // the line may still be in the pipe
		if time.Now().After(end) {
			return false
		}
	}
	if r.excuses++; r.excuses > lab.MostExcused {
		r.t.Logf("%d values were excused by requests that were late: no more", lab.MostExcused)
		return false
	}
	r.t.Logf("%d requests were late, so this may follow: %v", r.late(), err)
	return true
}

// unmarked tells whether a container that has no mark of ours may lack it: its creation was decided late and went on as it came. What is
// in force follows then, a mark does not, nor do variables and devices.
func (r *rig) unmarked(container string) bool {
	r.t.Helper()
	return r.excused(fmt.Errorf("%s has no mark", container))
}

// now fails when a value does not stand at this moment, or soon where somebody was late.
func (r *rig) now(run *kubelet.Running, wants []string) {
	r.t.Helper()
	for _, w := range wants {
		err := r.differs(run, []string{w})
		if err != nil && r.excused(err) {
			r.soon(shortest, run, wants)
			return
		}
		if err != nil {
			r.t.Error(err)
		}
	}
}

// told compares a container's own words with the wanted values of its level and of its pod's. Where somebody was late, what it
// read is of before, and the values have to stand soon.
func (r *rig) told(run *kubelet.Running, key, value string, wants []string) {
	r.t.Helper()
	var said map[string]string
	r.eventually(5*time.Second, func() (err error) {
		said, err = r.words(run)
		return err
	})
	var wrong []error
	if said[key] != value {
		wrong = append(wrong, fmt.Errorf("%s says %s = %q, want %q", run.Pod.Name, key, said[key], value))
	}
	for _, w := range wants {
		what, value, _ := strings.Cut(w, "=")
		level, file, _ := strings.Cut(what, " ")
		if level == "pod" {
			file = "pod." + file
		}
		if said[file] != value {
			wrong = append(wrong, fmt.Errorf("%s: before anything else the container read %s = %q, want %q", run.Pod.Name, file, said[file], value))
		}
	}
	if len(wrong) > 0 && r.excused(wrong[0]) {
		r.soon(shortest, run, append(subject(key, value), wants...))
		return
	}
	for _, err := range wrong {
		r.t.Error(err)
	}
}

// subject is what a container says as a line of wants; none for what is not its own or its pod's.
func subject(key, value string) []string {
	file, pod := strings.CutPrefix(key, "pod.")
	switch {
	case key == "@allowed":
		return []string{"main cpuset.cpus=" + value}
	case pod:
		return []string{"pod " + file + "=" + value}
	case strings.HasPrefix(key, "above."), strings.HasSuffix(key, ".cpuset.cpus"): // of the directory above, of a neighbour
		return nil
	}
	return []string{"main " + key + "=" + value}
}
