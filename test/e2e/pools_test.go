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

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// inForce is the list of CPUs that a container may use: on cgroup v2 an empty cpuset.cpus means the parent's.
func inForce(cpus string) []string {
	if cgroupV2() {
		return []string{"main cpuset.cpus.effective=" + cpus}
	}
	return []string{"main cpuset.cpus=" + cpus}
}

func allCPUs() string { return "0-" + strconv.Itoa(runtime.NumCPU()-1) }

// lifecycleGivenBack: when the pod that owns a CPU goes, its neighbours get the CPU back.
func lifecycleGivenBack(r *rig) {
	_, rest := cpus()
	r.up(standard, onlyEvents()) // the end of the pod gives them back
	ls, be := r.pod(lsPod("back-ls")), r.pod(bePod("back-be"))
	lsr := r.pod(lsrPod("back-lsr"))
	for _, run := range []*kubelet.Running{ls, be} {
		r.now(run, inForce(rest))
	}
	if err := r.kube.StopPod(r.t.Context(), lsr); err != nil {
		r.t.Fatal(err)
	}
	for _, run := range []*kubelet.Running{ls, be} {
		r.soon(5*time.Second, run, inForce(allCPUs()))
	}
}

// lifecycleExpiry plays a node agent that dies: what it published holds until its time is up, then the static default
// does; a new agent's word counts again.
func lifecycleExpiry(r *rig) {
	_, rest := cpus()
	set, err := topo.ParseCPUSet(rest)
	if err != nil {
		r.t.Fatal(err)
	}
	w, err := handoff.NewWriter(r.run, r.state)
	if err != nil {
		r.t.Fatal(err)
	}
	generation := uint64(0)
	publish := func(holds time.Duration) {
		generation++
		now := time.Now()
		if err := w.Dynamic(generation, node.Dynamic{Known: true, BECPUs: set, Expires: now.Add(holds)}, now); err != nil {
			r.t.Fatal(err)
		}
	}
	publish(time.Hour)
	r.up(standard, onlyEvents()) // pods follow the end of its time, and what it publishes
	first := r.pod(bePod("expiry-first"))
	r.now(first, inForce(rest))
	r.now(r.pod(lsPod("expiry-ls")), inForce(allCPUs()))

	publish(time.Second) // its last word
	r.soon(10*time.Second, first, inForce(allCPUs()))
	r.says([]string{"features"}, "no suppression set or share pools from a node agent")
	second := r.pod(bePod("expiry-second"))
	r.now(second, inForce(allCPUs()))

	publish(time.Hour)
	for _, run := range []*kubelet.Running{first, second} {
		r.soon(10*time.Second, run, inForce(rest))
	}
	r.eventually(8*time.Second, func() error { // the status file follows within moments
		if out, err := r.ctl("features"); err != nil || strings.Contains(out, "no suppression set or share pools") {
			return fmt.Errorf("features still miss the agent (%v):\n%s", err, out)
		}
		return nil
	})
}

// lifecycleHandedStrategy plays a node agent that brings a strategy and then leaves the node for good: its strategy goes before the
// file's, for running pods and for new ones, and the file's holds again when what it has left is removed.
func lifecycleHandedStrategy(r *rig) {
	strategyOf := func(percent string) string {
		return "cpuBurstStrategy: {policy: auto, cpuBurstPercent: " + percent + "}\n"
	}
	burst := func(us string) []string {
		if r.tree.V2() {
			return []string{"main cpu.max.burst=" + us, "pod cpu.max.burst=" + us}
		}
		return []string{"main cpu.cfs_burst_us=" + us, "pod cpu.cfs_burst_us=" + us}
	}
	if err := os.WriteFile(r.base()["strategyFile"].(string), []byte(strategyOf("40")), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.up("", onlyEvents()) // running pods follow the strategy that has come, or gone
	first := r.pod(lsPod("handed-file"))
	r.now(first, burst("20000"))

	w, err := handoff.NewWriter(r.run, r.state)
	if err != nil {
		r.t.Fatal(err)
	}
	spec, err := strategy.Parse([]byte(strategyOf("100")))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := w.Strategy(1, &spec, time.Now()); err != nil {
		r.t.Fatal(err)
	}
	if err := w.Owed().Write(); err != nil {
		r.t.Fatal(err)
	}
	r.soon(5*time.Second, first, burst("50000"))
	r.now(r.pod(lsPod("handed-agent")), burst("50000"))

	for _, dir := range []string{r.state, r.run} { // as docs/user/install-and-run.md says
		if err := os.Remove(filepath.Join(dir, handoff.StrategyFile)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.soon(5*time.Second, first, burst("20000"))
	r.now(r.pod(lsPod("handed-back")), burst("20000"))
}
