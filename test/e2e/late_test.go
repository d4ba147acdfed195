// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// late are the pods of requests that koord-nri and the proxy have answered too early in this test, but for what was meant to be late.
func (r *rig) late() []string {
	pods := lab.Late(r.log.String()[r.meant[0]:])
	if r.proxyLog != nil {
		pods = append(pods, lab.Late(r.proxyLog.String()[r.meant[1]:])...)
	}
	return pods
}

// meantLate: what has been late until now the test has brought about, and it excuses nothing that follows.
func (r *rig) meantLate() {
	r.meant[0] = len(r.log.String())
	if r.proxyLog != nil {
		r.meant[1] = len(r.proxyLog.String())
	}
}

// excused tells whether a value may follow the answer, which our programs do where they get no CPU: only where they have said so of one of
// the pods that it is due to.
func (r *rig) excused(err error, pods ...string) bool {
	r.t.Helper()
	due := func(pod string) bool { return slices.Contains(pods, pod) }
	// The line may still be in the pipe. Not for shortest, since each error that nothing excuses waits for it.
	for end := time.Now().Add(patience(5 * time.Second)); !slices.ContainsFunc(r.late(), due); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return r.excuses.Take(r.t, r.late(), err, pods...)
}

// lacking is a value that does not stand; cpus: it says which CPUs its pod may use.
type lacking struct {
	err  error
	cpus bool
}

// ofCPUs tells whether a file or attribute is about the CPUs that a container may use.
func ofCPUs(file string) bool { return strings.HasPrefix(file, "cpuset.cpus") || file == "@allowed" }

// unexcused is what remains of wrong values of one pod, or of what several are summed up in: a late pod excuses what is its own. Of a pod that
// has to leave CPUs to another one, those may be wrong because that other one is late.
func (r *rig) unexcused(wrong []lacking, due ...string) (left []error) {
	r.t.Helper()
	var cpus, others []error
	for _, w := range wrong {
		if w.cpus {
			cpus = append(cpus, w.err)
		} else {
			others = append(others, w.err)
		}
	}
	all := slices.Concat(cpus, others)
	switch {
	case len(all) == 0, r.excused(errors.Join(all...), due...):
		return nil
	case len(cpus) > 0 && r.excused(errors.Join(cpus...), r.claimants()...):
		return others
	}
	return all
}

// claimants are the pods that own CPUs: the others make room for them.
func (r *rig) claimants() (pods []string) {
	for _, run := range r.kube.Pods() {
		if class := run.Pod.Labels[protocol.LabelQoSClass]; class == "LSR" || class == "LSE" {
			pods = append(pods, run.Pod.FullName())
		}
	}
	return pods
}

// unmarked tells whether a container that has no mark of ours may lack it: its creation was decided late and went on as it came. What is
// in force follows then, a mark does not, nor do variables and devices.
func (r *rig) unmarked(pod string) bool {
	r.t.Helper()
	return r.excusedLook(fmt.Errorf("%s has no mark", pod), pod)
}

// excusedLook is excused for what is looked at for that only.
func (r *rig) excusedLook(err error, pod string) bool {
	r.t.Helper()
	ok := r.excused(err, pod)
	if ok {
		r.excuses.Look()
	}
	return ok
}

// now fails when a value does not stand at this moment, or soon where somebody was late.
func (r *rig) now(run *kubelet.Running, wants []string) {
	r.t.Helper()
	r.excuses.Look()
	var wrong []lacking
	for _, w := range wants {
		if err := r.differs(run, []string{w}); err != nil {
			what, _, _ := strings.Cut(w, "=")
			_, file, _ := strings.Cut(what, " ")
			wrong = append(wrong, lacking{err, ofCPUs(file)})
		}
	}
	left := r.unexcused(wrong, run.Pod.FullName())
	for _, err := range left {
		r.t.Error(err)
	}
	if len(wrong) > 0 && len(left) == 0 {
		r.soon(shortest, run, wants)
	}
}

// told is toldBy of a pod's main container.
func (r *rig) told(run *kubelet.Running, key, value string, wants []string) {
	r.t.Helper()
	r.toldBy(run, "main", key, value, wants)
}

// toldBy compares a container's own words with the wanted values of its level and of its pod's. Where somebody was late, what it
// read is of before, and the values have to stand soon; those of a container that has ended stand nowhere any more.
func (r *rig) toldBy(run *kubelet.Running, container, key, value string, wants []string) {
	r.t.Helper()
	var said map[string]string
	r.eventually(5*time.Second, func() (err error) {
		said, err = r.words(run, container)
		return err
	})
	r.excuses.Look()
	var wrong []lacking
	if said[key] != value {
		wrong = append(wrong, lacking{fmt.Errorf("%s of %s says %s = %q, want %q", container, run.Pod.Name, key, said[key], value), ofCPUs(key)})
	}
	for _, w := range wants {
		what, value, _ := strings.Cut(w, "=")
		level, file, _ := strings.Cut(what, " ")
		if level == "pod" {
			file = "pod." + file
		}
		if said[file] != value {
			wrong = append(wrong, lacking{fmt.Errorf("%s: before anything else %s read %s = %q, want %q", run.Pod.Name, container, file, said[file], value), ofCPUs(file)})
		}
	}
	left := r.unexcused(wrong, run.Pod.FullName())
	for _, err := range left {
		r.t.Error(err)
	}
	if len(wrong) > 0 && len(left) == 0 && container == "main" {
		r.soon(shortest, run, append(subject(key, value), wants...))
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
