// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/koord-rt/koord-rt/adapt/nri"
)

// told is a session with a runtime that has told its NRI version.
type told struct {
	stub.Stub
	version string
}

func (s told) RuntimeNRIVersion() string { return s.version }

func handles[I any](p any) bool { _, ok := p.(I); return ok }

// What is measured is koord-nri's price of NRI only if the same events come: those that adapt/nri names for the runtime, which is
// what koord-nri answers Configure with, each with a handler, without which the stub refuses to subscribe.
func TestSubscription(t *testing.T) {
	t.Parallel()
	p := &plugin{}
	handled := map[api.Event]bool{
		api.Event_RUN_POD_SANDBOX: handles[stub.RunPodInterface](p), api.Event_STOP_POD_SANDBOX: handles[stub.StopPodInterface](p),
		api.Event_REMOVE_POD_SANDBOX: handles[stub.RemovePodInterface](p), api.Event_UPDATE_POD_SANDBOX: handles[stub.UpdatePodInterface](p),
		api.Event_POST_UPDATE_POD_SANDBOX: handles[stub.PostUpdatePodInterface](p), api.Event_CREATE_CONTAINER: handles[stub.CreateContainerInterface](p),
		api.Event_POST_CREATE_CONTAINER: handles[stub.PostCreateContainerInterface](p), api.Event_START_CONTAINER: handles[stub.StartContainerInterface](p),
		api.Event_POST_START_CONTAINER: handles[stub.PostStartContainerInterface](p), api.Event_UPDATE_CONTAINER: handles[stub.UpdateContainerInterface](p),
		api.Event_POST_UPDATE_CONTAINER: handles[stub.PostUpdateContainerInterface](p), api.Event_STOP_CONTAINER: handles[stub.StopContainerInterface](p),
		api.Event_REMOVE_CONTAINER:              handles[stub.RemoveContainerInterface](p),
		api.Event_VALIDATE_CONTAINER_ADJUSTMENT: handles[stub.ValidateContainerAdjustmentInterface](p),
	}
	asked := map[api.Event]bool{}
	for version, of := range map[string]told{"1.7.27": {version: ""}, "2.0.5": {version: "v0.8.0"}, "2.4.2": {version: "v0.12.5"}} {
		p.session = of
		got, err := p.Configure(t.Context(), "", "containerd", version)
		r := nri.Runtime("containerd", version, of.version)
		if want := nri.Events(&r); err != nil || got != want {
			t.Errorf("containerd %s: events %s, want %s; %v", version, got.PrettyString(), want.PrettyString(), err)
		}
		for e := api.Event_UNKNOWN + 1; e < api.Event_LAST; e++ {
			if !got.IsSet(e) {
				continue
			}
			if asked[e] = true; !handled[e] {
				t.Errorf("containerd %s: %s has no handler", version, e)
			}
		}
	}
	for e, ok := range handled {
		if ok && !asked[e] {
			t.Errorf("%s has a handler, and koord-nri asks for it of no runtime", e)
		}
	}
}

// The benchmark waits for the file, and counts what the mark of a container costs.
func TestReadyAndStamp(t *testing.T) {
	t.Parallel()
	p := &plugin{ready: filepath.Join(t.TempDir(), "ready")}
	if _, err := p.Synchronize(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.ready); err != nil {
		t.Error(err)
	}
	if a, updates, err := p.CreateContainer(t.Context(), nil, nil); a != nil || updates != nil || err != nil {
		t.Errorf("without a stamp: %v, %v, %v", a, updates, err)
	}
	p.stamp = true
	a, _, err := p.CreateContainer(t.Context(), nil, nil)
	if err != nil || len(a.GetAnnotations()) != 1 || len(a.GetAnnotations()["koord-rt.dev/stamp"]) != stampLength {
		t.Errorf("with a stamp: %v, %v", a, err)
	}
}

