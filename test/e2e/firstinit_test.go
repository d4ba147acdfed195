// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// withSetup puts an init container before a pod's main one.
func withSetup(p kubelet.Pod, res kubelet.Resources) kubelet.Pod {
	p.Containers = slices.Insert(p.Containers, 0, kubelet.Container{Name: "setup", Init: true, Resources: res})
	return p
}

// amounts are batch resources of which as much is asked for as is allowed, but for memory of the main container.
var amounts = map[string]struct{ cpu, request, limit kubelet.Quantity }{"setup": {"1500", "256Mi", "256Mi"}, "main": {"500", "64Mi", "128Mi"}}

// setupBE is a best-effort pod whose init container has three times the CPU of its main one, and twice the memory; annotated says whether
// the amounts stand in the annotation, as koord-manager's admission writes it, or in the containers alone, whose part the runtime is not told.
func setupBE(name string, annotated bool) kubelet.Pod {
	p := withSetup(bePod(name), kubelet.Resources{})
	var list []string
	for i := range p.Containers {
		c := &p.Containers[i]
		a := amounts[c.Name]
		asks := func(memory kubelet.Quantity) map[string]kubelet.Quantity {
			return map[string]kubelet.Quantity{"kubernetes.io/batch-cpu": a.cpu, "kubernetes.io/batch-memory": memory}
		}
		c.Resources = kubelet.Resources{Requests: asks(a.request), Limits: asks(a.limit)}
		said := func(memory kubelet.Quantity) string {
			return `{"kubernetes.io/batch-cpu":"` + string(a.cpu) + `","kubernetes.io/batch-memory":"` + string(memory) + `"}`
		}
		list = append(list, `"`+c.Name+`":{"requests":`+said(a.request)+`,"limits":`+said(a.limit)+`}`)
	}
	delete(p.Annotations, protocol.AnnotationExtendedResource)
	if annotated {
		p.Annotations[protocol.AnnotationExtendedResource] = `{"containers":{` + strings.Join(list, ",") + `}}`
	}
	return p
}

// setupBEWants are the values of a setupBE: of its init container, of its main one, and of the pod, which is the sum of both: who has written
// the annotation does not say which of them runs first.
func setupBEWants() (setup, main, pod []string) {
	main = own(wants("BE", ""))
	if cgroupV2() {
		return []string{"setup cpu.max=150000 100000", "setup cpu.weight=138", "setup memory.max=268435456", "setup @sched=5", "setup @oom=900"}, main,
			[]string{"pod cpu.max=200000 100000", "pod cpu.weight=79", "pod memory.max=402653184"}
	}
	return []string{"setup cpu.cfs_quota_us=150000", "setup cpu.shares=1536", "setup memory.limit_in_bytes=268435456", "setup @sched=5", "setup @oom=900"}, main,
		[]string{"pod cpu.cfs_quota_us=200000", "pod cpu.shares=2048", "pod memory.limit_in_bytes=402653184"}
}

// own are the wants of the container alone.
func own(wants []string) []string {
	return slices.DeleteFunc(wants, func(w string) bool { return strings.HasPrefix(w, "pod ") })
}

// lifecycleInitContainer lets the init container of a pod, and the main container after it, print their values before they do anything else:
// each has its own, and the pod what both need, from the first one on.
func lifecycleInitContainer(r *rig) {
	r.up(standard, nil)
	r.toldBySetup(r.pod(r.tells(setupBE("init-be", true))))

	ls := r.pod(r.tells(withSetup(lsPod("init-ls"), limited("1", "256Mi"))))
	setup := []string{"setup cpu.cfs_quota_us=100000", "setup cpu.cfs_burst_us=100000", "setup memory.limit_in_bytes=268435456"}
	pod := []string{"pod cpu.cfs_quota_us=100000", "pod cpu.cfs_burst_us=100000", "pod memory.limit_in_bytes=268435456"} // the larger one's, by the kubelet
	if r.tree.V2() {
		setup = []string{"setup cpu.max=100000 100000", "setup cpu.max.burst=100000", "setup memory.max=268435456"}
		pod = []string{"pod cpu.max=100000 100000", "pod cpu.max.burst=100000", "pod memory.max=268435456"}
	}
	r.toldBy(ls, "setup", "@allowed", allCPUs(), slices.Concat(setup, pod))
	r.told(ls, "@allowed", allCPUs(), slices.Concat(own(wants("LS", "")), pod))

	// An init container has the CPUs of its pod, and its neighbours have left them; so they have when the next one begins.
	last, rest := cpus()
	exclusive := lsrPod("init-lsr")
	lsr := r.pod(r.tells(withSetup(exclusive, exclusive.Containers[0].Resources), ls))
	for _, container := range []string{"setup", "main"} {
		r.toldBy(lsr, container, "@allowed", last, wants("LSR", ""))
		r.toldBy(lsr, container, ls.Pod.Name+".cpuset.cpus", rest, nil)
	}
	r.provedAll()
}

// toldBySetup compares what the containers of a setupBE have read.
func (r *rig) toldBySetup(run *kubelet.Running) {
	r.t.Helper()
	setup, main, pod := setupBEWants()
	r.toldBy(run, "setup", "@allowed", allCPUs(), slices.Concat(setup, pod))
	r.told(run, "@allowed", allCPUs(), slices.Concat(main, pod))
}
