// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// bySet asks for suppression by CPUs, at 95 % of the node: an idle cluster's own processes, which use one to three of eight CPUs, leave four
// of them and more, and fewer beside three that compute: what the others are said to use falls meanwhile.
func bySet() map[string]any {
	return map[string]any{
		"enable": true, "cpuSuppressPolicy": "cpuset", "cpuSuppressThresholdPercent": 95, "memoryEvictThresholdPercent": 100,
	}
}

// suppressed: best effort yields CPUs to an LS pod that uses three, and has them back afterwards. It is the set of its containers; that
// of the others stays.
func (n *served) suppressed() {
	n.t.Helper()
	n.make("busy", "labels: {koordinator.sh/qosClass: LS}", "resources: {requests: {cpu: 100m, memory: 64Mi}}")
	be, idle, busy := n.ready("be"), n.ready("idle"), n.ready("busy")
	n.put(withBE(bySet()))
	cpus := grant{
		what: "CPUs of best effort on a calm node", read: func() (int, error) { return cpusIn(n.dir(be), "cpuset.cpus") }, set: true, least: 4, spare: 7,
	}
	free := n.a.granted(20*time.Second, cpus)
	calm := n.isLocal(n.dir(be))
	stop := n.spinIn([]string{n.dir(busy)}, 3)
	cpus.what, cpus.busy, cpus.least, cpus.most = "CPUs of best effort while an LS pod uses three", 3, 2, free-1
	n.a.granted(20*time.Second, cpus)
	var loaded string
	n.eventually(shortest, func() error { // it may yield one more meanwhile
		one, err := cgroups.Read(n.dir(be), "cpuset.cpus")
		if err != nil {
			return err
		}
		if other, err := cgroups.Read(n.dir(idle), "cpuset.cpus"); err != nil || one != other {
			return fmt.Errorf("be has CPUs %s and idle %s, %v", one, other, err)
		}
		loaded = one
		return nil
	})
	for _, pod := range []cluster.Object{busy, n.ready("ls")} {
		n.have(pod, "cpuset.cpus=0-6")
	}
	fewer := n.fewest(cpus.read)
	stop()
	cpus.what, cpus.busy, cpus.least, cpus.most = "CPUs of best effort after the load", 0, fewer+1, 0
	n.a.granted(40*time.Second, cpus)
	n.toldOfSuppression("Active", "")
	n.tell("cpuset.cpus of best effort: %s, while an LS pod uses three CPUs %s, afterwards %s", calm, loaded, n.isLocal(n.dir(be)))
}

// fewest is the least of an amount in five seconds of a load: the first that fits may be of the load's first second.
func (n *served) fewest(read func() (int, error)) int {
	n.t.Helper()
	least := math.MaxInt
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		got, err := read()
		if err != nil {
			n.t.Fatal(err)
		}
		least = min(least, got)
	}
	return least
}

// toldOfSuppression waits until the NodeSLO says so of suppression.
func (n *served) toldOfSuppression(reason, part string) {
	n.t.Helper()
	n.await(nodeSLOs+"/"+n.k.Node, "cpu-suppress is "+reason, func(o cluster.Object) bool {
		list, _ := o.At("status", "conditions").([]any)
		for i := range list {
			at := func(field string) string { return o.Str("status", "conditions", i, field) }
			if at("type") == "cpu-suppress" {
				return at("status") == "True" && at("reason") == reason && strings.Contains(at("message"), part)
			}
		}
		return false
	})
}

// placement is the checkpoint of the kubelet's CPU manager: the CPUs of containers by pod and name, and those of all others.
type placement struct {
	Policy  string                            `json:"policyName"`
	Default topo.CPUSet                       `json:"defaultCpuSet"`
	Entries map[string]map[string]topo.CPUSet `json:"entries"`
}

func (p *placement) of(pod cluster.Object) topo.CPUSet {
	return p.Entries[pod.Str("metadata", "uid")]["main"]
}

