// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// listedAfter is how many seconds after a pod has come the loops hear of it.
const listedAfter = 2

// began is when a scenario begins, so that no instant of it is 0, which the loops' states have for never.
const began = 1000 * unit.Second

// vendors' kernels have these; the node on paper has a mainline kernel.
var vendors = []plan.Knob{
	plan.CPUBvt, plan.MemoryWmarkRatio, plan.MemoryWmarkScale, plan.MemoryWmarkMinAdj, plan.MemoryPriority, plan.MemoryUsePriorityOOM,
	plan.PageCacheEnable, plan.PageCacheSize, plan.PageCacheSync,
}

// paper is a node on paper: it uses what its pods would use within what the loops leave them (scenariouse_test.go), and the loops decide by
// what was used.
type paper struct {
	s     *scenario
	facts decide.Facts
	w     *window.Memory
	state decide.State
	out   decide.Outcome
	pods  []*paperPod
	// running are those that are here, whether the loops know of them or not.
	running []*paperPod
	use     use
	// tier is the quota that stands in the cgroup of the best-effort class.
	tier int64
	// reclaimed is what was reclaimed so far, evicted how many pods, cuts how often pressure took something.
	reclaimed     float64
	evicted, cuts int
	trace         strings.Builder
	told          map[string]string
	// lost says which samples are not taken; nil for none.
	lost func(second int, s *sample.Sample) bool
}

// paperPod is a pod. It is not there before it arrives, and leaves at an eviction for as long as its grace period.
type paperPod struct {
	object  map[string]any
	uid     string
	name    string
	here    bool
	came    int  // since when
	listed  bool // the loops know of it
	read    bool // it has been read before
	gone    bool
	leaving bool
	since   int
	of      *pods.Pod
	member  engine.Member
}

func (p *paperPod) word() string {
	switch {
	case p.gone:
		return "gone"
	case !p.here:
		return "absent"
	case p.leaving:
		return "leaves"
	}
	return "runs"
}

// newPaper makes the node with the pods that are there from the beginning.
func newPaper(t testing.TB, s *scenario) *paper {
	t.Helper()
	n := &s.node
	memory, err := amountOf(n.Memory)
	if err != nil || n.CPUs%max(n.NUMANodes*n.Threads, 1) != 0 || n.NUMANodes*n.Threads == 0 {
		t.Fatalf("node.yaml: memory %q (%v), %d CPUs in %d NUMA nodes with %d threads a core", n.Memory, err, n.CPUs, n.NUMANodes, n.Threads)
	}
	var cpus []topo.CPU
	for i := range n.CPUs {
		of := i / (n.CPUs / n.NUMANodes)
		cpus = append(cpus, topo.CPU{ID: i, Core: i / n.Threads, Socket: of, Node: of, L3: of})
	}
	first := s.strategies[""]
	view := &node.View{
		Name: s.name, Strategy: &first, Topology: topo.New(cpus, topo.Range(0, n.NUMANodes-1)),
		CPUAllocatable: unit.MilliCPU(n.CPUs * 1000), MemCapacity: unit.Bytes(memory), MemAllocatable: unit.Bytes(memory),
		Kernel: node.Kernel{Release: "6.12.48", Major: 6, Minor: 12, Cgroup: node.CgroupV2, RecursiveProt: true},
	}
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		view.Kernel.Knobs[k].OK = !slices.Contains(vendors, k)
	}
	p := &paper{s: s, w: window.New(window.Options{}), told: map[string]string{}, tier: unit.Unlimited}
	p.facts = decide.Facts{
		Interval: unit.Second, Window: p.w, View: view, EvictFeatures: evict.All, Leaving: map[string]unit.Micros{},
		Tune: n.Tune, NoReclaim: n.NoReclaim, NoPressure: n.NoPressure, Node: n.object(t),
	}
	p.use.of = map[string]*used{}
	for _, object := range s.pods {
		p.pods = append(p.pods, newPaperPod(t, object))
	}
	for subject := range s.load.needs {
		who := strings.Fields(subject)[0]
		name, _, _ := strings.Cut(who, "/")
		if who != "system" && p.pod(name) == nil {
			t.Fatalf("load.txt: nobody is called %s", who)
		}
	}
	for _, list := range s.load.needs {
		for _, n := range list {
			if n.whose != "" && n.whose != "be" && p.pod(n.whose) == nil {
				t.Fatalf("load.txt: nobody is called %s", n.whose)
			}
		}
	}
	late := map[string]bool{}
	for _, events := range s.load.events {
		for _, e := range events {
			if f := strings.Fields(e); f[1] == "arrives" {
				late[f[0]] = true
			}
		}
	}
	for _, pod := range p.pods {
		pod.here = !late[pod.name]
		pod.listed = pod.here
	}
	p.settle(t)
	return p
}

