// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestHostSuppressPressure: on cgroup v2, and on v1 with a runtime that keeps containers in a unified hierarchy as well, the kernel's
// pressure triggers decide between two ticks. A window shorter than 2 s needs CAP_SYS_RESOURCE, which CI has not; what a short one
// takes is in TestGuestKoordlet.
func TestHostSuppressPressure(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.up("", nil)
	ls, be := r.pod(openPod("waits-ls", "LS")), r.pod(openPod("waits-be", "BE"))
	if _, err := os.Stat(filepath.Join(r.kube.PodDir(ls, ""), "cpu.pressure")); err != nil {
		t.Fatalf("this machine's kernel or runtime tells no pressure of pods, and nothing can be shown: %v", err)
	}
	a := r.newAgent()
	a.pressure = map[string]any{"stall": "200ms", "window": "2s"}
	a.strategy(suppressAt("cfsQuota", 100))
	a.start()
	const cpu = 0 // one for all: what LS uses of it leaves BE something by the formula
	r.spin(be, cpu)
	a.ticks(3, quietly) // its use is known then
	begun := time.Now()
	for range 2 { // one of them waits, whatever BE has
		r.spin(ls, cpu)
	}
	var reason string
	r.eventually(20*time.Second, func() (err error) {
		reason, err = a.urgent(begun)
		return err
	})
	t.Logf("%s after the load began: %s", r.writtenAt(begun, reason).Sub(begun).Round(time.Millisecond), reason)
	if n := a.figure(`koord_rt_koordlet_loop_duration_seconds_count{loop="pressure"}`); n == 0 {
		t.Error("koordlet has never decided between two ticks")
	}
}