// static: the kubelet is given the static CPU manager, as an administrator does it, while koord-nri runs. Its CPUs are in force in every
// container but one whose CPUs the scheduler named, best effort yields by a quota instead of a set and that is told, and the
// NodeResourceTopology says who has which CPUs.
func (n *served) static() {
	n.t.Helper()
	reserved := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"node.koordinator.sh/reservation": reservation}}}
	if _, err := n.c.Admin().Patch(n.t.Context(), "/api/v1/nodes/"+n.k.Node, cluster.MergePatch, reserved); err != nil {
		n.t.Fatal(err)
	}
	n.a.end(syscall.SIGTERM) // it asks the kubelet once a minute what that was told
	if err := n.k.Reconfigure(n.t.Context(), map[string]any{
		"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "cpuManagerReconcilePeriod": "1s",
		"featureGates": map[string]any{"MemoryQoS": true},
	}); err != nil {
		n.t.Fatal(err)
	}
	n.make("whole", "labels: {koordinator.sh/qosClass: LS}", "resources: {requests: {cpu: 2, memory: 64Mi}, limits: {cpu: 2, memory: 64Mi}}")
	whole := n.ready("whole")
	n.a.start()
	spec := bySet()
	spec["cpuEvictPSIThresholdPercent"], spec["cpuEvictTimeWindowSeconds"] = nil, nil
	n.put(withBE(spec))
	n.protects(whole)

	var kubelet placement
	if err := json.Unmarshal([]byte(n.text(n.c.CPUState(n.k.Node))), &kubelet); err != nil {
		n.t.Fatal(err)
	}
	be, busy, lsr := n.ready("be"), n.ready("busy"), n.ready("lsr")
	if kubelet.Policy != "static" || kubelet.of(whole).Len() != 2 || kubelet.of(lsr).Len() != 1 {
		n.t.Fatalf("the kubelet's CPU manager: %+v", kubelet)
	}
	n.have(whole, "cpuset.cpus="+kubelet.of(whole).String())
	n.have(lsr, "cpuset.cpus=7")
	shared := "cpuset.cpus=" + kubelet.Default.String()
	for _, pod := range []cluster.Object{be, busy, n.ready("second"), n.ready("ls")} {
		n.have(pod, shared)
	}
	quota := func() (int, error) { return quotaIn(n.besteffort(), "cpu.max") }
	calm := n.a.granted(20*time.Second, grant{what: "quota of best effort on a calm node", read: quota, least: 1500})
	stop := n.spinIn([]string{n.dir(busy)}, 3)
	n.a.granted(20*time.Second, grant{
		what: "quota of best effort while an LS pod uses three CPUs", read: quota, busy: 3, least: 20, most: calm - 800,
	})
	n.have(be, shared)
	loaded := n.fewest(quota)
	stop()
	after := n.a.granted(20*time.Second, grant{what: "quota of best effort after the load", read: quota, least: loaded + 800})
	const why = "the kubelet's static CPU manager sets the CPUs of every container"
	n.toldOfSuppression("Degraded", why)
	if n.a.figure("koord_rt_koordlet_loop_state", `loop="cpu-suppress"`, `state="degraded"`) != 1 {
		n.t.Error("koordlet's metrics do not call cpu-suppress degraded")
	}
	n.degraded("cpuset", "kubelet's static CPU manager is on")
	n.tell("cpu.max of best effort beside a static CPU manager, in thousandths of a CPU: calm %d, while an LS pod uses three CPUs %d, afterwards %d", calm, loaded, after)
	n.topology(whole, kubelet.of(whole))
}

// protects: a kubelet with MemoryQoS and without TieredReservation asks for memory.min and memory.low of 0, and takes the sums above pods away
// once a minute. That protects nobody and forbids nothing: the class's protection stands in the container, also for koord-nri's next life, and
// above it soon again.
func (n *served) protects(pod cluster.Object) {
	n.t.Helper()
	n.put(map[string]any{"resourceQOSStrategy": map[string]any{"lsClass": map[string]any{"memoryQOS": map[string]any{
		"enable": true, "minLimitPercent": 100, "lowLimitPercent": 100, "throttlingPercent": 0, "wmarkRatio": 0,
	}}}})
	own := []string{"memory.min=67108864", "memory.low=67108864", "pod memory.min=67108864", "pod memory.low=67108864"}
	above := func() (int, error) { return n.bytes(n.kubepods(""), "memory.min") }
	n.have(pod, own...)
	n.within(20*time.Second, "memory.min above all pods", 64*mib, tierAsks, above)
	n.stop(syscall.SIGKILL)
	n.again()
	n.have(pod, own...)
	if err := cgroups.Write(n.kubepods(""), "memory.min", "0"); err != nil { // as the kubelet does within the minute
		n.t.Fatal(err)
	}
	n.within(30*time.Second, "memory.min above all pods, after the kubelet's turn", 64*mib, tierAsks, above)
	n.put(map[string]any{"resourceQOSStrategy": nil})
	n.have(pod, "memory.min=0", "memory.low=0", "pod memory.min=0")
}

// reservation is of the Node, and of its NodeResourceTopology.
const reservation = `{"reservedCPUs":"0"}`

// topology: the kubelet's CPUs of a pod stand in the NodeResourceTopology under that pod and in no pool. The LSR pod has others than the
// kubelet believes, which is not told.
func (n *served) topology(pod cluster.Object, own topo.CPUSet) {
	n.t.Helper()
	all := topo.Range(0, 7)
	want := map[string]string{
		"kubelet.koordinator.sh/cpu-manager-policy": `{"policy":"static","reservedCPUs":"0"}`,
		"node.koordinator.sh/pod-cpu-allocs": fmt.Sprintf(`[{"namespace":"work","name":%q,"uid":%q,"cpuset":%q,"managedByKubelet":true}]`,
			pod.Str("metadata", "name"), pod.Str("metadata", "uid"), own),
		"node.koordinator.sh/reservation":         reservation,
		"node.koordinator.sh/cpu-shared-pools":    pools(all.MinusAll(topo.CPUs(0, 7), own)),
		"node.koordinator.sh/be-cpu-shared-pools": pools(all.Minus(topo.CPUs(0))),
	}
	var missing map[string]string
	n.eventually(40*time.Second, func() error { // a change is written when it has stood for ten seconds
		got, err := n.c.Admin().Get(n.t.Context(), "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/"+n.k.Node)
		if err != nil {
			return err
		}
		missing = map[string]string{}
		for key, value := range want {
			if told := got.Str("metadata", "annotations", key); told != value {
				missing[key] = told
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("the NodeResourceTopology has %q, want %q", missing, want)
		}
		return nil
	})
	n.tell("NodeResourceTopology: %q", want)
}

// pools is a set as it is told, by memory node; the guest has two of four CPUs, each a socket.
func pools(set topo.CPUSet) string {
	var parts []string
	for i := range 2 {
		if part := set.Intersect(topo.Range(4*i, 4*i+3)); !part.Empty() {
			parts = append(parts, fmt.Sprintf(`{"socket":%d,"node":%d,"cpuset":%q}`, i, i, part))
		}
	}
	return "[" + strings.Join(parts, ",") + "]"
}
