// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package place_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/place"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

const (
	plainPod = "/lab/kubepods/burstable/podb1-c2"
	slicePod = "/lab.slice/lab-kubepods.slice/lab-kubepods-burstable.slice/lab-kubepods-burstable-podb1_c2.slice"
)

func open(t *testing.T, tree *kerneltest.Tree) place.FS {
	t.Helper()
	f, err := place.New(tree.Roots, tree.Version, "/lab")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A pod is found by its UID and a container by its id, with both drivers on both versions.
func TestFind(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"v1", "6.12"} {
		for _, c := range []struct{ pod, name, id string }{
			{plainPod, "c1", "c1"}, {plainPod, "crio-c1", "c1"},
			{slicePod, "docker-c1.scope", "c1"}, {slicePod, "crio-c1.scope", "c1"}, {slicePod, "cri-containerd-c1.scope", "c1"},
		} {
			t.Run(kernel+c.pod+c.name, func(t *testing.T) {
				t.Parallel()
				tree := kerneltest.New(t, kernel, c.pod+"/"+c.name, c.pod+"/other-c12.scope", c.pod+"/crio-conmon-c1.scope", c.pod+"/0c1")
				tree.SetProcs(t, c.pod+"/"+c.name, 42, 43)
				f := open(t, tree)
				if dir, err := f.Pod("b1-c2"); err != nil || dir != c.pod {
					t.Errorf("pod in %q, %v", dir, err)
				}
				if dir, pid, err := f.Within(c.pod, c.id); err != nil || dir != c.pod+"/"+c.name || pid != 42 {
					t.Errorf("container in %q, process %d, %v", dir, pid, err)
				}
				for _, uid := range []string{"", "b1", "../../etc", "b1_c2x"} {
					if dir, err := f.Pod(uid); !errors.Is(err, place.ErrNone) {
						t.Errorf("pod %q in %q, %v", uid, dir, err)
					}
				}
				for _, id := range []string{"", "c", "scope", ".."} {
					if dir, _, err := f.Within(c.pod, id); !errors.Is(err, place.ErrNone) {
						t.Errorf("container %q in %q, %v", id, dir, err)
					}
				}
				if _, _, err := f.Within("/lab/kubepods/podgone", "c1"); !errors.Is(err, place.ErrNone) {
					t.Errorf("in a pod that has gone: %v", err)
				}
			})
		}
	}
}

// What stands in the kernel is what was asked, unless a plan of ours claims it, and no limit is no request.
func TestResources(t *testing.T) {
	t.Parallel()
	const dir = plainPod + "/c1"
	at := plan.Target{Level: plan.LevelContainer, Cgroup: dir, Container: "c1"}
	ours := []plan.Plan{nil, {
		{Target: at, Knob: plan.CPUShares, Value: plan.Int(512)}, {Target: at, Knob: plan.CPUQuota, Value: plan.Int(-1)},
		{Target: at, Knob: plan.MemoryLimit, Value: plan.Int(1<<30 + 5)}, // which the kernel rounds
	}}
	for name, c := range map[string]struct {
		kernel string
		files  map[string]string
		ours   []plan.Plan
		want   workload.Resources
	}{
		"asked, v1": {
			kernel: "v1", files: map[string]string{"cpu.shares": "300", "cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "200000", "memory.limit_in_bytes": "1073741824"},
			want: workload.Resources{Shares: unit.Some(300), Quota: unit.Some(50000), Period: unit.Some(200000), MemoryLimit: unit.Some(1 << 30), OOMScoreAdj: unit.Some(900)},
		},
		"asked, v2": {
			kernel: "6.12", files: map[string]string{"cpu.weight": "33", "cpu.max": "50000 200000", "memory.max": "1073741824"},
			want: workload.Resources{Quota: unit.Some(50000), Period: unit.Some(200000), MemoryLimit: unit.Some(1 << 30), OOMScoreAdj: unit.Some(900)},
		},
		"nothing asked, v1": {
			kernel: "v1", files: map[string]string{"cpu.shares": "2", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "9223372036854771712"},
			want: workload.Resources{Shares: unit.Some(2), OOMScoreAdj: unit.Some(900)},
		},
		"nothing asked, v2": {
			kernel: "6.12", files: map[string]string{"cpu.weight": "1", "cpu.max": "max 100000", "memory.max": "max"},
			want: workload.Resources{OOMScoreAdj: unit.Some(900)},
		},
		"a kubelet's own period": {
			kernel: "6.12", files: map[string]string{"cpu.weight": "1", "cpu.max": "max 10000", "memory.max": "max"},
			want: workload.Resources{Period: unit.Some(10000), OOMScoreAdj: unit.Some(900)},
		},
		"ours, v1": {
			kernel: "v1", files: map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "1073741824"}, ours: ours,
			want: workload.Resources{Shares: unit.Some(512), Quota: unit.Some(-1), Period: unit.Some(100000), MemoryLimit: unit.Some(1<<30 + 5), OOMScoreAdj: unit.Some(900)},
		},
		"ours by the one formula": {
			kernel: "6.12", files: map[string]string{"cpu.weight": "20", "cpu.max": "max 100000", "memory.max": "1073741824"}, ours: ours,
			want: workload.Resources{Shares: unit.Some(512), Quota: unit.Some(-1), Period: unit.Some(100000), MemoryLimit: unit.Some(1<<30 + 5), OOMScoreAdj: unit.Some(900)},
		},
		"ours by the other formula": {
			kernel: "6.12", files: map[string]string{"cpu.weight": "59", "cpu.max": "max 100000", "memory.max": "max"}, ours: ours,
			want: workload.Resources{Shares: unit.Some(512), Quota: unit.Some(-1), Period: unit.Some(100000), OOMScoreAdj: unit.Some(900)},
		},
		"not ours any more": {
			kernel: "v1", files: map[string]string{"cpu.shares": "513", "cpu.cfs_quota_us": "70000", "memory.limit_in_bytes": "4096"}, ours: ours,
			want: workload.Resources{Shares: unit.Some(513), Quota: unit.Some(70000), Period: unit.Some(100000), MemoryLimit: unit.Some(4096), OOMScoreAdj: unit.Some(900)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := kerneltest.New(t, c.kernel, dir)
			for file, text := range c.files {
				tree.Set(t, dir, file, text)
			}
			proc := filepath.Join(tree.Roots.Proc, "42")
			if err := os.MkdirAll(proc, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(proc, "oom_score_adj"), []byte("900\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, open(t, tree).Resources(at, 42, c.ours)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
