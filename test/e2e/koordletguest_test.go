// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// loops is koordlet beside koord-nri in a VM, both on one strategy file, with one pod for each thing to be seen.
type loops struct {
	*rig
	a *agent
	// ls has no limit, burst one of CPU, be batch memory or none.
	ls, burst, be *kubelet.Running
	// before are the pods' cgroups and those above them, attributes their processes', without us.
	before, attributes portrait
	// rested is when the load of burst ended.
	rested time.Time
}

// TestGuestKoordlet is each loop of koordlet on cgroup v2. Emulated CPUs are slow: the loads are one process or none, the
// thresholds are such that it is enough. Later steps use what earlier ones have left in force, as on a node.
func TestGuestKoordlet(t *testing.T) {
	if !cgroupV2() || runtime.NumCPU() != 8 {
		t.Fatalf("the figures are for cgroup v2 and 8 CPUs, here are %d", runtime.NumCPU())
	}
	l := &loops{rig: newRig(t, rigOptions{})}
	l.cachesAsSaid()
	l.ls, l.burst, l.be = l.pod(guestLS()), l.pod(guestBurst()), l.pod(guestBE())
	l.before, l.attributes = l.treesOf(l.pods()), l.attributesOf(l.pods())
	l.put("")
	l.up("", nil)
	l.a = l.newAgent()
	l.a.configure(nil)
	l.a.start()
	for _, s := range []struct {
		name string
		do   func(*loops)
	}{
		{"Shares", classesShare}, {"Burst", burstRaises}, {"Quota", quotaYields}, {"CPUSet", cpusetYields}, {"Pressure", pressureDecides},
		{"Protection", memoryProtects}, {"Reclaim", memoryIsReclaimed}, {"Tight", memoryIsHeld},
		{"ColdCache", coldCache}, {"Levels", memoryLevels}, {"BurstEnds", burstEnds}, {"Tuned", stalledGetsRoom},
		{"Disks", disksWeigh}, {"Clock", clockJumps},
		{"Killed", decisionsOutlive}, {"Restore", nothingIsLeft},
	} {
		t.Run(s.name, func(t *testing.T) {
			outer, begun := l.t, time.Now()
			l.t = t
			defer func() { l.t = outer }()
			s.do(l)
			l.tell("%s took %s", s.name, time.Since(begun).Round(time.Second))
		})
	}
}

func (l *loops) pods() []*kubelet.Running { return []*kubelet.Running{l.ls, l.burst, l.be} }

// tell writes a line that verdict passes on.
func (r *rig) tell(format string, args ...any) {
	r.t.Helper()
	r.t.Logf("koordlet: "+format, args...)
}

// guestLS is the pod that is to be protected. It asks for so little that a best-effort pod gets as much of a CPU as it does.
func guestLS() kubelet.Pod {
	return kubelet.Pod{
		Name: "loop-ls", UID: uid("loop-ls"), Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Containers: []kubelet.Container{{Name: "main", Resources: kubelet.Resources{
			Requests: map[string]kubelet.Quantity{"cpu": "10m", "memory": "64Mi"},
		}}},
	}
}

func guestBurst() kubelet.Pod {
	res := map[string]kubelet.Quantity{"cpu": "200m", "memory": "96Mi"}
	return kubelet.Pod{
		Name: "loop-burst", UID: uid("loop-burst"), Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Containers: []kubelet.Container{{Name: "main", Resources: kubelet.Resources{Requests: res, Limits: res}}},
	}
}

func guestBE() kubelet.Pod {
	return kubelet.Pod{
		Name: "loop-be", UID: uid("loop-be"), Labels: map[string]string{"koordinator.sh/qosClass": "BE"},
		Annotations: map[string]string{
			"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-memory":"64Mi"},` +
				`"limits":{"kubernetes.io/batch-memory":"128Mi"}}}}`,
		},
		Containers: []kubelet.Container{{Name: "main"}},
	}
}

// bursting is in force in every step.
const bursting = "cpuBurstStrategy: {policy: auto, cpuBurstPercent: 1000, cfsQuotaBurstPercent: 300}\n"

// put replaces the strategy that koord-nri and koordlet read.
func (l *loops) put(spec string) {
	l.t.Helper()
	l.replaceStrategy(bursting + spec)
}

// suppressAt holds the best-effort tier to what the others leave of so much of the node.
func suppressAt(policy string, percent int) string {
	return fmt.Sprintf("resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: %d, cpuSuppressPolicy: %s}\n", percent, policy)
}

const anyCPU = -1

// spin has one process in a container's cgroup compute, on one CPU or on any, until the result is called.
func (r *rig) spin(run *kubelet.Running, cpu int) (stop func()) {
	r.t.Helper()
	return r.spinOn(r.containerDirs(run), cpu)
}

// spinOn has one process in the cgroup of these directories compute, on one CPU or on any, until the result is called.
func (r *rig) spinOn(dirs []string, cpu int) (stop func()) {
	r.t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		r.t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	r.t.Cleanup(stop)
	for _, dir := range dirs {
		if err := cgroups.Write(dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
			r.t.Fatal(err)
		}
	}
	if cpu != anyCPU {
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(cmd.Process.Pid, &set); err != nil {
			r.t.Fatal(err)
		}
	}
	return stop
}

// dir is the cgroup of a pod's container.
func (l *loops) dir(run *kubelet.Running) string { return l.kube.ContainerDir(run, "main", "") }

// inside runs a program in the cgroup of a container, but not in its namespaces.
func (l *loops) inside(run *kubelet.Running, program string) {
	l.t.Helper()
	l.insideOf(l.dir(run), program)
}

// insideOf runs it in a cgroup.
func (r *rig) insideOf(dir, program string) {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), "sh", "-c", "echo $$ >"+dir+"/cgroup.procs && exec "+program).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v: %s", program, err, out)
	}
}

// figure and ticks are koordlet's.
func (l *loops) figure(parts ...string) float64 {
	l.t.Helper()
	return l.a.figure(parts...)
}

func (l *loops) ticks(n float64, hold func() error) {
	l.t.Helper()
	l.a.ticks(n, hold)
}

// steps are the distinct values of a file until the last is reached.
func (l *loops) steps(limit time.Duration, dir, file, last string) string {
	l.t.Helper()
	defer func() {
		if l.t.Failed() {
			l.t.Logf("koordlet's loops: %s", l.a.loopsSay())
		}
	}()
	var seen []string
	l.eventually(limit, func() error {
		text, err := cgroups.Read(dir, file)
		if err != nil {
			return err
		}
		if len(seen) == 0 || seen[len(seen)-1] != text {
			seen = append(seen, text)
		}
		if text != last {
			return fmt.Errorf("%s went %s, want %s", file, strings.Join(seen, " → "), last)
		}
		return nil
	})
	return strings.Join(seen, " → ")
}