// The bare system calls write what an LS container gets and read it back, and read the limits of others; what each took is saved.
func TestBare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, ledger := filepath.Join(dir, "cpu.max.burst"), filepath.Join(dir, "ledger")
	b := &bare{v2: true}
	if err := b.record(ledger); err != nil {
		t.Fatal(err)
	}
	if err := b.writeAndRead(path, burst); err == nil {
		t.Error("no error of a file that is missing")
	}
	// A plain file keeps what was longer than what is written; a kernel's does not.
	for content, ok := range map[string]bool{"0\n": true, strings.Repeat("7", 40): false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.writeAndRead(path, burst); (err == nil) != ok {
			t.Errorf("over %q: %v", content, err)
		}
	}
	if err := b.writeAndRead(path, ""); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(ledger); err != nil || st.Size() != 2*recordLength {
		t.Errorf("the record of two writes: %v, %v", st, err)
	}
	unrecorded := &bare{v2: true, ledger: file{"/none", -1}}
	if err := errors.Join(os.WriteFile(path, []byte("0"), 0o600), unrecorded.writeAndRead(path, burst)); err == nil {
		t.Error("no error of a record that cannot be kept")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "0" {
		t.Errorf("written before its record: %q, %v", text, err)
	}
	if got := b.burst("/kubepods/c"); got != "/sys/fs/cgroup/kubepods/c/cpu.max.burst" || len(b.limits("/kubepods/c")) != 3 {
		t.Errorf("v2: %s, %q", got, b.limits("/kubepods/c"))
	}
	b.v2 = false
	if got := b.burst("/kubepods/c"); got != "/sys/fs/cgroup/cpu/kubepods/c/cpu.cfs_burst_us" || len(b.limits("/kubepods/c")) != 3 {
		t.Errorf("v1: %s, %q", got, b.limits("/kubepods/c"))
	}
	b.turns = b.turnsFor(time.Microsecond)
	for range 2 {
		b.create()
	}
	if b.turns == 0 || b.sum == 0 || len(b.took) != 2 || b.took[0].event != "CreateContainer" || b.took[0].took <= 0 {
		t.Errorf("%d turns of arithmetic: %+v", b.turns, b.took)
	}
	if err := b.save(path); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("saved %q, %v", text, err)
	}
}

// Alone it calls the kernel for an LS container's start and its resize downwards, for another's start, and for nothing else.
func TestAlone(t *testing.T) {
	t.Parallel()
	b := &bare{v2: true, alone: true}
	p := &plugin{bare: b}
	ls := &api.PodSandbox{Labels: map[string]string{classLabel: "LS"}}
	be := &api.PodSandbox{Labels: map[string]string{classLabel: "BE"}}
	c := &api.Container{Linux: &api.LinuxContainer{CgroupsPath: "/kubepods/none/c"}}
	quota := func(q int64) *api.LinuxResources { return &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(q)}} }
	for _, sb := range []*api.PodSandbox{ls, be} {
		if err := errors.Join(p.RunPodSandbox(t.Context(), sb), p.StopPodSandbox(t.Context(), sb)); err != nil {
			t.Error(err)
		}
		a, _, err := p.CreateContainer(t.Context(), sb, c)
		if r := a.GetLinux().GetResources(); err != nil || len(a.GetAnnotations()) != 1 || (r.GetCpu().GetShares().GetValue() == 512) != (sb == be) ||
			(r.GetMemory().GetLimit().GetValue() == 64<<20) != (sb == be) {
			t.Errorf("answer to a container of %s: %v, %v", sb.GetLabels()[classLabel], a, err)
		}
		if p.StartContainer(t.Context(), sb, c) == nil {
			t.Error("no error of a group that is missing")
		}
		for _, q := range []int64{150_000, startQuota} {
			if _, err := p.UpdateContainer(t.Context(), sb, c, quota(q)); (err != nil) != (sb == ls && q == startQuota) {
				t.Errorf("update of %s to %d: %v", sb.GetLabels()[classLabel], q, err)
			}
		}
	}
	var events []string
	for _, m := range b.took {
		events = append(events, m.event)
	}
	if got := strings.Join(events, " "); got != "StartContainer/LS UpdateContainer/LS StartContainer/BE" {
		t.Error(got)
	}
}
