// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"runtime"
	"strconv"
	"time"

	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// sharesHold is G1 to G3 of the documents' acceptance cases (part G of seed-manifests.md) on the host, with processes that compute
// wherever a class may: LSR has a CPU of its own, LS and BE share the others. BE yields there by the weight of its class, which is that of two shares; and beside an LS pod
// without a request, in the same QoS directory, by cpu.idle.
func sharesHold(h *alone) {
	own, pool := cpus()
	lsr, ls, bare, be := h.sharers(own, pool)
	const window = 1500 * time.Millisecond
	load := func(run *kubelet.Running) (stop func()) {
		if run == lsr {
			return h.burn(run, 1)
		}
		return h.burn(run, runtime.NumCPU()-1)
	}
	for _, c := range []struct {
		class string
		run   *kubelet.Running
		cpus  string
		least float64
	}{{"LSR", lsr, own, 0.9}, {"LS", ls, pool, 0.8}, {"BE", be, pool, 0.7}} {
		stop := load(c.run)
		got := h.shares(window, c.cpus, c.run)[0]
		stop()
		h.t.Logf("G1: %s alone has %.3f of CPUs %s", c.class, got, c.cpus)
		if got < c.least {
			h.t.Errorf("G1: %s alone has %.3f of CPUs %s, want %.2f at least", c.class, got, c.cpus, c.least)
		}
	}

	stopLSR, stopLS, stopBE := load(lsr), load(ls), load(be)
	mine, ours := h.shares(window, own, lsr), h.shares(window, pool, ls, be)
	h.t.Logf("G2: LSR has %.3f of its CPU; of what they share LS has %.3f and BE %.3f", mine[0], ours[0], ours[1])
	if mine[0] < 0.9 || ours[0] < 0.5 || ours[1] > 0.3 {
		h.t.Errorf("G2: LSR has %.3f of its CPU, LS %.3f and BE %.3f of what they share, want 0.9 and 0.5 at least and 0.3 at most", mine[0], ours[0], ours[1])
	}

	stopLSR()
	stopLS()
	stopBare := load(bare)
	side := h.shares(window, pool, bare, be)
	h.t.Logf("G2: of what they share LS without a request has %.3f and BE %.3f", side[0], side[1])
	if side[0] < 0.7 || side[1] > 0.2 {
		h.t.Errorf("G2: LS without a request has %.3f and BE %.3f of what they share, want 0.7 at least and 0.2 at most", side[0], side[1])
	}

	stopBare()
	time.Sleep(2 * time.Second) // what it has after that is measured, however late this process looks
	got := h.shares(400*time.Millisecond, pool, be)[0]
	h.t.Logf("G3: BE has %.3f from 2 s after the load of LSR and LS", got)
	if got < 0.7 {
		h.t.Errorf("G3: BE has %.3f from 2 s after the load of LSR and LS, want 0.7", got)
	}
	stopBE() // the runtime waits for whoever is in a pod's cgroup

	for _, run := range []*kubelet.Running{lsr, ls, bare, be} {
		if err := h.kube.StopPod(h.t.Context(), run); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, run := range []*kubelet.Running{h.ls[0], h.be[0]} {
		h.soon(20*time.Second, run, inForce(allCPUs()))
	}
}

// classesShare is G1 to G3 on cgroup v2. One process of each class computes on one CPU, which is pinned: emulated CPUs are more than
// there are real ones, and what the guest's scheduler gives of one of them is what counts.
func classesShare(l *loops) {
	l.put("resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: -1}}}\n")
	defer l.put("")
	own, pool := cpus()
	lsr, ls, bare, be := l.sharers(own, pool)
	const window, shared = 3 * time.Second, 0
	exclusive, err := strconv.Atoi(own)
	if err != nil {
		l.t.Fatal(err)
	}
	on := map[*kubelet.Running]int{lsr: exclusive, ls: shared, bare: shared, be: shared}
	had := func(runs ...*kubelet.Running) []float64 { return l.shares(window, strconv.Itoa(on[runs[0]]), runs...) }
	alone := func(when string, run *kubelet.Running, least float64) {
		stop := l.spin(run, on[run])
		got := had(run)[0]
		stop()
		l.tell("%s: %s has %.3f of CPU %d", when, run.Pod.Name, got, on[run])
		if got < least {
			l.t.Errorf("%s: %s has %.3f of CPU %d, want %.2f at least", when, run.Pod.Name, got, on[run], least)
		}
	}
	alone("G1", lsr, 0.9)
	alone("G1", ls, 0.8)
	alone("G1", be, 0.7)

	stopLSR, stopLS, stopBE := l.spin(lsr, exclusive), l.spin(ls, shared), l.spin(be, shared)
	mine, ours := had(lsr)[0], had(ls, be)
	stopLSR()
	stopLS()
	stopBare := l.spin(bare, shared)
	side := had(bare, be)
	stopBare()
	time.Sleep(2 * time.Second)
	back := had(be)[0]
	stopBE()
	l.tell("G2: LSR has %.3f of its CPU; of what they share LS has %.3f and BE %.3f; LS without a request %.3f and BE %.3f", mine, ours[0], ours[1], side[0], side[1])
	if mine < 0.9 || ours[0] < 0.5 || ours[1] > 0.3 || side[0] < 0.7 || side[1] > 0.2 {
		l.t.Error("G2: want 0.9 of its CPU for LSR, 0.5 at least for LS and 0.3 at most for BE of what they share; 0.7 and 0.2 where LS asks for nothing")
	}
	l.tell("G3: BE has %.3f from 2 s after the load of LSR and LS", back)
	if back < 0.7 {
		l.t.Errorf("G3: BE has %.3f from 2 s after the load of LSR and LS, want 0.7", back)
	}
	for _, run := range []*kubelet.Running{lsr, ls, bare, be} {
		if err := l.kube.StopPod(l.t.Context(), run); err != nil {
			l.t.Fatal(err)
		}
	}
	l.soon(20*time.Second, l.be, inForce(allCPUs()))
}

// sharers are a pod of each class, and one of LS that asks for nothing, with what tells them apart in force.
func (r *rig) sharers(own, pool string) (lsr, ls, bare, be *kubelet.Running) {
	r.t.Helper()
	lsr, ls, be = r.pod(lsrPod("share-lsr")), r.pod(openPod("share-ls", "LS")), r.pod(openPod("share-be", "BE"))
	unasked := openPod("share-ls-unasked", "LS")
	unasked.Containers[0].Resources = kubelet.Resources{}
	bare = r.pod(unasked)
	r.soon(20*time.Second, lsr, inForce(own))
	r.soon(20*time.Second, ls, inForce(pool))
	r.soon(20*time.Second, be, append(inForce(pool), "pod cpu.idle=1"))
	weight := "pod cpu.shares=1024" // an idle group has 3
	if r.tree.V2() {
		weight = "pod cpu.weight=39" // worth 399
	}
	r.soon(20*time.Second, bare, append(inForce(pool), weight))
	return lsr, ls, bare, be
}

// shares are the parts that containers have had of these CPUs during a while. What others than these have used is not part of
// the whole, what nobody has used is.
func (r *rig) shares(while time.Duration, list string, runs ...*kubelet.Running) []float64 {
	r.t.Helper()
	before, idle := make([]float64, len(runs)), r.idleTime(list)
	for i, run := range runs {
		before[i] = r.cpuTime(run)
	}
	time.Sleep(while)
	whole := -idle
	had := make([]float64, len(runs))
	for i, run := range runs {
		had[i] = r.cpuTime(run) - before[i]
		whole += had[i]
	}
	whole += r.idleTime(list)
	for i := range had {
		had[i] /= max(whole, 1e-9)
	}
	return had
}

// cpuTime is what a container has used, in seconds, as the kernel counts it.
func (r *rig) cpuTime(run *kubelet.Running) float64 {
	r.t.Helper()
	used, err := r.tree.CPUTime(r.kube.ContainerDir(run, "main", "cpuacct"))
	if err != nil {
		r.t.Fatalf("%s: %v", run.Pod.Name, err)
	}
	return used.Seconds()
}

// keepsOf is the largest part of CPUs that a pod has, as shares counts it, beside those that compute on them, too: of up to five whiles, until it is as
// much as wanted. What the machine beneath takes from a guest leaves no CPU of it idle, so it does not count against the pod; what a quota
// takes does.
func (r *rig) keepsOf(list string, want float64, run *kubelet.Running, beside ...*kubelet.Running) (most float64) {
	r.t.Helper()
	runs := append([]*kubelet.Running{run}, beside...)
	for again := 0; again < 5 && most < want; again++ {
		most = max(most, r.shares(2*time.Second, list, runs...)[0])
	}
	return most
}

// idleTime is how long CPUs have had nothing to do since the machine was started, summed up, in seconds.
func (r *rig) idleTime(list string) float64 {
	r.t.Helper()
	set, err := topo.ParseCPUSet(list)
	if err != nil {
		r.t.Fatal(err)
	}
	idle, err := cgroups.IdleTime(set.List())
	if err != nil {
		r.t.Fatal(err)
	}
	return idle.Seconds()
}
