// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
)

// batch is the annotation of a pod whose container "main" runs on batch resources.
var batch = map[string]string{protocol.AnnotationExtendedResource: `{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1000"},"requests":{"kubernetes.io/batch-cpu":"500"}}}}`}

// A creation that is decided out of memory is decided where its call is, without the two switches to somebody who is watched: no
// deadline can then be too short for it. TestLateDecision has one that is watched: its pod demands a guarantee.
func TestCreateIsDecidedWhereItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.engine.SetDeadline(1)
	for i := range 20 {
		if id, cfg := r.pod(t, fmt.Sprintf("p%d", i), "LS", nil); !r.marks(t, createOf(id, cfg)) {
			t.Errorf("creation %d has no mark", i)
		}
	}
	if n := r.counted(t, "koord_rt_cri_event_late_total", "RunPodSandbox"); n != 0 {
		t.Errorf("%v decisions and arrivals of pods were late", n)
	}
}

// marks creates a container and reports whether the runtime has our mark of it.
func (r *rig) marks(t *testing.T, in *runtimeapi.CreateContainerRequest) bool {
	t.Helper()
	reply, err := r.CreateContainer(t.Context(), in)
	must(t, err)
	st, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: reply.ContainerId})
	must(t, err)
	_, err = protocol.ParseApplied(st.Status.Annotations[protocol.AnnotationApplied])
	return err == nil
}

// On cgroup v1 a container's quota must fit into its pod's. The files are opened while the runtime makes the sandbox, so that a
// pod's first container is decided in memory, too; they are closed when there is no sandbox.
func TestFirstCreateIsDecidedWhereItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(name string) bool {
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			file, _ := os.Readlink("/proc/self/fd/" + fd.Name()) // "" for one that has been closed meanwhile
			return file == filepath.Join(dir, "kubepods/burstable/pod"+name, "cpu.cfs_quota_us")
		})
	}
	r := newRigOn(t, node.CgroupV1, &engine.Live{CPUDir: dir})
	r.engine.SetDeadline(1)
	for i := range 20 {
		name, gone := fmt.Sprintf("p%d", i), fmt.Sprintf("gone%d", i)
		for _, pod := range []string{name, gone} {
			pod = filepath.Join(dir, "kubepods/burstable/pod"+pod)
			must(t, os.MkdirAll(pod, 0o755))
			for file, text := range map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"} {
				must(t, os.WriteFile(filepath.Join(pod, file), []byte(text), 0o600))
			}
		}
		r.fake.refusePods.Store(true)
		if _, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podOf(gone, "BE", batch)}); err == nil {
			t.Fatal("the runtime has not refused")
		}
		r.fake.refusePods.Store(false)
		id, cfg := r.pod(t, name, "BE", batch)
		if !r.marks(t, createOf(id, cfg)) {
			t.Errorf("creation %d has no mark", i)
		}
		if !open(name) {
			t.Errorf("pod %d: its quota is not held", i)
		}
	}
	eventually(t, "the files of pods without a sandbox are closed", func() bool {
		for i := range 20 {
			if open(fmt.Sprintf("gone%d", i)) {
				return false
			}
		}
		return true
	})
}
