// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

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
	r.now(r.demanding(needs(bePod("required-can"), "batch,oom-score,cpu-identity")), wants("BE", ""))

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
		case feature == "":
			r.unproved(run, "cpuset.cpus")
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
	if !emulated() {
		r.requiredOnPod(needs)
		r.requiredByNode()
	}
}

// demanding is pod for one that may be refused for want of its guarantee. A refusal that says no more than that the proof did not come in
// time, the kubelet answers with another try.
func (r *rig) demanding(p kubelet.Pod) *kubelet.Running {
	r.t.Helper()
	run, err := r.kube.StartPod(r.t.Context(), p)
	if r.tooEarly(p, err) {
		return r.pod(p)
	}
	if err != nil {
		r.t.Fatalf("start pod %s: %v", p.Name, err)
	}
	r.cleanPod(run)
	return run
}

// tooEarly tells whether an error is the refusal of a pod that has waited too long for its cgroup, or for its proof, as a log has to say.
func (r *rig) tooEarly(pod kubelet.Pod, err error) bool {
	r.t.Helper()
	return err != nil && (strings.Contains(err.Error(), "the pod's cgroup is still being written") ||
		strings.Contains(err.Error(), "could not be proved: decision is late")) && r.excusedLook(err, pod.FullName())
}

// unproved fails unless the proof at the start of a container that runs without one of its values is told (D9): in log, metric, status
// and ledger.
func (r *rig) unproved(run *kubelet.Running, knob string) {
	r.t.Helper()
	name, id := "default/"+run.Pod.Name, run.Containers["main"]
	r.eventually(5*time.Second, func() error {
		if n := r.metric("koord_rt_nri_proof_total", `knob="`+knob+`"`, `result="drift"`); n < 1 {
			return fmt.Errorf("no failed proof of %s was counted", knob)
		}
		if !strings.Contains(r.log.String(), "values do not stand in the kernel at start") {
			return errors.New("the log tells of no failed proof")
		}
		told := r.status().ProofFailures[id]
		if told.Container != name+"/main" || !strings.Contains(strings.Join(told.Knobs, " "), knob) {
			return fmt.Errorf("the status does not tell of %s of %s: %+v", knob, name, told)
		}
		out, err := r.ctl("explain", name, "-o", "json")
		if err != nil {
			return fmt.Errorf("explain %s: %w: %s", name, err, out)
		}
		var said struct {
			Settings []struct{ Level, Knob, Drift, Proof string }
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			return err
		}
		for _, s := range said.Settings {
			if s.Level == "container" && s.Knob == knob && s.Proof != "" && s.Drift != "no" {
				return nil
			}
		}
		return fmt.Errorf("explain says nothing of the proof of %s: %+v", knob, said.Settings)
	})
}

// requiredOnPod shows that what stands on the pod is part of what is required: a hand's change is put right before the first
// instruction, and what the kernel refuses there stops the container. Only cgroup v1 refuses a pod a quota below a child's.
func (r *rig) requiredOnPod(needs func(kubelet.Pod, string) kubelet.Pod) {
	ctx := r.t.Context()
	file, widest := "cpu.cfs_quota_us", "-1"
	if cgroupV2() {
		file, widest = "cpu.max", "max"
	}
	changed := func(name, feature string) *kubelet.Running {
		r.t.Helper()
		run, err := r.kube.RunPod(ctx, needs(bePod(name), feature))
		if err != nil {
			r.t.Fatal(err)
		}
		r.cleanPod(run)
		r.now(run, []string{wants("BE", "")[1]}) // a pod that requires something is written before the sandbox is answered
		if err := cgroups.Write(r.kube.PodDir(run, "cpu"), file, widest); err != nil {
			r.t.Fatal(err)
		}
		return run
	}
	run := changed("required-hand", "batch")
	err := r.kube.StartContainer(ctx, run, "main")
	if r.tooEarly(run.Pod, err) {
		if err := r.kube.StopPod(ctx, run); err != nil {
			r.t.Fatal(err)
		}
		run = changed("required-hand", "batch")
		err = r.kube.StartContainer(ctx, run, "main")
	}
	if err != nil {
		r.t.Errorf("the pod's value could be put right: %v", err)
	}
	r.now(run, wants("BE", ""))
	if cgroupV2() {
		return
	}
	const told = "cpu.quota of pod default/required-pod"
	run = changed("required-pod", "batch")
	child := filepath.Join(r.kube.PodDir(run, "cpu"), "child")
	if err := os.Mkdir(child, 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = os.Remove(child) }) // if the test has given up before
	if err := cgroups.Write(child, file, "60000"); err != nil {
		r.t.Fatal(err)
	}
	err = r.kube.StartContainer(ctx, run, "main")
	if err != nil && !strings.Contains(err.Error(), told) && r.tooEarly(run.Pod, err) { // so nobody has looked at the quota
		if err := r.host.CRI().RemoveContainer(ctx, run.Containers["main"]); err != nil {
			r.t.Fatal(err)
		}
		delete(run.Containers, "main")
		err = r.kube.StartContainer(ctx, run, "main")
	}
	if err == nil || !strings.Contains(err.Error(), told) {
		r.t.Errorf("a pod without its quota started: %v", err)
	}
	if err := errors.Join(os.Remove(child), r.kube.StopPod(ctx, run)); err != nil {
		r.t.Fatal(err)
	}
}

// requiredByNode lets the node demand a feature that this machine does not have: pods that it would do something for do not start,
// others do.
func (r *rig) requiredByNode() {
	ctx := r.t.Context()
	r.stop(syscall.SIGTERM)
	// An llc group is made by resctrl, which the lab's host may have: ceded, the feature is unsupported anywhere.
	const cache = "  lsClass: {resctrlQOS: {enable: true, catRangeEndPercent: 50}}\n"
	r.up(standard+cache, map[string]any{"failClosed": []string{"llc"}, "cede": []string{"rdt.class"}})
	r.now(r.demanding(bePod("node-be")), wants("BE", ""))
	run, err := r.kube.StartPod(ctx, lsPod("node-ls"))
	if err == nil {
		r.cleanPod(run)
		r.t.Error("the pod started without the cache that its node demands for it")
	} else if !strings.Contains(err.Error(), "llc is unsupported here") || !strings.Contains(err.Error(), "fail closed") {
		r.t.Errorf("the error does not say why: %v", err)
	}
	free := lsPod("node-free")
	free.Annotations = map[string]string{"koord-rt.dev/opt-out": "llc"}
	r.now(r.pod(free), wants("LS", ""))
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
