// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// firstScript reads with nothing but the shell's own commands, so that what it prints is what its first process, before
// any other, was given; then it stays, unless it is an init container's. What others have to make room for comes first.
const firstScript = `
say() { [ -e "$2" ] || { echo "$1=absent"; return; }; while IFS= read -r l; do echo "$1=$l"; return; done <"$2"; echo "$1="; }
allowed() { while read -r k v; do case $k in Cpus_allowed_list:) echo "@allowed=$v";; esac; done </proc/self/status; }
set -- $AROUND
while [ $# -gt 1 ]; do say "$1" "$2"; shift 2; done
say @oom /proc/self/oom_score_adj
say @stat /proc/self/stat
allowed
say @resctrl /proc/self/cpu_resctrl_groups
own=/sys/fs/cgroup
IFS= read -r l </proc/self/cgroup
case $l in 0::*) own=$own${l#0::};; esac
for f in $FILES; do say ${f##*/} $own/$f; done
echo end=
[ -n "$ENDS" ] || exec sleep 3600`

// aroundMount is where a container finds the machine's cgroups: its own view of cgroupMount ends at itself.
const (
	cgroupMount = "/sys/fs/cgroup"
	aroundMount = "/machine"
)

// lifecycleFirstInstruction lets containers print their own values before they do anything else.
func lifecycleFirstInstruction(r *rig) {
	r.up(firsts, nil)
	_, rest := cpus()
	all := "0-" + strconv.Itoa(runtime.NumCPU()-1)
	r.told(r.pod(r.tells(idlePod("first-idle"))), "@allowed", all, wants("idle", ""))
	for i := range rounds(3) {
		n := strconv.Itoa(i)
		ls, be := r.pod(r.tells(lsPod("first-ls"+n))), r.pod(r.tells(bePod("first-be"+n)))
		r.told(ls, "@allowed", all, wants("LS", ""))
		r.told(be, "@allowed", all, wants("BE", ""))

		var owner *kubelet.Running
		for _, class := range []string{"LSR", "LSE"} {
			if owner != nil {
				if err := r.kube.StopPod(r.t.Context(), owner); err != nil {
					r.t.Fatal(err)
				}
				r.soon(5*time.Second, ls, inForce(all)) // so that they have something to leave again
				r.soon(5*time.Second, be, inForce(all))
			}
			own := lsrPod("first-" + strings.ToLower(class) + n)
			own.Labels["koordinator.sh/qosClass"] = class
			owner = r.owner(own, ls, be)
		}

		late := r.pod(r.tells(lsPod("first-late" + n)))
		r.told(late, "@allowed", rest, wants("LS", rest))
		for _, run := range []*kubelet.Running{ls, be, owner, late} {
			if err := r.kube.StopPod(r.t.Context(), run); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for _, f := range r.firstTable() {
		r.seen(f)
	}
	if n := r.metric("koord_rt_nri_proof_total", `result="ok"`); n < float64(10*rounds(3)) {
		r.t.Errorf("only %v values were proved at start", n)
	}
	if n := r.metric("koord_rt_nri_proof_total", `result="drift"`); n != 0 {
		r.t.Errorf("%v values did not stand at start", n)
	}
	n := r.metric("koord_rt_nri_early_writes_total", `knob="cpu.burst"`)
	r.t.Logf("%v bursts stood before the start was told", n)
	if v1 := r.version == "v1"; v1 != (n > 0) {
		r.t.Errorf("on cgroup %s %v bursts stood before the start was told", r.version, n)
	}
}

// owner starts a pod that takes the last CPU from two that run on it: its first instruction finds them gone.
func (r *rig) owner(p kubelet.Pod, ls, be *kubelet.Running) *kubelet.Running {
	r.t.Helper()
	last, rest := cpus()
	run := r.created(r.tells(p, ls, be))
	if err := r.kube.StartContainer(r.t.Context(), run, "main"); err != nil {
		r.t.Fatal(err)
	}
	// The start has been answered: its neighbours have left by now, not some time later.
	r.now(ls, []string{"main cpuset.cpus=" + rest})
	r.now(be, []string{"main cpuset.cpus=" + rest})
	r.told(run, "@allowed", last, append(wants("LSR", ""), "main cpuset.mems="+memoryOf(r, last)))
	for _, by := range []*kubelet.Running{ls, be} {
		r.told(run, by.Pod.Name+".cpuset.cpus", rest, nil) // and not from some time later on
	}
	return run
}

// created is a pod whose container exists and does not run.
func (r *rig) created(p kubelet.Pod) *kubelet.Running {
	r.t.Helper()
	run, err := r.kube.RunPod(r.t.Context(), p)
	if err != nil {
		r.t.Fatal(err)
	}
	r.cleanPod(run)
	if _, err := r.kube.CreateContainer(r.t.Context(), run, "main"); err != nil {
		r.t.Fatal(err)
	}
	return run
}

// tells makes a pod's containers print their values, those of the pod's cgroup, and the CPUs of neighbours that run already.
func (r *rig) tells(p kubelet.Pod, neighbours ...*kubelet.Running) kubelet.Pod {
	r.t.Helper()
	own := "cpu/cpu.cfs_quota_us cpu/cpu.cfs_burst_us cpu/cpu.shares cpu/cpu.idle cpuset/cpuset.cpus cpuset/cpuset.mems memory/memory.limit_in_bytes " +
		"memory/memory.min memory/memory.low memory/memory.high memory/memory.oom.group blkio/blkio.throttle.read_bps_device blkio/blkio.throttle.write_iops_device"
	pods := []string{"cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.shares", "cpu.idle", "memory.limit_in_bytes"}
	if cgroupV2() {
		own = "cpu.max cpu.max.burst cpu.weight cpu.idle cpuset.cpus cpuset.mems memory.max memory.min memory.low memory.high memory.oom.group"
		pods = []string{"cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle", "memory.max", "memory.min", "memory.low", "memory.oom.group", "io.max"}
	}
	group, err := r.kube.PodCgroup(p)
	if err != nil {
		r.t.Fatal(err)
	}
	var around strings.Builder
	for _, by := range neighbours {
		dir := r.kube.ContainerDir(by, "main", r.controller("cpuset.cpus"))
		fmt.Fprintf(&around, "%s.cpuset.cpus %s%s/cpuset.cpus ", by.Pod.Name, aroundMount, strings.TrimPrefix(dir, cgroupMount))
	}
	for _, f := range pods {
		mount := r.tree.Unified
		if !r.tree.V2() {
			mount = r.tree.Controllers[r.controller(f)]
		}
		dir := filepath.Join(aroundMount, strings.TrimPrefix(mount, cgroupMount), group)
		fmt.Fprintf(&around, "pod.%s %s ", f, filepath.Join(dir, f))
		if f == "memory.min" || f == "memory.low" {
			fmt.Fprintf(&around, "above.%s %s ", f, filepath.Join(filepath.Dir(dir), f))
		}
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		c.Command, c.Env = []string{"sh", "-c", firstScript}, map[string]string{"FILES": own, "AROUND": around.String()}
		c.Mounts = []kubelet.Mount{{HostPath: cgroupMount, ContainerPath: aroundMount}}
		if c.Init {
			c.Env["ENDS"] = "1"
		}
	}
	return p
}

// memoryOf is the NUMA node of a CPU, as /sys/devices/system/cpu/cpuN has it.
func memoryOf(r *rig, cpu string) string {
	r.t.Helper()
	nodes, err := filepath.Glob("/sys/devices/system/cpu/cpu" + cpu + "/node[0-9]*")
	if err != nil || len(nodes) != 1 {
		r.t.Fatalf("memory node of CPU %s: %q, %v", cpu, nodes, err)
	}
	return strings.TrimPrefix(filepath.Base(nodes[0]), "node")
}

// words reads a container's log: "TIME stdout F KEY=VALUE".
func (r *rig) words(run *kubelet.Running, container string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(run.Config.LogDirectory, container, "0.log"))
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(f) < 4 {
			continue
		}
		k, v, _ := strings.Cut(f[3], "=")
		out[k] = v
	}
	if _, ok := out["end"]; !ok {
		return nil, fmt.Errorf("container %s of %s has not said everything yet: %q", container, run.Pod.Name, text)
	}
	// The 41st field of stat is the scheduling policy; the second is the name in parentheses.
	_, fields, _ := strings.Cut(out["@stat"], ") ")
	if f := strings.Fields(fields); len(f) > 38 {
		out["@sched"] = f[38]
	}
	return out, nil
}
