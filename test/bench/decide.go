// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	nriapi "github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	containerpolicy "github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

const (
	decideContainers = 1000
	decideGoal       = 50e-6 // seconds, p99
	paperMemory      = 512 << 30
	paperCPUs        = 128
)

// vendorKnobs are on no mainline kernel.
var vendorKnobs = plan.KnobSet(plan.CPUBvt, plan.MemoryWmarkRatio, plan.MemoryWmarkScale, plan.MemoryWmarkMinAdj,
	plan.MemoryPriority, plan.MemoryUsePriorityOOM, plan.PageCacheEnable, plan.PageCacheSize, plan.PageCacheSync)

// request is one CreateContainer event, as messages and parsed.
type request struct {
	sandbox   *nriapi.PodSandbox
	message   *nriapi.Container
	pod       *workload.Pod
	container *workload.Container
}

// decide times policy/container.Decide and adapt/nri.Adjust on a node that exists on paper.
func (b *bench) decide(ctx context.Context, r *report) error {
	v, requests, err := paper()
	if err != nil {
		return err
	}
	settings := 0
	for i := range requests {
		q := &requests[i]
		pl, problems := containerpolicy.Decide(v, q.pod, q.container)
		if len(problems) > 0 || len(pl) == 0 {
			return fmt.Errorf("pod %s: plan of %d settings, problems %v", q.pod.Name, len(pl), problems)
		}
		settings += len(pl)
	}
	r.note("%d containers in the view, %.1f settings planned for each on average; %d CPUs, cgroup v2, every mainline knob", len(requests), float64(settings)/float64(len(requests)), paperCPUs)
	pure, allocs := b.timed(ctx, requests, func(q *request) { decideOne(v, q.pod, q.container) })
	whole, wholeAllocs := b.timed(ctx, requests, func(q *request) {
		decideOne(v, nri.Pod(q.sandbox), nri.Container(q.sandbox, q.message))
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	r.note("decide and adjust        %s allocs=%.1f", pure.line(), allocs)
	r.note("with parsing of messages %s allocs=%.1f", whole.line(), wholeAllocs)
	for kind, q := range map[string]*request{"LS": &requests[0], "BE": &requests[10], "LSR": &requests[18]} {
		one, n := b.timed(ctx, []request{*q}, func(q *request) { decideOne(v, q.pod, q.container) })
		r.note("only %-3s                 %s allocs=%.1f", kind, one.line(), n)
	}
	pure, whole = pure.sorted(), whole.sorted()
	r.judge("decide and adjust p99", "≤ 50 µs", took(pure.quantile(0.99)), pure.quantile(0.99) <= decideGoal)
	r.tell("decide and adjust p50", "%s", took(pure.quantile(0.5)))
	r.tell("decide and adjust max", "%s of %d", took(pure.quantile(1)), len(pure))
	r.tell("allocations per decision", "%.1f", allocs)
	r.tell("the same with parsing p50, p99", "%s, %s", took(whole.quantile(0.5)), took(whole.quantile(0.99)))
	return nil
}

// decideOne is the decision and the reply's content; the result would be sent.
func decideOne(v *node.View, p *workload.Pod, c *workload.Container) (*nriapi.ContainerAdjustment, plan.Plan) {
	pl, _ := containerpolicy.Decide(v, p, c)
	return nri.Adjust(v, pl, c, "bench")
}

// timed calls f over the requests in a scattered order, after a tenth of them as warm-up, and returns the seconds of each
// call and the allocations per call.
func (b *bench) timed(ctx context.Context, requests []request, f func(*request)) (sample, float64) {
	for i := range b.o.decisions / 10 {
		f(&requests[i*7919%len(requests)])
	}
	out := make(sample, b.o.decisions)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range out {
		if i%10_000 == 0 && ctx.Err() != nil {
			break
		}
		q := &requests[i*7919%len(requests)]
		start := time.Now()
		f(q)
		out[i] = time.Since(start).Seconds()
	}
	runtime.ReadMemStats(&after)
	return out, float64(after.Mallocs-before.Mallocs) / float64(len(out))
}

// paper is a node of 128 CPUs with 500 pods of two containers: half LS, four tenths BE, one tenth LSR.
func paper() (*node.View, []request, error) {
	v, err := paperView()
	if err != nil {
		return nil, nil, err
	}
	var out []request
	for i := range decideContainers / 2 {
		spec := paperPod(i)
		d, err := kubelet.Describe(spec, kubelet.DescribeOptions{V2: true, Driver: kubelet.Cgroupfs, MemoryCapacity: paperMemory})
		if err != nil {
			return nil, nil, fmt.Errorf("describe pod: %w", err)
		}
		sandbox := scenario.Sandbox(d.Sandbox)
		pod, cached := nri.Pod(sandbox), node.PodSpec{Containers: map[string]node.ContainerSpec{}}
		for k, c := range d.Containers {
			q := request{sandbox: sandbox, message: scenario.Container(sandbox, c), pod: pod}
			q.container = nri.Container(sandbox, q.message)
			out = append(out, q)
			cached.Containers[spec.Containers[k].Name] = node.ContainerSpec{CPULimit: q.container.Base.CPULimit(), MemoryLimit: q.container.Base.MemLimit()}
			claim(v, &q)
		}
		v.Pods[pod.UID] = cached
	}
	return v, out, nil
}

// claim puts the CPUs of one container into the view.
func claim(v *node.View, q *request) {
	lse, lsr, _ := containerpolicy.Claim(v, q.pod, q.container)
	if lse.Empty() && lsr.Empty() {
		return
	}
	v.Claims.LSE, v.Claims.LSR = v.Claims.LSE.Union(lse), v.Claims.LSR.Union(lsr)
	v.Claims.ByPod[q.pod.UID] = node.PodClaim{LSE: lse, LSR: lsr}
}

func paperPod(i int) kubelet.Pod {
	switch {
	case i%10 == 9:
		p := lsPod("paper", i, 2)
		p.Labels["koordinator.sh/qosClass"] = "LSR"
		first := i / 10 * 2
		p.Annotations["scheduling.koordinator.sh/resource-status"] = fmt.Sprintf(`{"cpuset":"%d-%d"}`, first, first+1)
		for c := range p.Containers {
			p.Containers[c].Resources.Requests = p.Containers[c].Resources.Limits
		}
		return p
	case i%10 >= 5:
		return bePod("paper", i, 2)
	}
	return lsPod("paper", i, 2)
}

func paperView() (*node.View, error) {
	spec, err := strategy.Parse([]byte(classStrategy))
	if err != nil {
		return nil, fmt.Errorf("parse strategy: %w", err)
	}
	effective, l := strategy.Effective(spec), config.Default().Limits
	cpus := make([]topo.CPU, paperCPUs)
	for i := range cpus {
		cpus[i] = topo.CPU{ID: i, Core: i / 2, Socket: i * 2 / paperCPUs, Node: i * 2 / paperCPUs, L3: i * 2 / paperCPUs}
	}
	v := &node.View{
		Generation: 1, Name: "paper", Topology: topo.New(cpus, topo.Range(0, 1)), Strategy: &effective,
		CPUAllocatable: paperCPUs * 1000, MemCapacity: paperMemory, MemAllocatable: paperMemory,
		Kernel:  scenario.Kernel("v2", func(k plan.Knob) bool { return !vendorKnobs.Has(k) }),
		Runtime: nri.Runtime("containerd", "v2.4.2", "0.12.3"),
		Limits: node.Limits{
			OOMScoreAdjMax: l.OOMScoreAdjMax, MemoryNodePercent: unit.Percent(l.MemoryNodePercentMax), IOLatencyMin: l.IOLatencyMin, CPUBurstPercentMax: unit.Percent(l.CPUBurstPercentMax),
			MemoryMinPercent: unit.Percent(l.MemoryMinPercentMax), MemoryLowPercent: unit.Percent(l.MemoryLowPercentMax),
			MBAPercentMax: unit.Percent(l.MBAPercentMax), PodResctrl: true, CoreSched: true, Devices: true,
			ExclusivePercent: unit.Percent(l.NodeCPUSetMaxPercent), BlkIO: l.BlkIO,
		},
		Pods: make(map[string]node.PodSpec, decideContainers/2),
	}
	v.Claims.ByPod = map[string]node.PodClaim{}
	v.Runtime.Weight = unit.Quadratic
	return v, nil
}
