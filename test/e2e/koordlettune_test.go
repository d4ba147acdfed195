// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
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
	why := h.a.room(h.narrow, "given")
	if !strings.HasPrefix(why, "tuned: throttled for ") {
		h.t.Errorf("room was given because: %s", why)
	}
	h.says([]string{"explain", h.narrow.Containers["main"]}, "raised by burst")
	stop := h.spinIn(h.app("app-others"), runtime.NumCPU())
	begun := time.Now()
	h.soon(30*time.Second, h.narrow, quota(5000))
	h.t.Logf("quota 5000 to 7500 µs: %s; taken back %s after others began to compute: %s", why, time.Since(begun).Round(100*time.Millisecond), h.a.room(h.narrow, "taken back"))
	h.rest()
	stop()
	if err := h.kube.StopPod(h.t.Context(), h.narrow); err != nil {
		h.t.Fatal(err)
	}
}

// room waits until /events says that a pod was given room, or that it was taken back, and returns the last reason.
func (a *agent) room(run *kubelet.Running, outcome string) (reason string) {
	a.r.t.Helper()
	a.r.eventually(10*time.Second, func() error {
		list, err := a.events(time.Time{}, func(r *journal.Record) bool { return r.Want == outcome && r.Target.Pod == run.Pod.UID })
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
