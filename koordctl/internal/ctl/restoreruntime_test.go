// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// recordsOf is a runtime with what it has on record of containers.
type recordsOf struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	mu      sync.Mutex
	quota   map[string]int64
	unified map[string]map[string]string
	updates []string
	// refuses has updates fail; again is a plugin of ours that answers with ours; during happens within an update.
	refuses, again bool
	during         func()
	name           string // "containerd" if empty
}

func (r *recordsOf) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: cmp.Or(r.name, "containerd"), RuntimeVersion: "2.4.0"}, nil
}

func (r *recordsOf) ContainerStatus(_ context.Context, q *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	quota, ok := r.quota[q.ContainerId]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	var unified []string
	for k, v := range r.unified[q.ContainerId] {
		unified = append(unified, fmt.Sprintf("%q:%q", k, v))
	}
	info := fmt.Sprintf(`{"runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/c","resources":{"cpu":{"quota":%d},"unified":{%s}}}}}`, quota, strings.Join(unified, ","))
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: q.ContainerId}, Info: map[string]string{"info": info}}, nil
}

func (r *recordsOf) UpdateContainerResources(_ context.Context, q *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses {
		return nil, status.Error(codes.Internal, "runc says no")
	}
	r.updates = append(r.updates, q.ContainerId)
	if r.during != nil {
		r.during()
	}
	if n := q.Linux.CpuQuota; n != 0 {
		r.quota[q.ContainerId] = n
	}
	maps.Copy(r.unified[q.ContainerId], q.Linux.Unified)
	if r.again {
		r.quota[q.ContainerId], r.unified[q.ContainerId]["cpu.max.burst"] = 100000, "40000"
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// serve answers at a socket.
func (r *recordsOf) serve(t *testing.T) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri") // the path of a socket has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "cri.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return path
}

// TestRestoreTellsTheRuntime: what the runtime has on record of a container is the kubelet's again after a restore, or the kubelet's next
// update would bring ours back, and a smaller limit be refused for the burst.
func TestRestoreTellsTheRuntime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says   int64 // the quota on record
		burst  string
		before func(h *host, r *recordsOf)
		shown  string // one line of what restore prints
		quota  int64  // on record after
		after  string // the burst on record after
		told   int
	}{
		"ours on record":                       {says: 100000, burst: "40000", shown: "tell container default/web/app none - cpu.burst=0, cpu.quota=300000 the runtime's own record", quota: 300000, after: "0", told: 1},
		"the kubelet has changed it meanwhile": {says: 200000, burst: "40000", shown: "tell container default/web/app none - cpu.burst=0 the runtime's own record", quota: 200000, after: "0", told: 1},
		"the kubelet's on record":              {says: 300000, burst: "0", quota: 300000, after: "0"},
		"somebody else's in the kernel": {says: 100000, burst: "40000", before: func(h *host, _ *recordsOf) { h.tree.Set(t, appDir, "cpu.max", "50000 100000") },
			shown: "tell container default/web/app none - cpu.burst=0, cpu.quota=50000 the runtime's own record", quota: 50000, after: "0", told: 1},
		"a runtime that refuses": {says: 100000, burst: "40000", before: func(_ *host, r *recordsOf) { r.refuses = true },
			shown: "recreate container default/web/app none - cpu.burst=0, cpu.quota=300000 the runtime's own record of it may say ours", quota: 100000, after: "40000"},
		"a plugin of ours that runs": {says: 100000, burst: "40000", before: func(_ *host, r *recordsOf) { r.again = true },
			shown: "says ours again: stop koord-nri", quota: 100000, after: "40000", told: 1},
		"an answer that was refused after that on record": {says: 100000, burst: "80000", shown: "tell container default/web/app none - cpu.burst=0, cpu.quota=300000 the runtime's own record", quota: 300000, after: "0", told: 1},
		"a runtime that writes what an update names":      {says: 100000, burst: "40000", before: func(_ *host, r *recordsOf) { r.name = "cri-o" }, quota: 100000, after: "40000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "6.12")
			r := &recordsOf{quota: map[string]int64{app.Container: c.says}, unified: map[string]map[string]string{app.Container: {"cpu.max.burst": c.burst}}}
			h.work(t, plan.Plan{
				set(app, plan.CPUQuota, plan.Int(100000), protocol.FeatureBatch, "batch"), set(app, plan.CPUBurst, plan.Int(40000), protocol.FeatureBurst, "burst"),
			}, journal.Record{Target: app, Knob: plan.CPUQuota.String(), Base: "300000", Want: "100000", Via: journal.ViaRuntime},
				journal.Record{Target: app, Knob: plan.CPUBurst.String(), Want: "80000", Via: journal.ViaRuntime},
				journal.Record{Target: app, Knob: plan.CPUBurst.String(), Want: "40000", Via: journal.ViaRuntime})
			if c.before != nil {
				c.before(h, r)
			}
			endpoint := "unix://" + r.serve(t)
			dry, err := h.run(t, "restore", "--dry-run", "--runtime-endpoint", endpoint)
			if err != nil || len(r.updates) != 0 {
				t.Errorf("a dry run tells the runtime: %v, %v\n%s", r.updates, err, dry)
			}
			out, err := h.run(t, "restore", "--runtime-endpoint", endpoint)
			if err != nil || c.shown != "" && !strings.Contains(spaced(out), c.shown) || c.shown == "" && strings.Contains(out, "record of it") {
				t.Errorf("want %q: %v\n%s", c.shown, err, out)
			}
			if r.quota[app.Container] != c.quota || r.unified[app.Container]["cpu.max.burst"] != c.after || len(r.updates) != c.told {
				t.Errorf("on record: quota %d, burst %s, after updates of %v; want %d, %s, %d", r.quota[app.Container], r.unified[app.Container]["cpu.max.burst"], r.updates, c.quota, c.after, c.told)
			}
			if r.refuses || r.again { // what could not be told is told when it can be
				r.refuses, r.again = false, false
				if out, err := h.run(t, "restore", "--runtime-endpoint", endpoint); err != nil || !strings.Contains(out, "tell ") || r.quota[app.Container] != 300000 || r.unified[app.Container]["cpu.max.burst"] != "0" {
					t.Errorf("once more: on record %v, %v: %v\n%s", r.quota, r.unified, err, out)
				}
			}
			if out, err := h.run(t, "restore", "--runtime-endpoint", endpoint); err != nil || !strings.Contains("\n"+out, "\n0 restored, ") || strings.Contains(out, "tell ") {
				t.Errorf("another restore finds something to do: %v\n%s", err, out)
			}
		})
	}
}

