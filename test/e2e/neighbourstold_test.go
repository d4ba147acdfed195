// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// interferes waits until koordlet tells one of some things about a pod, and returns it.
func (a *agent) interferes(since time.Time, run *kubelet.Running, whats ...string) (found string) {
	a.r.t.Helper()
	a.r.eventually(60*time.Second, func() error {
		list, err := a.events(since, func(r *journal.Record) bool { return r.Knob == "interference" })
		if err != nil {
			return err
		}
		var all []string
		for i := len(list) - 1; i >= 0; i-- {
			for _, what := range whats {
				if list[i].Target.Pod == run.Pod.UID && strings.HasPrefix(list[i].Reason, what) {
					found = run.Pod.Name + " " + list[i].Reason
					return nil
				}
			}
			all = append(all, list[i].Target.Name+": "+list[i].Reason)
		}
		return fmt.Errorf("nothing told of %s that begins with %q: %q", run.Pod.Name, whats, all)
	})
	return found
}

// eachTells waits until each signal tells that a pod is disturbed, in /events and in the metric.
func (l *loops) eachTells(run *kubelet.Running, since time.Time, signals []string) (told []string) {
	l.t.Helper()
	for _, s := range signals {
		told = append(told, l.a.interferes(since, run, "disturbed: "+s))
		l.a.feels(run, s)
	}
	return told
}

// eachIsOver waits until that is taken back.
func (l *loops) eachIsOver(run *kubelet.Running, since time.Time, signals []string) (told []string) {
	l.t.Helper()
	l.a.rests(run)
	for _, s := range signals {
		told = append(told, l.a.interferes(since, run, "no longer disturbed: "+s))
	}
	return told
}

// suffers is the metric of what disturbed pods feel.
const suffers = "koord_rt_koordlet_pod_disturbed"

// feels waits until the metric has a signal of a pod, and more of it than is usual.
func (a *agent) feels(run *kubelet.Running, signal string) {
	a.r.t.Helper()
	figure := func(which string) float64 {
		return a.figure(suffers, `pod_name="`+run.Pod.Name+`"`, `signal="`+signal+`"`, `figure="`+which+`"`)
	}
	a.r.eventually(20*time.Second, func() error {
		if now, usual := figure("now"), figure("usual"); now <= usual {
			return fmt.Errorf("by the metric %s of %s is %g, usually %g", signal, run.Pod.Name, now, usual)
		}
		return nil
	})
}

// rests waits until the metric has nothing of a pod.
func (a *agent) rests(run *kubelet.Running) {
	a.r.t.Helper()
	a.r.eventually(30*time.Second, func() error {
		m, err := a.figures()
		for name, v := range m {
			if strings.HasPrefix(name, suffers) && strings.Contains(name, `pod_name="`+run.Pod.Name+`"`) {
				return fmt.Errorf("%s is disturbed: %s %g", run.Pod.Name, name, v)
			}
		}
		return err
	})
}
