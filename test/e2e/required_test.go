// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleRequired shows fail-closed: a pod that would rather not run than run without a guarantee.
func lifecycleRequired(r *rig) {
	ctx := r.t.Context()
	r.up(standard, map[string]any{"features": map[string]string{"blkio": "off"}})
	needs := func(p kubelet.Pod, feature string) kubelet.Pod {
		if feature != "" {
			p.Annotations = mergeMaps(p.Annotations, map[string]string{"koord-rt.dev/required": feature})
		}
		return p
	}
	r.now(r.pod(needs(bePod("required-can"), "batch,oom-score,cpu-identity")), wants("BE", ""))

	// A feature that the node does not have at all.
	run, err := r.kube.StartPod(ctx, needs(bePod("required-off"), "blkio"))
	if err == nil {
		r.cleanPod(run)
		r.t.Error("the pod started without a feature that it requires")
	} else if !strings.Contains(err.Error(), "blkio") || !strings.Contains(err.Error(), "koord-rt") {
		r.t.Errorf("the error does not say why: %v", err)
	}
	r.now(r.pod(bePod("required-free")), wants("BE", ""))

	// A feature that the node has, and a value that the kernel refuses: the pod's own cgroup lacks the CPU.
	for _, feature := range []string{"", "cpuset"} {
		name := "required-cpu" + feature
		run, err := r.kube.RunPod(ctx, needs(lsrPod(name), feature))
		if err != nil {
			r.t.Fatal(err)
		}
		r.cleanPod(run)
		r.narrow(run, "0")
		err = r.kube.StartContainer(ctx, run, "main")
		switch {
		case feature == "" && err != nil:
			r.t.Errorf("a pod that requires nothing does not start: %v", err)
		case feature != "" && err == nil:
			v, _ := r.value(run, "main cpuset.cpus")
			r.t.Errorf("the pod started with CPUs %q although it requires its own", v)
		case feature != "" && (!strings.Contains(err.Error(), "cpuset") || !strings.Contains(err.Error(), "koord-rt")):
			r.t.Errorf("the error does not say why: %v", err)
		}
		if err := r.kube.StopPod(ctx, run); err != nil {
			r.t.Fatal(err)
		}
	}
}

func mergeMaps(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// narrow leaves a pod, whose only container is the sandbox, less CPUs; on cgroup v1 children go first.
func (r *rig) narrow(run *kubelet.Running, cpus string) {
	r.t.Helper()
	dirs, err := cgroups.Dirs(r.kube.PodDir(run, "cpuset"))
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(dirs)
	for _, d := range dirs {
		if err := cgroups.Write(d, "cpuset.cpus", cpus); err != nil {
			r.t.Fatal(err)
		}
	}
}
