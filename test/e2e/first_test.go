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
// any other, was given; then it stays.
const firstScript = `
say() { [ -e "$2" ] || { echo "$1=absent"; return; }; while IFS= read -r l; do echo "$1=$l"; return; done <"$2"; echo "$1="; }
allowed() { while read -r k v; do case $k in Cpus_allowed_list:) echo "@allowed=$v";; esac; done </proc/self/status; }
say @oom /proc/self/oom_score_adj
say @stat /proc/self/stat
allowed
say @resctrl /proc/self/cpu_resctrl_groups
own=/sys/fs/cgroup
IFS= read -r l </proc/self/cgroup
case $l in 0::*) own=$own${l#0::};; esac
for f in $FILES; do say ${f##*/} $own/$f; done
for f in $PODFILES; do say pod.$f $own/../$f; done
echo end=
exec sleep 3600`

// lifecycleFirstInstruction lets containers print their own values before they do anything else.
func lifecycleFirstInstruction(r *rig) {
	r.up(firsts, nil)
	_, rest := cpus()
	all := "0-" + strconv.Itoa(runtime.NumCPU()-1)
	for i := range 3 {
		n := strconv.Itoa(i)
		ls, be := r.pod(tells(lsPod("first-ls"+n))), r.pod(tells(bePod("first-be"+n)))
		r.told(ls, "@allowed", all, wants("LS", ""))
		r.told(be, "@allowed", all, wants("BE", ""))

		lsr := r.created(tells(lsrPod("first-lsr" + n)))
		if err := r.kube.StartContainer(r.t.Context(), lsr, "main"); err != nil {
			r.t.Fatal(err)
		}
		// The start has been answered: its neighbours have left by now, not some time later.
		r.now(ls, []string{"main cpuset.cpus=" + rest})
		r.now(be, []string{"main cpuset.cpus=" + rest})
		last, _ := cpus()
		r.told(lsr, "@allowed", last, wants("LSR", ""))

		late := r.pod(tells(lsPod("first-late" + n)))
		r.told(late, "@allowed", rest, wants("LS", rest))
		for _, run := range []*kubelet.Running{ls, be, lsr, late} {
			if err := r.kube.StopPod(r.t.Context(), run); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for _, f := range r.firstTable() {
		r.seen(f)
	}
	if n := r.metric("koord_rt_nri_proof_total", `result="ok"`); n < 30 {
		r.t.Errorf("only %v values were proved at start", n)
	}
	if n := r.metric("koord_rt_nri_proof_total", `result="drift"`); n != 0 {
		r.t.Errorf("%v values did not stand at start", n)
	}
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

// tells makes a pod print its values.
func tells(p kubelet.Pod) kubelet.Pod {
	files := "cpu/cpu.cfs_quota_us cpu/cpu.cfs_burst_us cpu/cpu.shares cpuset/cpuset.cpus memory/memory.limit_in_bytes " +
		"memory/memory.min memory/memory.low memory/memory.high blkio/blkio.throttle.read_bps_device blkio/blkio.throttle.write_iops_device"
	if cgroupV2() {
		files = "cpu.max cpu.max.burst cpu.weight cpuset.cpus memory.max memory.min memory.low memory.high"
	}
	p.Containers[0].Command = []string{"sh", "-c", firstScript}
	p.Containers[0].Env = map[string]string{"FILES": files}
	if p.Privileged && cgroupV2() { // who is not sees no more than his own
		p.Containers[0].Env["PODFILES"] = "cpu.max.burst memory.min memory.low io.max"
	}
	return p
}

// told compares a container's own words with the wanted values of its level.
func (r *rig) told(run *kubelet.Running, key, value string, wants []string) {
	r.t.Helper()
	var said map[string]string
	r.eventually(5*time.Second, func() (err error) {
		said, err = r.words(run)
		return err
	})
	if said[key] != value {
		r.t.Errorf("%s says %s = %q, want %q", run.Pod.Name, key, said[key], value)
	}
	for _, w := range wants {
		what, ok := strings.CutPrefix(w, "main ")
		if !ok {
			continue // the pod's level is not the container's to see
		}
		file, value, _ := strings.Cut(what, "=")
		if said[file] != value {
			r.t.Errorf("%s: before anything else the container read %s = %q, want %q", run.Pod.Name, file, said[file], value)
		}
	}
}

// words reads the container's log: "TIME stdout F KEY=VALUE".
func (r *rig) words(run *kubelet.Running) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(run.Config.LogDirectory, "main", "0.log"))
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
		return nil, fmt.Errorf("the container of %s has not said everything yet: %q", run.Pod.Name, text)
	}
	// The 41st field of stat is the scheduling policy; the second is the name in parentheses.
	_, fields, _ := strings.Cut(out["@stat"], ") ")
	if f := strings.Fields(fields); len(f) > 38 {
		out["@sched"] = f[38]
	}
	return out, nil
}
