// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// What a kubelet with memoryReservationPolicy TieredReservation writes for 64 MiB: memory.min where the pod is Guaranteed, memory.low where it is
// Burstable, and memory.high at nine tenths of the way to a limit of 128 MiB.
var (
	firmKubelets = []string{"memory.min=67108864", "pod memory.min=67108864", "pod memory.low=0"}
	softKubelets = []string{"memory.low=67108864", "memory.high=127504384", "pod memory.min=0", "pod memory.low=67108864"}
)

// What LS gets by laterMemory in the same containers: what the kubelet does not ask for. Free is without.
var (
	firmOurs    = []string{"memory.low=50331648", "memory.high=53686272"}
	firmFree    = []string{"memory.low=0", "memory.high=max"}
	softOurs    = []string{"memory.min=33554432"}
	softFree    = []string{"memory.min=0"}
	laterMemory = map[string]any{"enable": true, "minLimitPercent": 50, "lowLimitPercent": 75, "throttlingPercent": 80, "wmarkRatio": 0}
)

// drifts is longer than two checks for drift: what would be undone by one is.
const drifts = 25 * time.Second

// tiered: the kubelet is told to protect memory by its pods' requests, and to choose memory nodes. koord-nri, which has had sums of its own above
// pods, leaves it what it writes there, at once and also where it does not know yet whose that is. When it is started anew it knows: of memory QoS
// it gives containers what the kubelet does not ask for, and pods and the directories above nothing, whichever of its lives ends.
func (n *served) tiered() {
	n.t.Helper()
	n.a.end(syscall.SIGTERM) // as in static
	if err := n.k.Reconfigure(n.t.Context(), map[string]any{
		"memoryReservationPolicy": "TieredReservation", "memoryManagerPolicy": "Static",
		// As much as is kept from pods: the threshold of eviction.
		"reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": "50Mi"}}},
	}); err != nil {
		n.t.Fatal(err)
	}
	n.make("firm", "labels: {koordinator.sh/qosClass: LS}", "resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 100m, memory: 64Mi}}")
	n.make("soft", "labels: {koordinator.sh/qosClass: LS}", "resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 128Mi}}")
	firm, soft := n.ready("firm"), n.ready("soft")
	free := func() error {
		return errors.Join(
			n.lacks(firm, slices.Concat(firmKubelets, firmFree, n.kubeletsSums("Guaranteed"))...),
			n.lacks(soft, slices.Concat(softKubelets, softFree, n.kubeletsSums("Burstable"))...),
		)
	}
	n.steady(free)

	n.stop(syscall.SIGKILL)
	n.again()
	n.leaves(true, 1)
	n.a.start()
	n.put(map[string]any{"resourceQOSStrategy": map[string]any{"lsClass": map[string]any{"memoryQOS": laterMemory}}})
	near := n.pinnedApart(firm)
	stand := func() error {
		return errors.Join(
			n.lacks(firm, slices.Concat(firmKubelets, firmOurs, n.kubeletsSums("Guaranteed"))...),
			n.lacks(soft, slices.Concat(softKubelets, softOurs, n.kubeletsSums("Burstable"))...),
			n.lacks(near, n.memoryNode(near)),
		)
	}
	n.eventually(shortest, stand)
	for range 2 {
		n.stop(syscall.SIGKILL)
		if err := stand(); err != nil {
			n.t.Error(err)
		}
		n.again()
		n.leaves(true, 2)
	}
	n.steady(stand)
	n.degraded("cpuset", "kubelet's static memory manager is on")
	n.tell("a kubelet with TieredReservation: kubepods has %v, Burstable pods' directory %v", n.kubeletsSums("Guaranteed"), n.kubeletsSums("Burstable"))

	n.put(map[string]any{"resourceQOSStrategy": nil})
	n.eventually(shortest, free)
	n.wroteNoProtection(firm, soft, near)
	n.untiered(firm, soft, near)
}

// untiered takes these pods away and gives the kubelet the configuration back that it had; a koord-nri that is started anew finds protections free.
func (n *served) untiered(pods ...cluster.Object) {
	n.t.Helper()
	for _, p := range pods {
		if err := n.c.Admin().Delete(n.t.Context(), workPods+p.Str("metadata", "name"), -1); err != nil {
			n.t.Fatal(err)
		}
		n.gone(p)
	}
	n.a.end(syscall.SIGTERM)
	if err := n.k.Reconfigure(n.t.Context(), map[string]any{
		"memoryReservationPolicy": nil, "memoryManagerPolicy": nil, "reservedMemory": nil,
	}); err != nil {
		n.t.Fatal(err)
	}
	n.within(30*time.Second, "memory.min above all pods", 0, 0, func() (int, error) { return n.bytes(n.kubepods(""), "memory.min") })
	n.stop(syscall.SIGTERM)
	n.again()
	n.a.start()
	n.leaves(false, 2)
}

// steady: values come to be, and stay through two checks for drift.
func (n *served) steady(lacks func() error) {
	n.t.Helper()
	n.eventually(shortest, lacks)
	for end := time.Now().Add(drifts); time.Now().Before(end); time.Sleep(time.Second) {
		if err := lacks(); err != nil {
			n.t.Fatalf("what the kubelet has written does not stay: %v", err)
		}
	}
}

