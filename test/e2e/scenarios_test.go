// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// TestHostScenarios runs every scenario that fits this machine on its real kernel.
func TestHostScenarios(t *testing.T) { runScenarios(t, rigOptions{}) }

// topology is what the CPU numbers of scenarios may rely on here.
func topology() string {
	switch runtime.NumCPU() {
	case 2:
		return "host2"
	case 8:
		return "vm8"
	}
	return "other"
}

// paperMemory is the node's capacity in scenarios: it only enters oom_score_adj.
const paperMemory = 32 << 30

// fitting are the scenarios that fit this machine, with its disk in them; the others are told. On CI the host has to be the one that the
// matrix of test/arch counts on: on another, a part of the matrix would not be shown and nothing would fail.
func (r *rig) fitting() (fit []scenario.Scenario) {
	r.t.Helper()
	all, err := scenario.All()
	if err != nil {
		r.t.Fatal(err)
	}
	has := present(r.t)
	var disk scenario.Disk
	disk.Name, disk.Number = r.disk()
	for _, s := range all {
		if why, fits := s.Fits(r.version, topology(), has...); fits {
			here, err := s.On(disk)
			if err != nil {
				r.t.Fatal(err)
			}
			fit = append(fit, here)
		} else {
			r.t.Logf("%-20s not on this machine: %s", s.Name, why)
		}
	}
	if len(fit) < 8 {
		r.t.Errorf("only %d scenarios fit this machine: something is wrong with the choice", len(fit))
	}
	if lost := scenario.Lost(all, r.version, topology()); len(lost) > 0 && !emulated() {
		say := r.t.Logf
		if os.Getenv("CI") != "" {
			say = r.t.Errorf
		}
		say("this host has cgroup %s and %d CPUs, the matrix of test/arch counts on cgroup %s and two: what it has of the host is not shown here by %s",
			r.version, runtime.NumCPU(), scenario.HostVersion, strings.Join(lost, ", "))
	}
	return fit
}

func runScenarios(t *testing.T, o rigOptions) {
	o.memory = paperMemory
	o.nri.Handlers = foreignHandlers
	r := newRig(t, o)
	fit := r.fitting()
	for _, s := range fit {
		t.Run(s.Name, func(t *testing.T) {
			r := r.sub(t)
			r.freshRun()
			r.prepare(&s)
			r.startWith(&s)
			pods, under := r.createSeen(s.Pods)
			r.atOnce(&s, pods, s.Wants(r.version, r.driver == kubelet.Systemd))
			r.settle(&s, pods, s.Wants(r.version, r.driver == kubelet.Systemd))
			r.provedAll()
			if r.driver == kubelet.Systemd {
				// systemd writes every attribute of its units again: what is no property of the unit is undone here.
				r.reload()
				r.holds(time.Second, &s, pods, s.Wants(r.version, r.driver == kubelet.Systemd))
				r.provedAll(plan.MemoryOOMGroup) // see holds
			}
			r.annotated(&s, pods, under)
			r.remove(pods)
			r.noPodGroups()
			r.stop(syscall.SIGTERM)
		})
	}
	t.Logf("%d scenarios ran on cgroup %s", len(fit), r.version)
}

// sub is the rig seen from a subtest.
func (r *rig) sub(t *testing.T) *rig {
	c := *r
	c.t, c.log, c.meant, c.excuses = t, &syncBuffer{}, [2]int{}, r.excuses.Part()
	t.Cleanup(func() {
		c.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("koord-nri's log:\n%s", tail(c.log.String(), 6000))
		}
	})
	return &c
}

// create starts the pods in order.
func (r *rig) create(specs []kubelet.Pod) map[string]*kubelet.Running {
	r.t.Helper()
	pods := map[string]*kubelet.Running{}
	for _, p := range specs {
		run, err := r.kube.StartPod(r.t.Context(), p)
		if err != nil {
			r.t.Fatalf("start pod %s: %v", p.Name, err)
		}
		pods[p.Name] = run
	}
	return pods
}

// generations are those of koord-nri's View between two moments.
type generations struct{ first, last uint64 }

// createSeen is create, and says of each pod under which generations of the View it came: it is one but where the pod itself changes the
// View, by what it claims or by what its weight tells of the runtime.
func (r *rig) createSeen(specs []kubelet.Pod) (pods map[string]*kubelet.Running, under map[string]generations) {
	r.t.Helper()
	pods, under = map[string]*kubelet.Running{}, map[string]generations{}
	present := func() uint64 { return uint64(r.metric("koord_rt_nri_view_generation")) }
	for _, p := range specs {
		first := present()
		maps.Copy(pods, r.create([]kubelet.Pod{p}))
		under[p.Name] = generations{first, present()}
	}
	return pods, under
}

func (r *rig) remove(pods map[string]*kubelet.Running) {
	r.t.Helper()
	for name, run := range pods {
		if err := r.kube.StopPod(r.t.Context(), run); err != nil {
			r.t.Errorf("stop pod %s: %v", name, err)
		}
	}
}

