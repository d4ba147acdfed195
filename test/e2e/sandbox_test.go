// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleNewSandbox lets a pod's sandbox die. The kubelet makes another one for the same pod in the same cgroup, and removes the
// dead one later: what is the pod's stays known until the pod goes.
func lifecycleNewSandbox(r *rig) {
	ctx := r.t.Context()
	twin := r.pod(bePod("sandbox"))
	untouched := r.podValues(twin)
	if err := r.kube.StopPod(ctx, twin); err != nil {
		r.t.Fatal(err)
	}
	r.up(standard, nil)
	run := r.pod(bePod("sandbox"))
	r.now(run, wants("BE", ""))
	old, err := r.kube.NewSandbox(ctx, run)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.kube.StartContainer(ctx, run, "main"); err != nil {
		r.t.Fatal(err)
	}
	r.now(run, wants("BE", ""))
	if err := r.host.CRI().RemovePod(ctx, old); err != nil {
		r.t.Fatal(err)
	}
	r.eventually(5*time.Second, func() error {
		if r.metric("koord_rt_nri_event_duration_seconds_count", `event="RemovePodSandbox"`) == 0 {
			return errors.New("koord-nri has not heard of the removal")
		}
		return nil
	})
	r.now(run, wants("BE", ""))
	r.says([]string{"explain", "default/sandbox"}, "cpu.quota", "memory.limit", "batch")
	r.says([]string{"diff", "--exit-code"}, "0 of ")
	r.stop(syscall.SIGTERM)
	if out, err := r.ctl("restore", "--pod", "default/sandbox"); err != nil || strings.Contains(out, " 0 restored") {
		r.t.Errorf("restore: %v\n%s", err, out)
	}
	for file, want := range untouched {
		if got, err := r.value(run, "pod "+file); err != nil || got != want {
			r.t.Errorf("the pod's %s is %q after restore, %v; before us it was %q", file, got, err, want)
		}
	}
}

// podValues are the files of a pod's cgroup that a BE pod's batch resources change.
func (r *rig) podValues(run *kubelet.Running) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, w := range wants("BE", "") {
		file, ok := strings.CutPrefix(w, "pod ")
		if !ok {
			continue
		}
		file, _, _ = strings.Cut(file, "=")
		value, err := r.value(run, "pod "+file)
		if err != nil {
			r.t.Fatal(err)
		}
		out[file] = value
	}
	return out
}