// kubeletsSums are the values above pods of a class, as the kubelet is documented to write them: the requests of all of them are the memory.min of
// the root of all pods, those of Burstable ones the memory.low of their directory.
func (n *served) kubeletsSums(class string) []string {
	n.t.Helper()
	pods, err := n.c.Admin().Items(n.t.Context(), strings.TrimSuffix(workPods, "/"))
	if err != nil {
		n.t.Fatal(err)
	}
	sums := map[string]int{}
	for _, p := range pods {
		text := p.Str("spec", "containers", 0, "resources", "requests", "memory")
		if text == "" {
			continue
		}
		asked, err := strconv.Atoi(strings.TrimSuffix(text, "Mi"))
		if err != nil {
			n.t.Fatalf("what %s asks for: %v", p.Str("metadata", "name"), err)
		}
		sums[p.Str("status", "qosClass")] += asked * mib
	}
	if sums["Guaranteed"] == 0 || sums["Burstable"] == 0 {
		n.t.Fatalf("pods ask for %v", sums)
	}
	if class == "Guaranteed" {
		return []string{"above memory.min=" + strconv.Itoa(sums["Guaranteed"]+sums["Burstable"])}
	}
	return []string{"above memory.min=0", "above memory.low=" + strconv.Itoa(sums["Burstable"])}
}

// nodesOf are the memory nodes that the kubelet's memory manager has chosen for a pod's container, by its checkpoint.
func (n *served) nodesOf(pod cluster.Object) topo.CPUSet {
	n.t.Helper()
	var state struct {
		Policy  string `json:"policyName"`
		Entries map[string]map[string][]struct {
			Nodes []int `json:"numaAffinity"`
		} `json:"entries"`
	}
	if err := json.Unmarshal([]byte(n.text(n.c.MemoryState(n.k.Node))), &state); err != nil {
		n.t.Fatal(err)
	}
	blocks := state.Entries[pod.Str("metadata", "uid")]["main"]
	if state.Policy != "Static" || len(blocks) != 1 {
		n.t.Fatalf("the kubelet's memory manager: %+v", state)
	}
	return topo.CPUs(blocks[0].Nodes...)
}

func (n *served) memoryNode(pod cluster.Object) string {
	return "cpuset.mems=" + n.nodesOf(pod).String()
}

// pinnedApart makes an LSR pod on a CPU that is not at the memory node that the kubelet's memory manager chooses, and which we would have chosen: of
// the two free nodes it takes the one that it took for another pod.
func (n *served) pinnedApart(like cluster.Object) cluster.Object {
	n.t.Helper()
	n.have(like, n.memoryNode(like))
	far := topo.Range(4, 7)
	if n.nodesOf(like).Has(1) {
		far = topo.Range(0, 3)
	}
	var kubelet placement
	if err := json.Unmarshal([]byte(n.text(n.c.CPUState(n.k.Node))), &kubelet); err != nil {
		n.t.Fatal(err)
	}
	free := far.MinusAll(topo.CPUs(0, 7), kubelet.of(n.ready("whole"))).List()
	if len(free) == 0 {
		n.t.Fatalf("no CPU of %s is free beside %+v", far, kubelet)
	}
	n.make("near", fmt.Sprintf(`labels: {koordinator.sh/qosClass: LSR}, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"%d"}'}`, free[0]),
		"resources: {requests: {cpu: 1, memory: 64Mi}, limits: {cpu: 1, memory: 64Mi}}")
	near := n.ready("near")
	if !n.nodesOf(near).Equal(n.nodesOf(like)) {
		n.t.Fatalf("the kubelet has chosen memory node %s, that of CPU %d: this shows nothing", n.nodesOf(near), free[0])
	}
	n.have(near, "cpuset.cpus="+strconv.Itoa(free[0]), n.memoryNode(near))
	return near
}

// leaves waits until each daemon that runs, so many, says that the protections are left to the kubelet, or does not say it.
func (n *served) leaves(want bool, daemons int) {
	n.t.Helper()
	n.eventually(8*time.Second, func() error {
		out, err := n.ctl("features", "-o", "json")
		if err != nil {
			return fmt.Errorf("koordctl features: %w: %s", err, out)
		}
		var entries []status.Entry
		if err := json.Unmarshal([]byte(out), &entries); err != nil {
			return err
		}
		right := 0
		for i := range entries {
			says := slices.ContainsFunc(entries[i].Features, func(f node.FeatureState) bool {
				return f.Feature == protocol.FeatureMemory.String() && strings.Contains(f.Detail, "kubelet's MemoryQoS is on")
			})
			if entries[i].Alive && len(entries[i].Features) > 0 && says == want {
				right++
			}
		}
		if right != daemons {
			return fmt.Errorf("that the protections are left to the kubelet is said: %v, by %d daemons that run, want %d:\n%s", want, right, daemons, out)
		}
		return nil
	})
}

// wroteNoProtection: neither daemon has written memory.min or memory.low of these pods' own cgroups.
func (n *served) wroteNoProtection(pods ...cluster.Object) {
	n.t.Helper()
	records, _, err := ledger.ReadAll(n.run)
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range records {
		r := &records[i]
		for _, p := range pods {
			if strings.HasSuffix(r.Target.Cgroup, "pod"+p.Str("metadata", "uid")) && r.Via == journal.ViaDirect && len(r.Written) > 0 &&
				(r.Knob == "memory.min" || r.Knob == "memory.low") {
				n.t.Errorf("%s of %s was written from %q to %q: %s", r.Knob, r.Target, r.Original, r.Written, r.Reason)
			}
		}
	}
}
