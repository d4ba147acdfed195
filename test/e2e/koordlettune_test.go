// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// narrowPod has 5 ms of CPU in 100.
func narrowPod() kubelet.Pod {
	res := map[string]kubelet.Quantity{"cpu": "50m", "memory": "32Mi"}
	return kubelet.Pod{
		Name: "narrow", UID: uid("narrow"), Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Containers: []kubelet.Container{{Name: "main", Resources: kubelet.Resources{Requests: res, Limits: res}}},
	}
}

// throttledGetsRoom: a container that its limit has stopped for a minute, while the node's CPUs idle, has half as much again, though no
// policy raises quotas; its pod with it. As soon as others need the CPUs it stands at its limit again. Either is told with the reason.
func throttledGetsRoom(h *alone) {
	quota := func(n int) []string {
		var out []string
		for _, level := range []string{"main", "pod"} {
			if h.tree.V2() {
				out = append(out, level+" cpu.max="+strconv.Itoa(n)+" 100000")
			} else {
				out = append(out, level+" cpu.cfs_quota_us="+strconv.Itoa(n))
			}
		}
		return out
	}
	defer func() {
		if h.t.Failed() {
			out, err := h.ctl("top", "node") // what the loop saw last
			h.t.Logf("%v\n%s", err, out)
		}
	}()
	h.soon(2*time.Minute, h.narrow, quota(7500))
	why := h.a.room(h.narrow, "given", time.Time{})
	if !strings.HasPrefix(why, "tuned: throttled for ") {
		h.t.Errorf("room was given because: %s", why)
	}
	h.says([]string{"explain", h.narrow.Containers["main"]}, "raised by burst")
	stop := h.spinIn(h.app("app-others"), runtime.NumCPU())
	begun := time.Now()
	h.soon(30*time.Second, h.narrow, quota(5000))
	h.t.Logf("quota 5000 to 7500 µs: %s; taken back %s after others began to compute: %s", why, time.Since(begun).Round(100*time.Millisecond), h.a.room(h.narrow, "taken back", time.Time{}))
	h.rest()
	stop()
	h.isBack()
	h.own.end()
	for _, run := range []*kubelet.Running{h.narrow, h.full} {
		if err := h.kube.StopPod(h.t.Context(), run); err != nil {
			h.t.Fatal(err)
		}
	}
}

// fullPod may have eight times what it requests, and so much that the kernel's scores, which count in thousandths of the machine, tell it.
func fullPod(limit int) kubelet.Pod {
	return kubelet.Pod{
		Name: "full", UID: uid("full"), Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Containers: []kubelet.Container{{Name: "main", Resources: kubelet.Resources{
			Requests: map[string]kubelet.Quantity{"memory": quantityOf(limit / 8)}, Limits: map[string]kubelet.Quantity{"memory": quantityOf(limit)},
		}}},
	}
}

func quantityOf(bytes int) kubelet.Quantity { return kubelet.Quantity(strconv.Itoa(bytes)) }

// nearlyFill takes nearly all that the pod may have, and a little more by a process that has set its own OOM score.
func (h *alone) nearlyFill() {
	h.t.Helper()
	h.score = h.scoreOf(h.main(h.full))
	h.kept = keeping(h.t, h.containerDirs(h.full), "kept", h.limit/16*15, h.score)
	h.own = keeping(h.t, h.containerDirs(h.full), "own", mib, 700)
	h.kept.begun()
	h.own.begun()
}

