// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// sharedCPU is where one pod works, and best effort computes when it disturbs. anywhere is no CPU in particular.
const (
	sharedCPU = "6"
	anywhere  = "any"
)

// limitedPod has a CPU and no burst.
func limitedPod() kubelet.Pod {
	p := levelPod("limited-ls", "LS", "64Mi")
	p.Annotations = map[string]string{"koordinator.sh/cpuBurst": `{"policy":"none"}`}
	return p
}

// disturbedOnCPU: the one computes for 400 ms and rests for 100, the other computes all the time, on the same CPU. Best effort weighs eight times
// as much as the other's class meanwhile: what it takes is then more than what the machine beneath takes from a guest.
func disturbedOnCPU(l *loops) {
	own, class := filepath.Dir(l.kube.PodDir(l.ls, "")), filepath.Dir(l.kube.PodDir(l.be, ""))
	was := l.file(class, "cpu.weight")
	weight, err := strconv.Atoi(l.file(own, "cpu.weight"))
	if err == nil {
		err = cgroups.Write(class, "cpu.weight", strconv.Itoa(8*weight))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() {
		if err := cgroups.Write(class, "cpu.weight", was); err != nil {
			l.t.Error(err)
		}
	}()
	quota := func() (int, error) {
		text, err := l.value(l.be, "pod cpu.max")
		if err != nil || strings.HasPrefix(text, "max ") {
			return -1, err
		}
		var n int
		_, err = fmt.Sscanf(text, "%d 100000", &n)
		return n, err
	}
	var most int
	l.disturb(disturbance{
		about: "cpu", signals: []string{"CPU pressure", "CPU scheduling delay"}, stall: "cpu.pressure",
		begin: func() (stop func()) { return l.spin(l.be, 6) },
		held: func() (err error) {
			if most, err = quota(); err == nil && (most < 10000 || most > 60000) {
				err = fmt.Errorf("quota of the pod is %d, want at most about half a CPU", most)
			}
			return err
		},
		free: func() error {
			now, err := quota()
			if err == nil && now != -1 {
				err = fmt.Errorf("quota of the pod is still %d", now)
			}
			return err
		},
	})
	l.tell("quota of the pod while it is held: %d", most)
}

// throttledByItself: a pod that has one CPU and would use three is stopped by its limit. That is told, and nothing else: what it waits for a
// CPU says nothing of others. Before that it was one thread, which not even a machine that gives the guest no time makes use more than a CPU.
func throttledByItself(l *loops) {
	signals := []string{"CPU throttling"}
	l.a.rests(l.burst)
	begun := time.Now()
	stop := l.burn(l.burst, 3)
	told := l.eachTells(l.burst, begun, signals)
	list, err := l.a.events(begun, func(r *journal.Record) bool { return r.Knob == "interference" && r.Target.Pod == l.burst.Pod.UID })
	if err != nil || len(list) != 1 {
		l.t.Errorf("of %s, whom its own limit stops, is told %+v, %v", l.burst.Pod.Name, list, err)
	}
	stop()
	told = append(told, l.eachIsOver(l.burst, begun, signals)...)
	l.tell("throttled: %s", strings.Join(told, "; "))
}