// atOnce compares what stands before the first instruction: lines of containers, of pods and directories above them, for which a
// start waits as it does for those who have to make room, and of resctrl groups; but not an environment, which is runc's until the
// container's program has taken its place. settle waits for that, and for what was late.
func (r *rig) atOnce(s *scenario.Scenario, pods map[string]*kubelet.Running, wants []scenario.Want) {
	r.t.Helper()
	var all []string
	for _, run := range pods {
		all = append(all, run.Pod.FullName())
	}
	wrong := map[string][]lacking{} // by pod, "" above all of them
	for _, w := range wants {
		if strings.HasPrefix(w.File, "@env") {
			continue
		}
		if _, seen := wrong[w.Pod]; !seen {
			wrong[w.Pod] = nil
			r.excuses.Look()
		}
		if got, err := r.readOf(s, pods, w); err != nil || got != w.Value {
			wrong[w.Pod] = append(wrong[w.Pod], lacking{fmt.Errorf("want %s at once, the kernel has %q (%v)", w, got, err), ofCPUs(w.File)})
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(wrong)) {
		due := all // sums of all pods, and groups that any of them may be the first in
		if pod != "" {
			due = []string{pods[pod].Pod.FullName()}
		}
		for _, err := range r.unexcused(wrong[pod], due...) {
			r.t.Error(err)
		}
	}
}

// settle compares the kernel with every wanted line, and waits.
func (r *rig) settle(s *scenario.Scenario, pods map[string]*kubelet.Running, wants []scenario.Want) {
	r.t.Helper()
	deadline := time.Now().Add(patience(shortest))
	for _, w := range wants {
		got, err := r.readOf(s, pods, w)
		for (err != nil || got != w.Value) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			got, err = r.readOf(s, pods, w)
		}
		if err != nil {
			r.t.Errorf("%v", err)
		} else if got != w.Value {
			r.t.Errorf("want %s, the kernel has %q", w, got)
		}
	}
}

// holds fails at the first read within the time that finds another value: systemd works off its queue of units while
// the kernel still shows what stood there before, so one good read right after a reload proves nothing. Of a scope's
// memory.oom.group systemd takes no word but its creator's (OOMPolicy=): the drift check puts that back.
func (r *rig) holds(during time.Duration, s *scenario.Scenario, pods map[string]*kubelet.Running, wants []scenario.Want) {
	r.t.Helper()
	end, rounds := time.Now().Add(during), 0
	for ; rounds == 0 || time.Now().Before(end); rounds++ {
		for _, w := range wants {
			if w.File == plan.MemoryOOMGroup.String() {
				continue
			}
			if got, err := r.readOf(s, pods, w); err != nil || got != w.Value {
				r.t.Errorf("round %d after the reload: want %s, the kernel has %q (%v)", rounds, w, got, err)
				return
			}
		}
	}
	r.t.Logf("%d values held for %s, read %d times", len(wants), during, rounds)
	for _, w := range wants {
		if w.File == plan.MemoryOOMGroup.String() {
			r.eventually(2*engine.DefaultDrift, func() error {
				got, err := r.readOf(s, pods, w)
				if err == nil && got != w.Value {
					err = fmt.Errorf("a drift check after the reload: want %s, the kernel has %q", w, got)
				}
				return err
			})
		}
	}
}

// standing is holds for a check of one's own: it fails at the first error within the time.
func (r *rig) standing(during time.Duration, check func() error) {
	r.t.Helper()
	end, rounds := time.Now().Add(during), 0
	for ; rounds == 0 || time.Now().Before(end); rounds++ {
		if err := check(); err != nil {
			r.t.Errorf("round %d: %v", rounds, err)
			return
		}
	}
	r.t.Logf("the values held for %s, read %d times", during, rounds)
}

// reload is what package installs and administrators do on a running node. It writes nothing by itself: from then on systemd holds
// all attributes of a unit for lost, and writes them when one property of it is set, or when a unit starts beside it. So one is set of
// each of our units, of which nothing that is looked at depends.
func (r *rig) reload() {
	r.t.Helper()
	if out, err := exec.Command("systemctl", "daemon-reload").CombinedOutput(); err != nil {
		r.t.Fatalf("daemon-reload: %v: %s", err, out)
	}
	units, base := 0, r.tree.Unified
	if !r.tree.V2() {
		base = r.tree.Controllers["cpu"]
	}
	err := filepath.WalkDir(filepath.Join(base, r.root()), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (strings.HasSuffix(name, ".slice") || strings.HasSuffix(name, ".scope")) {
			units++
			if out, err := exec.Command("systemctl", "set-property", "--runtime", name, "TasksAccounting=yes").CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	})
	if err != nil || units < 3 {
		r.t.Fatalf("have systemd write the attributes of %d units: %v", units, err)
	}
}

// provedAll fails when the plugin itself saw a value that was not in force at start. Drift of some knobs may be known to come later.
func (r *rig) provedAll(later ...plan.Knob) {
	r.t.Helper()
	for id, f := range r.status().ProofFailures {
		r.t.Errorf("proof at start of %s (%s): %v", f.Container, id, f.Knobs)
	}
	if strings.Contains(r.log.String(), "values do not stand in the kernel at start") { // also of those that were put right since
		r.t.Error("a proof at start failed: look at the log")
	}
	// A program that a test runs in a container stands in its cgroup before runc has given it the OOM score: a later look at that moment
	// counts here, too, and is no word about the start.
	n := r.metric("koord_rt_nri_proof_total", `result="drift"`)
	for _, k := range append(later, plan.OOMScoreAdj) {
		n -= r.metric("koord_rt_nri_proof_total", `result="drift"`, `"`+k.String()+`"`)
	}
	if n != 0 {
		r.t.Errorf("%v values were not in force at start", n)
	}
}
