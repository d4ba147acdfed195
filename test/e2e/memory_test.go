// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"sigs.k8s.io/yaml"
)

// thousandStrategy gives every container of an LS pod a burst and memory protection.
const thousandStrategy = `
cpuBurstStrategy: {policy: auto, cpuBurstPercent: 50}
resourceQOSStrategy:
  lsrClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 50}}
  lsClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 20, throttlingPercent: 90}}
  beClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, throttlingPercent: 80}}
`

// TestHostMemoryThousand keeps the plugin small with a thousand containers: the real binary, a runtime that lists them.
// Their cgroups do not exist, so nothing is written; everything is read, decided and kept.
func TestHostMemoryThousand(t *testing.T) {
	info, err := os.Stat(bin("koord-nri"))
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("binary %.1f MB", float64(info.Size())/1e6); info.Size() > 20e6 {
		t.Error("binary is above 20 MB")
	}
	dir := t.TempDir()
	r := &rig{t: t, log: &syncBuffer{}, run: dir + "/run", state: dir + "/state", config: dir + "/nri.yaml"}
	pods, containers := thousand()
	sync := func(ctx context.Context, cb adaptation.SyncCB) error {
		_, err := cb(ctx, pods, containers)
		return err
	}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	socket := filepath.Join(dir, "nri.sock")
	rt, err := adaptation.New("containerd", "v2.4.2", sync, update, adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(t.TempDir()), adaptation.WithPluginConfigPath(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Stop)
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "NRIConfig", "socket": socket, "runDir": r.run, "stateDir": r.state,
		"strategyFile": filepath.Join(dir, "strategy.yaml"), "metrics": map[string]any{"address": "unix:" + filepath.Join(r.run, "metrics.sock")},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(filepath.Join(dir, "strategy.yaml"), []byte(thousandStrategy), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(syscall.SIGTERM) })
	r.start(config)
	// The memory that counts is that after a check for drift, which comes every 10 s; garbage goes back to the kernel in
	// the background, later on a busy machine.
	begun := time.Now()
	r.eventually(time.Minute, func() error {
		if w := r.status().Written; w.Sub(begun) < 11*time.Second {
			return fmt.Errorf("the status is of %s", w)
		}
		return r.small(32 << 10)
	})
}

// small is an error while the plugin holds more memory.
func (r *rig) small(limitKiB int) error {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.plugin.Process.Pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil && kib <= limitKiB {
			r.t.Logf("RSS %.1f MiB", float64(kib)/1024)
			return nil
		} else if err == nil {
			return fmt.Errorf("RSS is %d KiB, want at most %d", kib, limitKiB)
		}
	}
	return errors.New("the kernel does not tell the plugin's memory")
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