// main is the process of a pod's container.
func (h *alone) main(run *kubelet.Running) int {
	h.t.Helper()
	pid, err := h.pid(run, "main")
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

func (h *alone) scoreOf(pid int) int {
	h.t.Helper()
	text, err := cgroups.Read("/proc/"+strconv.Itoa(pid), "oom_score_adj")
	if err != nil {
		h.t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// nearItsLimit: a container that is near its memory limit while the node has memory to spare is judged as if it had requested
// that limit, by the kernel's own figure of each of its processes; one that has set its own keeps it.
func nearItsLimit(h *alone) {
	// The kubelet's formula (pkg/kubelet/qos/policy.go) with the limit in the request's place: rounded down before it is taken off, and within
	// its bounds, 3 and 999, since the limit is between a 256th and all of the memory.
	want := 1000 - 1000*h.limit/h.memTotal()
	processes := []int{h.main(h.full), h.kept.cmd.Process.Pid}
	h.eventually(30*time.Second, func() error {
		for _, pid := range processes {
			if score := h.scoreOf(pid); score != want {
				return fmt.Errorf("oom_score_adj of process %d is %d, want %d", pid, score, want)
			}
		}
		return nil
	})
	given := h.scoreOf(processes[0])
	if own := h.scoreOf(h.own.cmd.Process.Pid); own != 700 {
		h.t.Errorf("a process that had set 700 has %d", own)
	}
	why := h.a.room(h.full, "given", time.Time{})
	if !strings.HasPrefix(why, "tuned: near its limit on a calm node, with ") {
		h.t.Errorf("the score was given because: %s", why)
	}
	h.says([]string{"explain", h.full.Containers["main"]}, "oom_score_adj", strconv.Itoa(given), "near its limit")
	h.t.Logf("oom_score_adj %d: %s", given, why)
	h.tuned = given
}

// stillNear: that has outlived ten kill -9. A minute after the memory has been given back the score is, too (isBack).
func stillNear(h *alone) {
	for _, pid := range []int{h.main(h.full), h.kept.cmd.Process.Pid} {
		if score := h.scoreOf(pid); score != h.tuned {
			h.t.Errorf("oom_score_adj of process %d is %d after ten kill -9, it was %d", pid, score, h.tuned)
		}
	}
	list, err := h.a.events(time.Time{}, func(r *journal.Record) bool { return r.Want == "taken back" && r.Target.Pod == h.full.Pod.UID })
	if err != nil || len(list) > 0 {
		h.t.Errorf("taken back meanwhile: %v, %v", list, err)
	}
	h.kept.end()
}

// isBack: the score that the container began with, for the process that has had another; the one that has set its own has it still.
func (h *alone) isBack() {
	h.t.Helper()
	h.eventually(2*time.Minute, func() error {
		if score := h.scoreOf(h.main(h.full)); score != h.score {
			return fmt.Errorf("oom_score_adj is %d, want %d", score, h.score)
		}
		return nil
	})
	if own := h.scoreOf(h.own.cmd.Process.Pid); own != 700 {
		h.t.Errorf("a process that had set 700 has %d", own)
	}
	h.t.Logf("oom_score_adj %d again: %s", h.score, h.a.room(h.full, "taken back", time.Time{}))
}

// stalledGetsRoom: a container that its memory.high holds up on a calm node, because what it touches neither fits nor can be reclaimed, waits
// on for ever, and with tuning has memory.high raised by quarters of the way to its limit until it waits no more. Without the policy that
// gave it a memory.high the room is over, too.
func stalledGetsRoom(l *loops) {
	const own = 96 * mib
	l.put(memoryQoS(0))
	l.soon(20*time.Second, l.be, bytesOf("main", map[string]int{"memory.max": 128 * mib, "memory.high": own}))
	high := func() (int, error) { return l.bytes(l.dir(l.be), "memory.high") }
	// The kernel lets who goes on above memory.high wait for every few pages, and without swap none of these can be reclaimed.
	load := l.loading(l.be, "holds", strconv.Itoa(100*mib), "0s")
	defer load.stop()
	without := l.waits(l.be, "memory.pressure")
	l.ticks(12, func() error { // its pressure is read every ten
		if now, err := high(); err != nil || now != own {
			return fmt.Errorf("memory.high is %d without tuning, %v", now, err)
		}
		return nil
	})
	without.end()
	if without.part < 0.1 {
		l.t.Fatalf("the load waits %s of the time: that would ask nobody for room", without)
	}
	begun := time.Now()
	l.tuned(true)
	raised := l.within(60*time.Second, "memory.high of a container that stalls", 104*mib, 128*mib, high)
	why := l.a.room(l.be, "given", begun)
	if !strings.HasPrefix(why, "tuned: it stalled at its memory.high of 96") {
		l.t.Errorf("room was given because: %s", why)
	}
	var after *waiting
	l.eventually(60*time.Second, func() (err error) { // by then it has as many quarters as it needs
		after = l.waits(l.be, "memory.pressure")
		l.ticks(2, quietly)
		if after.end(); after.part > without.part/4 {
			err = fmt.Errorf("it waits %s of the time, without tuning %s", after, without)
		}
		return err
	})
	last, err := high()
	if err != nil || last > 128*mib {
		l.t.Errorf("memory.high is %d at the end, %v", last, err)
	}
	load.stop()
	l.put("")
	l.noMemoryQoS()
	l.tell("memory.high %d → %d → %d on a calm node, the container waits for memory %s of the time without tuning, %s then: %s; taken back: %s",
		own, raised, last, without, after, why, l.a.room(l.be, "taken back", begun))
	l.tuned(false)
}

// tuned starts koordlet anew with or without tuning.
func (l *loops) tuned(on bool) {
	l.t.Helper()
	l.a.end(syscall.SIGTERM)
	l.extra = map[string]any{"tune": on}
	l.a.configure(nil)
	l.extra = nil
	l.a.start()
}

// room waits until /events says that a pod was given room since then, or that it was taken back, and returns the last reason.
func (a *agent) room(run *kubelet.Running, outcome string, since time.Time) (reason string) {
	a.r.t.Helper()
	a.r.eventually(10*time.Second, func() error {
		list, err := a.events(since, func(r *journal.Record) bool { return r.Want == outcome && r.Target.Pod == run.Pod.UID })
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("no event about room of %s that was %s", run.Pod.Name, outcome)
		}
		if err == nil {
			reason = list[0].Reason
		}
		return err
	})
	return reason
}