// TestRestoreTellsTheRuntimeAndNoMore: what a program of ours that was not stopped has written again, while the runtime is told, is ours to the
// next restore.
func TestRestoreTellsTheRuntimeAndNoMore(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	quota := plan.Plan{set(app, plan.CPUQuota, plan.Int(100000), protocol.FeatureBatch, "batch")}
	h.work(t, quota, journal.Record{Target: app, Knob: plan.CPUQuota.String(), Base: "300000", Want: "100000", Via: journal.ViaRuntime})
	r := &recordsOf{quota: map[string]int64{app.Container: 100000}, during: func() { h.work(t, quota) }}
	endpoint := "unix://" + r.serve(t)
	if out, err := h.run(t, "restore", "--runtime-endpoint", endpoint); err != nil || len(r.updates) != 1 || h.tree.Get(t, appDir, "cpu.max") != "100000 100000" {
		t.Fatalf("updates of %v, the kernel has %q: %v\n%s", r.updates, h.tree.Get(t, appDir, "cpu.max"), err, out)
	}
	if out, err := h.run(t, "restore", "--runtime-endpoint", endpoint); err != nil || len(r.updates) != 1 || h.tree.Get(t, appDir, "cpu.max") == "100000 100000" {
		t.Errorf("updates of %v, the kernel has %q: %v\n%s", r.updates, h.tree.Get(t, appDir, "cpu.max"), err, out)
	}
}

// TestRestoreOfARecordThatIsNotWrittenAgain: Docker and CRI-O write what an update names, so that what we had put into their record is over with
// the restore: what the kubelet has set since, and we have written over, is what a later one returns to.
func TestRestoreOfARecordThatIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	quota := plan.Plan{set(app, plan.CPUQuota, plan.Int(100000), protocol.FeatureBatch, "batch")}
	h.work(t, quota, journal.Record{Target: app, Knob: plan.CPUQuota.String(), Base: "300000", Want: "100000", Via: journal.ViaRuntime})
	endpoint := "unix://" + (&recordsOf{quota: map[string]int64{app.Container: 100000}, name: "cri-o"}).serve(t)
	restore := func(want string) {
		t.Helper()
		out, err := h.run(t, "restore", "--runtime-endpoint", endpoint)
		if got := h.tree.Get(t, appDir, "cpu.max"); err != nil || got != want {
			t.Errorf("the kernel has %q, want %q: %v\n%s", got, want, err, out)
		}
	}
	restore("300000 100000")
	h.tree.Set(t, appDir, "cpu.max", "500000 100000")
	h.work(t, quota)
	restore("500000 100000")
}

// spaced has one blank where a table has many.
func spaced(table string) string { return strings.Join(strings.Fields(table), " ") }
