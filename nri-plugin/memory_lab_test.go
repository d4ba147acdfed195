// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// Memory with a thousand containers: the real binary, a runtime that lists them. Their cgroups do not exist, so nothing is
// written; everything is read, decided and kept.
func TestLabMemoryThousand(t *testing.T) {
	n := &node{dir: t.TempDir()}
	n.build(t)
	info, err := os.Stat(n.binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("binary %.1f MB", float64(info.Size())/1e6)
	if info.Size() > 20e6 {
		t.Error("binary is above 20 MB")
	}
	socket := filepath.Join(n.dir, "nri.sock")
	pods, containers := thousand()
	var synced atomic.Int64
	sync := func(ctx context.Context, cb adaptation.SyncCB) error {
		start := time.Now()
		_, err := cb(ctx, pods, containers)
		synced.Store(int64(time.Since(start)))
		return err
	}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	rt, err := adaptation.New("containerd", "v2.4.2", sync, update, adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(t.TempDir()), adaptation.WithPluginConfigPath(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Stop)
	config := fmt.Sprintf("apiVersion: koord-rt.dev/v1alpha1\nkind: NRIConfig\nsocket: %s\nrunDir: %s/run\nstateDir: %s/state\nstrategyFile: %s/strategy.yaml\nmetrics: {address: \"unix:%s/m.sock\"}\n",
		socket, n.dir, n.dir, n.dir, n.dir)
	for name, text := range map[string]string{"config.yaml": config, "strategy.yaml": labStrategy} {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.begin(t)
	t.Cleanup(func() { n.end(unix.SIGTERM) })
	begun := time.Now()
	n.until(t, "a drift check, whose memory counts", func() bool { // every 10 s
		entries, err := status.ReadAll(n.dir+"/run", "/proc")
		return err == nil && len(entries) == 1 && entries[0].Written.Sub(begun) > 11*time.Second
	})
	t.Logf("Synchronize of %d containers took %v", len(containers), time.Duration(synced.Load()))
	n.memory(t)
}

func thousand() (pods []*api.PodSandbox, containers []*api.Container) {
	for i := range 250 {
		uid := fmt.Sprintf("pod-%04d", i)
		parent := "/koord-rt-none/kubepods/burstable/pod" + uid
		pods = append(pods, &api.PodSandbox{
			Id: "sb" + uid, Name: "web-" + uid, Uid: uid, Namespace: "default", Labels: map[string]string{"koordinator.sh/qosClass": "LS", "app": "web"},
			Linux: &api.LinuxPodSandbox{CgroupParent: parent},
		})
		for j := range 4 {
			id := fmt.Sprintf("%064d", i*4+j)
			env := make([]string, 0, 30)
			for k := range 30 {
				env = append(env, fmt.Sprintf("VARIABLE_%d=some value of a usual length %d", k, k))
			}
			containers = append(containers, &api.Container{
				Id: id, PodSandboxId: "sb" + uid, Name: fmt.Sprintf("c%d", j), State: api.ContainerState_CONTAINER_RUNNING, Env: env,
				Linux: &api.LinuxContainer{CgroupsPath: parent + "/" + id, Resources: &api.LinuxResources{
					Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(512)), Quota: api.Int64(int64(50000)), Period: api.UInt64(uint64(100000))},
					Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 28))},
				}},
			})
		}
	}
	return pods, containers
}
