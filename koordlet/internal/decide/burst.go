// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/draft"
	"github.com/koord-rt/koord-rt/policy/pod"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// poolWindow is what the use of the share pool is averaged over.
const poolWindow = 5 * unit.Second

// burstInput is what the burst loop looks at. Pods for which nobody asks are left out, which is everybody by default.
func burstInput(f *Facts, a *accounts, b *bases) burst.Input {
	in := burst.Input{Now: f.Now, Strategy: f.View.Strategy.Burst(), PercentMax: f.View.Limits.CPUBurstPercentMax, Tune: f.Tune}
	if f.View.Mode(protocol.FeatureBurst) == node.Off {
		return in
	}
	b.follow(f.View)
	for i := range a.pods {
		if u := &a.pods[i]; mayBurst(&in, u) {
			in.Pods = append(in.Pods, burstPod(f, u, b))
		}
	}
	if len(in.Pods) > 0 {
		in.Pool = f.sharePool(a)
	}
	return in
}

// mayBurst reports whether policy, annotation or tuning could raise a quota of the pod: work for others would be for nothing.
func mayBurst(in *burst.Input, u *usage) bool {
	switch draft.PinClass(u.member.Pod) {
	case protocol.QoSLSE, protocol.QoSLSR, protocol.QoSBE:
		return false
	}
	policy := draft.Str(in.Strategy.Policy)
	if ask := u.member.Pod.Ask.CPUBurst; ask != nil && ask.Policy != nil {
		policy = *ask.Policy
	}
	return in.Tune || policy == strategy.BurstAuto || policy == strategy.BurstCFSQuotaOnly
}

func burstPod(f *Facts, u *usage, b *bases) burst.Pod {
	p := u.member.Pod
	out := burst.Pod{
		UID: p.UID, QoS: p.Ask.QoS, Ask: p.Ask.CPUBurst, Base: b.quota(p, nil), Containers: make([]burst.Container, 0, len(u.member.Containers)),
	}
	for _, c := range u.member.Containers {
		one := burst.Container{ID: c.ID, Base: b.quota(p, c)}
		if one.Base > 0 {
			subject := sample.OfContainer(c.ID)
			one.Used = f.cpu(subject)
			if q := f.last(subject, sample.CPUThrottled); q.Known() {
				one.Throttled = unit.Got(unit.Fraction(q.Last))
			}
		}
		out.Containers = append(out.Containers, one)
	}
	return out
}

// bases remembers the quotas that stand without the loops. They follow from the View, the pod and the container alone, and those are
// values that never change.
type bases struct {
	view *node.View
	of   map[based]unit.Micros
}

// based is whose quota it is; the pod's own without a container.
type based struct {
	pod       *workload.Pod
	container *workload.Container
}

// maxBases bounds what is remembered of those who have gone.
const maxBases = 4096

// follow forgets what another View has decided.
func (b *bases) follow(v *node.View) {
	if b.view != v || len(b.of) > maxBases {
		*b = bases{view: v, of: map[based]unit.Micros{}}
	}
}

func (b *bases) quota(p *workload.Pod, c *workload.Container) unit.Micros {
	q, ok := b.of[based{p, c}]
	if ok {
		return q
	}
	if c == nil {
		q = pod.BaseQuota(b.view, p)
	} else {
		q = container.BaseQuota(b.view, p, c)
	}
	b.of[based{p, c}] = q
	return q
}

// sharePool is the use of the CPUs that LS pods share. What LSE and LSR pods request is theirs; the claim stands in where
// Kubernetes has not told. Use of a pod without a sample counts as the pool's.
func (f *Facts) sharePool(a *accounts) burst.Pool {
	used := f.average(sample.OfNode())
	out := burst.Pool{CPUs: unit.MilliCPU(f.all().Len() * 1000), Node: used}
	if !used.OK {
		return out
	}
	out.Exclusive.OK, out.BE.OK = true, true
	for i := range a.pods {
		u := &a.pods[i]
		switch draft.PinClass(u.member.Pod) {
		case protocol.QoSBE:
			out.BE.V += f.average(sample.OfPod(u.member.Pod.UID)).V
		case protocol.QoSLSE, protocol.QoSLSR:
			out.Exclusive.V += f.average(sample.OfPod(u.member.Pod.UID)).V
			if u.spec != nil {
				out.Requests += u.spec.Requests().AnyCPU()
				continue
			}
			claim := f.View.Claims.ByPod[u.member.Pod.UID]
			out.Requests += unit.MilliCPU(claim.LSE.Union(claim.LSR).Len() * 1000)
		}
	}
	return out
}

func (f *Facts) average(s sample.Subject) unit.Measured[unit.MilliCPU] {
	q := f.Window.Query(s, sample.CPUUsage, f.Now-max(poolWindow, 2*f.Interval), f.Now+1)
	return milli(seen{Last: q.Avg, known: q.Known()})
}

// quotas joins what is given and what is taken, by pod; nil for neither.
func quotas(raises []burst.Raise, caps []suppress.PodCap) map[string]node.QuotaLoop {
	if len(raises)+len(caps) == 0 {
		return nil
	}
	out := make(map[string]node.QuotaLoop, len(raises)+len(caps))
	for i := range raises {
		r := &raises[i]
		q := out[r.Pod]
		if r.Container == "" {
			q.Plus = r.Plus
		} else {
			if q.Factors == nil {
				q.Factors = map[string]unit.Fraction{}
			}
			q.Factors[r.Container] = r.Factor
		}
		out[r.Pod] = q
	}
	for _, c := range caps {
		q := out[c.Pod]
		q.Cap = c.Limit
		out[c.Pod] = q
	}
	return out
}
