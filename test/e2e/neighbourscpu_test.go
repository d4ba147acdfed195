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

// roomy leaves best effort two CPUs and more, whoever waits for one.
const roomy = "resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota, cpuSuppressThresholdPercent: 100, cpuSuppressMinPercent: 25, memoryEvictThresholdPercent: 100}\n"

// bestEffortAtMost leaves best effort this part of eight CPUs, in per cent, and no more where anybody else computes.
func bestEffortAtMost(percent int) string {
	return fmt.Sprintf("resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota, cpuSuppressThresholdPercent: 5, cpuSuppressMinPercent: %d, memoryEvictThresholdPercent: 100}\n", percent)
}

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
	pays := l.paysFirst(quota)
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
		holds: roomy, meanwhile: pays,
	})
	stop := l.spin(l.be, 4) // where nobody waits for it
	again := l.keepsOf("4", 0.85, l.be)
	stop()
	if again < 0.85 {
		l.t.Errorf("the pod that was held has %.2f of the CPU on which it computes alone", again)
	}
	l.tell("quota of the pod while it is held: %d; released it has %.2f of a CPU", most, again)
}

// paysFirst: another best-effort pod computes where nobody waits for the CPU, and then the class may have less than it and the one that is held use.
// That comes out of the share of the one that is held, who has disturbed others: by its quota, and the other has none and keeps what it had. Were the
// class throttled as a whole, both would lose the same part of what they use, which is told: where the one that is held uses little, that is too small
// to be seen, and the quotas alone show who pays. The pod is made here: the result has the time of a trial, after which the other would be suspected.
func (l *loops) paysFirst(quota func() (int, error)) (look func()) {
	l.t.Helper()
	modest := l.pod(openPod("modest-be", "BE"))
	return func() { l.otherKeeps(modest, quota) }
}

// otherKeeps looks at both.
func (l *loops) otherKeeps(modest *kubelet.Running, quota func() (int, error)) {
	l.t.Helper()
	const leastOfPod = 10000 // µs of 100 ms, below which suppression takes nothing from a pod
	stop := l.spin(modest, 4)
	l.ticks(2, quietly) // its use is known then
	was, err := quota()
	if err != nil {
		l.t.Fatal(err)
	}
	if was*4/5 <= leastOfPod {
		l.t.Fatalf("the pod that disturbs is held to %d µs: of what is more than %d µs too little is left to show that it gives something up", was, leastOfPod)
	}
	// Half of what the one that is held uses is too much for the class then.
	uses := l.uses(3*time.Second, modest, l.be)
	percent := int((uses[0] + uses[1]/2) / 8 * 100)
	least := percent * 8 * 10 // thousandths of a CPU
	l.put(bestEffortAtMost(percent))
	l.within(20*time.Second, "quota of the class", least, least, l.quota)
	pays := l.within(20*time.Second, "quota of the pod that disturbs, in µs", leastOfPod, was*4/5, quota)
	kept := l.keepsOf("4", 0.9, modest)
	if kept < 0.9 {
		l.t.Errorf("the pod that disturbs nobody has %.2f of the CPU on which it computes alone since the class has less", kept)
	}
	own, err := l.value(modest, "pod cpu.max")
	if err != nil || own != "max 100000" {
		l.t.Errorf("the quota of the pod that disturbs nobody is %q, %v", own, err)
	}
	l.tell("the two use %.2f and %.2f CPUs, the class has %d thousandths of one: the quota of the pod that disturbs goes from %d to %d, the other has %.2f of its CPU; a class throttled as a whole leaves each %.2f of its use",
		uses[0], uses[1], least, was, pays, kept, float64(least)/1000/(uses[0]+uses[1]))
	stop()
	if err := l.kube.StopPod(l.t.Context(), modest); err != nil { // who must leave is decided later
		l.t.Fatal(err)
	}
}

// uses are the CPUs that pods use for a while, by the kernel's count.
func (l *loops) uses(span time.Duration, runs ...*kubelet.Running) (cpus []float64) {
	l.t.Helper()
	count := func(run *kubelet.Running) int { return event(l.file(l.dir(run), "cpu.stat"), "usage_usec") }
	for _, run := range runs {
		cpus = append(cpus, -float64(count(run)))
	}
	begun := time.Now()
	time.Sleep(span)
	for i, run := range runs {
		cpus[i] = (cpus[i] + float64(count(run))) / float64(time.Since(begun).Microseconds())
	}
	return cpus
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
