// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
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
	h.soon(90*time.Second, h.narrow, quota(7500))
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
	if err := h.kube.StopPod(h.t.Context(), h.narrow); err != nil {
		h.t.Fatal(err)
	}
}

// stalledGetsRoom: a container that its memory.high holds up on a calm node, because what it reads again and again does not fit, has
// memory.high raised by a quarter of the way to its limit. Without the policy that gave it a memory.high the room is over, too.
func stalledGetsRoom(l *loops) {
	pid, err := l.pid(l.be, "main")
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(memoryQoS(0))
	l.soon(20*time.Second, l.be, bytesOf("main", map[string]int{"memory.max": 128 * mib, "memory.high": 96 * mib}))
	tune := func(on bool) {
		l.a.end(syscall.SIGTERM)
		l.a.tune = on
		l.a.configure(nil)
		l.a.start()
	}
	tune(true)
	begun := time.Now()
	more := cacheFile(pid) + "-more" // 112 MiB with the other
	l.inside(l.be, "dd if=/dev/zero of="+more+" bs=64k count="+strconv.Itoa(32*mib/65536)+" conv=fsync")
	cmd := exec.CommandContext(l.t.Context(), "sh", "-c", "echo $$ >"+l.dir(l.be)+"/cgroup.procs && while :; do cat "+cacheFile(pid)+" "+more+" >/dev/null; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	high := func() (int, error) { return l.bytes(l.dir(l.be), "memory.high") }
	raised := l.within(90*time.Second, "memory.high of a container that stalls", 104*mib, 128*mib, high)
	why := l.a.room(l.be, "given", begun)
	if !strings.HasPrefix(why, "tuned: it stalled at its memory.high of 96") {
		l.t.Errorf("room was given because: %s", why)
	}
	pressure := l.file(l.dir(l.be), "memory.pressure")
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if err := os.Remove(more); err != nil {
		l.t.Error(err)
	}
	l.put("")
	l.noMemoryQoS()
	l.tell("memory.high 96 MiB to %d on a calm node: %s; memory.pressure: %s; taken back: %s", raised, why, oneLine(pressure), l.a.room(l.be, "taken back", begun))
	tune(false)
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