// object is what Kubernetes says of the node.
func (n *paperNode) object(t testing.TB) *kube.Node {
	t.Helper()
	capacity := map[string]string{"cpu": fmt.Sprint(n.CPUs), "memory": n.Memory}
	allocatable := map[string]string{"cpu": fmt.Sprint(n.CPUs), "memory": n.Memory}
	for k, v := range n.Allocatable {
		allocatable[k] = v
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": "paper", "annotations": n.Annotations},
		"status":   map[string]any{"capacity": capacity, "allocatable": allocatable},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := kube.DecodeNode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &out
}

// newPaperPod fills in what the API server and the kubelet do.
func newPaperPod(t testing.TB, object map[string]any) *paperPod {
	t.Helper()
	meta, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	name, _ := meta["name"].(string)
	list, _ := spec["containers"].([]any)
	if name == "" || len(list) == 0 {
		t.Fatalf("pods.yaml: a pod has no name or no container: %v", object)
	}
	meta["uid"], meta["namespace"] = "uid-"+name, "default"
	var statuses []any
	for _, c := range list {
		c, _ := c.(map[string]any)
		statuses = append(statuses, map[string]any{
			"name": c["name"], "containerID": fmt.Sprintf("containerd://%s-%s", name, c["name"]), "state": map[string]any{"running": map[string]any{}},
		})
	}
	object["status"] = map[string]any{"phase": "Running", "containerStatuses": statuses}
	return &paperPod{object: object, uid: "uid-" + name, name: name}
}

func (p *paper) pod(name string) *paperPod {
	i := slices.IndexFunc(p.pods, func(pod *paperPod) bool { return pod.name == name })
	if i < 0 {
		return nil
	}
	return p.pods[i]
}

// settle tells the loops who is here: as Kubernetes has it, as the runtime has it, and what they claim.
func (p *paper) settle(t testing.TB) {
	t.Helper()
	var objects []string
	var here []*paperPod
	for _, pod := range p.pods {
		if !pod.here || pod.gone {
			continue
		}
		raw, err := json.Marshal(pod.object)
		if err != nil {
			t.Fatal(err)
		}
		objects, here = append(objects, string(raw)), append(here, pod)
	}
	view := *p.facts.View
	view.Claims, view.Pods = node.Claims{ByPod: map[string]node.PodClaim{}}, nil
	p.facts.Pods, p.facts.Members, p.running = nil, nil, nil
	if len(here) > 0 {
		p.facts.Pods = podstest.Snapshot(t, objects...)
		view.Pods = p.facts.Pods.Specs()
	}
	for _, pod := range here {
		of, ok := p.facts.Pods.Pod(pod.uid)
		if !ok {
			t.Fatalf("pod %s cannot be read", pod.name)
		}
		if pod.of == nil {
			pod.of = of
			pod.run(t)
		}
		for _, c := range pod.member.Containers {
			lse, lsr, _ := container.Claim(&view, pod.member.Pod, c)
			if !lse.Empty() || !lsr.Empty() {
				view.Claims.ByPod[pod.uid] = node.PodClaim{LSE: lse, LSR: lsr}
				view.Claims.LSE, view.Claims.LSR = view.Claims.LSE.Union(lse), view.Claims.LSR.Union(lsr)
			}
			if p.use.of[c.ID] == nil {
				p.use.of[c.ID] = &used{}
			}
		}
		p.running = append(p.running, pod)
		if pod.listed {
			p.facts.Members = append(p.facts.Members, pod.member)
		}
	}
	slices.SortFunc(p.facts.Members, func(a, b engine.Member) int { return strings.Compare(a.Pod.UID, b.Pod.UID) })
	p.facts.View = &view
}

// run makes what the runtime tells of the pod, with the values that the kubelet asks for.
func (p *paperPod) run(t testing.TB) {
	t.Helper()
	word := func(from map[string]any, key string) map[string]string {
		out := map[string]string{}
		meta, _ := from["metadata"].(map[string]any)
		values, _ := meta[key].(map[string]any)
		for k, v := range values {
			out[k], _ = v.(string)
		}
		return out
	}
	ask, problems := protocol.ParsePod(word(p.object, "labels"), word(p.object, "annotations"))
	if len(problems) > 0 {
		t.Fatalf("pod %s: %v", p.name, problems)
	}
	parent := map[protocol.KubeQoS]string{
		protocol.KubeGuaranteed: "/kubepods", protocol.KubeBurstable: "/kubepods/burstable", protocol.KubeBestEffort: "/kubepods/besteffort",
	}[p.of.Kube]
	pod := &workload.Pod{
		ID: "sandbox-" + p.name, UID: p.uid, Namespace: "default", Name: p.name, KubeQoS: p.of.Kube, Ask: ask, QoSCgroup: parent, Cgroup: parent + "/pod" + p.uid,
	}
	for i := range p.of.Containers {
		of := &p.of.Containers[i]
		c := &workload.Container{ID: of.ID, Name: of.Name, State: workload.StateRunning, Cgroup: pod.Cgroup + "/" + of.ID}
		if cpu := of.Limits.CPU; cpu > 0 {
			c.Base.Quota, c.Base.Period = unit.Some(int64(cpu)*int64(unit.CFSPeriod)/1000), unit.Some(int64(unit.CFSPeriod))
		}
		if memory := of.Limits.Memory; memory > 0 {
			c.Base.MemoryLimit = unit.Some(int64(memory))
		}
		p.member.Containers = append(p.member.Containers, c)
	}
	pod.SumBase(p.member.Containers)
	p.member.Pod = pod
}

// tick is one second: what happens by itself, what was used in it, what the loops make of that, and what follows of it.
func (p *paper) tick(t testing.TB, second int) {
	t.Helper()
	called := p.happens(t, second)
	p.facts.Now, p.facts.Urgent, p.facts.Waiting = began+unit.Micros(second)*unit.Second, false, nil
	p.uses(second)
	p.step(second, "")
	if called != "" {
		p.facts.Now, p.facts.Urgent, p.facts.Waiting = p.facts.Now+unit.Second/2, true, []string{called}
		p.step(second, ".5")
	}
}

// happens does what the load has for this second, and ends pods whose grace period is over. It returns the UID of the pod that calls.
func (p *paper) happens(t testing.TB, second int) (called string) {
	t.Helper()
	changed := false
	for _, e := range p.s.load.events[second] {
		f := strings.Fields(e)
		if f[0] == "strategy" {
			next, ok := p.s.strategies[f[1]]
			if !ok {
				t.Fatalf("load.txt: no section strategy-%s.yaml", f[1])
			}
			view := *p.facts.View
			view.Strategy, p.facts.View = &next, &view
			continue
		}
		pod := p.pod(f[0])
		if pod == nil {
			t.Fatalf("load.txt: nobody is called %s", f[0])
		}
		switch f[1] {
		case "arrives":
			pod.here, pod.came, changed = true, second, true
		case "ends":
			pod.gone, changed = true, true
		case "calls":
			called = pod.uid
		}
	}
	for _, pod := range p.pods {
		if pod.here && !pod.listed && second-pod.came >= listedAfter {
			pod.listed, changed = true, true
		}
		if pod.leaving && !pod.gone && unit.Micros(second-pod.since)*unit.Second >= unit.Micros(pod.of.Grace.Microseconds()) {
			pod.gone, changed = true, true
			delete(p.facts.Leaving, pod.uid)
			p.tell(second, "", "pod "+pod.name, "has ended")
		}
	}
	if changed {
		p.settle(t)
	}
	return called
}

// step has the loops decide, and puts that in force.
func (p *paper) step(second int, half string) {
	p.state, p.out = decide.Step(p.state, &p.facts)
	p.w.Append(p.out.Samples)
	if !p.facts.Urgent {
		p.reclaims()
	}
	if len(p.out.Tier) > 0 {
		p.tier = int64(p.out.Suppress.Quota)
	}
	if p.out.Suppress.Cut {
		p.cuts++
	}
	p.tellAll(second, half)
	for _, e := range p.out.Evict.Evictions {
		pod := p.pod(e.Name)
		pod.leaving, pod.since = true, second
		p.facts.Leaving[pod.uid] = p.facts.Now
		p.evicted++
		p.tell(second, half, "pod "+e.Name, "evicted: "+e.Reason)
	}
}

// reclaims takes file cache as it was asked for, and keeps what that has brought for the next step.
func (p *paper) reclaims() {
	p.facts.Reclaimed = map[string]unit.Bytes{}
	for _, r := range p.out.Reclaims {
		u := p.use.of[r.Container]
		got := min(float64(r.Bytes), u.cache)
		u.cache -= got
		p.reclaimed += got
		p.facts.Reclaimed[r.Container] = unit.Bytes(got)
	}
}

// quotaOf is what stands in a container's cpu.max, -1 for none.
func (p *paper) quotaOf(m *engine.Member, c *workload.Container) unit.Micros {
	base := container.BaseQuota(p.facts.View, m.Pod, c)
	loop := p.out.Dynamic.Quotas[m.Pod.UID]
	if f := loop.Factors[c.ID]; f > 1 {
		base = f.Raise(base)
	}
	if most := unit.Micros(loop.Cap) * unit.CFSPeriod / 1000; loop.Cap > 0 && (base <= 0 || most < base) {
		base = most
	}
	if base <= 0 {
		return unit.Micros(unit.Unlimited)
	}
	return base
}

// highOf is what stands in a container's memory.high, 0 for none.
func (p *paper) highOf(m *engine.Member, c *workload.Container) unit.Bytes {
	if h, ok := p.out.Dynamic.MemoryHigh[c.ID]; ok {
		return h.Bytes
	}
	return container.BaseMemory(p.facts.View, m.Pod, c).High
}

// limit is what the class may use, in CPUs.
func (p *paper) limit() float64 {
	switch {
	case p.out.Suppress.Mode == suppress.CPUSet:
		return float64(p.out.Dynamic.BECPUs.Len())
	case p.tier > 0 && p.out.Suppress.Mode == suppress.Quota:
		return float64(p.tier) / float64(unit.CFSPeriod)
	}
	return float64(p.s.node.CPUs)
}
