// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// TestGuestMemoryQoS: memory.min on kubepods is the sign of the kubelet's MemoryQoS, and we write it too. After kill -9
// and restart, which probes anew, ours must not be taken for the kubelet's; the kubelet's must stay the kubelet's.
func TestGuestMemoryQoS(t *testing.T) {
	if !cgroupV2() {
		t.Fatal("cgroup v1 has no memory.min: this test would show nothing")
	}
	r := newRig(t, rigOptions{})
	for name, test := range map[string]func(*rig){"Ours": oursAfterKill, "Kubelets": kubeletsAfterKill, "Allocatable": throttledByAllocatable} {
		t.Run(name, func(t *testing.T) {
			sub := r.sub(t)
			sub.freshRun()
			test(sub)
		})
	}
}

// oursAfterKill kills koord-nri at random moments while pods are made: after every restart the sums are still ours, right
// and kept up.
func oursAfterKill(r *rig) {
	r.up(standard+protecting, nil)
	pods := []*kubelet.Running{r.pod(lsPod("qos-first")), r.pod(lsrPod("qos-lsr"))}
	r.protected(pods)
	for i := range 3 {
		made := make(chan error, 1)
		var run *kubelet.Running
		go func() (err error) {
			defer func() { made <- err }()
			run, err = r.kube.StartPod(r.t.Context(), lsPod("qos-"+strconv.Itoa(i)))
			return err
		}()
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond) // at any moment of the creation
		r.stop(syscall.SIGKILL)
		if err := <-made; err != nil {
			r.t.Fatalf("pod beside a killed plugin: %v", err)
		}
		r.cleanPod(run)
		pods = append(pods, run)
		r.again()
		r.kubeletOwns(false)
		r.protected(pods)
	}
	// Pods that go while nobody is there leave no protection behind.
	r.stop(syscall.SIGKILL)
	for _, run := range pods {
		if err := r.kube.StopPod(r.t.Context(), run); err != nil {
			r.t.Fatal(err)
		}
	}
	r.again()
	r.protected(nil)
	r.kubeletOwns(false)
}

// kubeletsAfterKill plays a kubelet with MemoryQoS: it writes memory.min of kubepods before us.
func kubeletsAfterKill(r *rig) {
	const request = 96 << 20
	if err := cgroups.Write(r.kubepods(""), "memory.min", strconv.Itoa(request)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := cgroups.Write(r.kubepods(""), "memory.min", "0"); err != nil {
			r.t.Error(err)
		}
	})
	r.up(standard+protecting, nil)
	for i := range 2 {
		r.kubeletOwns(true)
		run := r.pod(lsPod("qos-kubelet" + strconv.Itoa(i)))
		r.now(run, []string{"pod memory.min=0", "pod memory.low=0"})
		r.now(run, wants("LS", "")) // what is not the kubelet's is ours all the same
		if got, err := r.bytes(r.kubepods(""), "memory.min"); err != nil || got != request {
			r.t.Errorf("memory.min of kubepods is %d (%v), the kubelet wrote %d", got, err, request)
		}
		r.stop(syscall.SIGKILL)
		r.again()
	}
	r.kubeletOwns(true)
}

// throttledByAllocatable: a container without a limit is throttled at a share of what the kubelet leaves to pods, which it writes to
// memory.max of kubepods; with a share of 0 it is not throttled.
func throttledByAllocatable(r *rig) {
	const leaves = 1 << 30
	if err := cgroups.Write(r.kubepods(""), "memory.max", strconv.Itoa(leaves)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := cgroups.Write(r.kubepods(""), "memory.max", "max"); err != nil {
			r.t.Error(err)
		}
	})
	put := func(percent string) {
		r.t.Helper()
		r.replaceStrategy("resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, throttlingPercent: " + percent + "}}}\n")
	}
	put("50")
	r.up("", nil)
	p := lsPod("qos-unlimited")
	p.Containers[0].Resources.Limits = nil
	run := r.pod(p)
	r.now(run, []string{"main memory.max=max", "main memory.high=" + strconv.Itoa(leaves/2)})
	put("0")
	r.soon(5*time.Second, run, []string{"main memory.high=max"})
}

// kubeletOwns fails unless koordctl features says whose the protections are.
func (r *rig) kubeletOwns(want bool) {
	r.t.Helper()
	r.eventually(8*time.Second, func() error {
		out, err := r.ctl("features", "-o", "json")
		if err != nil {
			return fmt.Errorf("koordctl features: %w: %s", err, out)
		}
		if got := strings.Contains(out, "kubelet's MemoryQoS is on"); got != want {
			return fmt.Errorf("features says that the protections are the kubelet's: %v, want %v:\n%s", got, want, out)
		}
		return nil
	})
}

// protected waits until every pod has a memory.min, and kubepods and the class above Burstable pods the sums.
func (r *rig) protected(pods []*kubelet.Running) {
	r.t.Helper()
	r.eventually(30*time.Second, func() error {
		top, burstable := 0, 0
		for _, run := range pods {
			n, err := r.bytes(r.kube.PodDir(run, ""), "memory.min")
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("pod %s has no memory.min", run.Pod.Name)
			}
			if top += n; strings.Contains(r.kube.PodDir(run, ""), "burstable") {
				burstable += n
			}
		}
		for dir, want := range map[string]int{r.kubepods(""): top, r.kubepods("") + "/burstable": burstable} {
			if got, err := r.bytes(dir, "memory.min"); err != nil || got != want {
				return fmt.Errorf("memory.min of %s is %d (%v), its pods have %d", dir, got, err, want)
			}
		}
		return nil
	})
}

// bytes reads a file with a number.
func (r *rig) bytes(dir, file string) (int, error) {
	text, err := cgroups.Read(dir, file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}
