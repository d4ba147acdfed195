// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/draft"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// poolWindow is what the use of the share pool is averaged over.
const poolWindow = 5 * unit.Second

// burstInput is what the burst loop looks at. Pods for which nobody asks are left out, which is everybody by default.
func burstInput(f *Facts, a *accounts, m *memo) burst.Input {
	in := burst.Input{Now: f.Now, Strategy: f.View.Strategy.Burst(), PercentMax: f.View.Limits.CPUBurstPercentMax, Tune: f.Tune}
	if f.View.Mode(protocol.FeatureBurst) == node.Off {
		return in
	}
	pods, containers := 0, 0
	for i := range a.pods {
		if u := &a.pods[i]; mayBurst(&in, u) {
			pods, containers = pods+1, containers+len(u.member.Containers)
		}
	}
	in.Pods = make([]burst.Pod, 0, pods)
	room := make([]burst.Container, 0, containers) // for all of them at once
	for i := range a.pods {
		if u := &a.pods[i]; mayBurst(&in, u) {
			from := len(room)
			room = f.burstContainers(u, m, room)
			p := u.member.Pod
			one := burst.Pod{UID: p.UID, QoS: p.Ask.QoS, Ask: p.Ask.CPUBurst, Base: m.quota(p, nil), Containers: room[from:len(room):len(room)]}
			one.Throttled, one.At = f.throttled(sample.OfPod(p.UID))
			in.Pods = append(in.Pods, one)
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
	policy, tune := draft.Str(in.Strategy.Policy), in.Tune
	if ask := u.member.Pod.Ask.CPUBurst; ask != nil && ask.Policy != nil {
		policy, tune = *ask.Policy, false
	}
	return tune || burst.Raises(policy)
}

// burstContainers appends the pod's containers.
func (f *Facts) burstContainers(u *usage, m *memo, out []burst.Container) []burst.Container {
	for _, c := range u.member.Containers {
		one := burst.Container{ID: c.ID, Base: m.quota(u.member.Pod, c)}
		if one.Base > 0 {
			subject := sample.OfContainer(c.ID)
			one.Used = f.cpu(subject)
			one.Throttled, one.At = f.throttled(subject)
		}
		out = append(out, one)
	}
	return out
}

// throttled is the part of its last periods in which a cgroup's quota was spent, and when that was measured.
func (f *Facts) throttled(s sample.Subject) (part unit.Measured[unit.Fraction], at unit.Micros) {
	if q := f.last(s, sample.CPUThrottled); q.Known() {
		return unit.Got(unit.Fraction(q.Last)), q.To
	}
	return part, 0
}

// sharePool is the use of the CPUs that LS pods share. What LSE and LSR pods request is theirs; the claim stands in where
// Kubernetes has not told. Use of a pod without a sample counts as the pool's.
func (f *Facts) sharePool(a *accounts) burst.Pool {
	used := f.average(sample.OfNode())
	now := f.last(sample.OfNode(), sample.CPUUsage)
	out := burst.Pool{CPUs: unit.MilliCPU(f.all().Len() * 1000), Node: used, Now: milli(now), At: now.To}
	if !used.OK {
		return out
	}
	out.Exclusive.OK, out.BE.OK = true, true
	class := f.last(sample.OfQoS(protocol.QoSBE), sample.ClassCPU)
	var below unit.MilliCPU // on average
	for i := range a.pods {
		u := &a.pods[i]
		if u.again {
			continue
		}
		pin, within := draft.PinClass(u.member.Pod), u.member.Pod.KubeQoS == protocol.KubeBestEffort
		if !within && pin != protocol.QoSBE && pin != protocol.QoSLSE && pin != protocol.QoSLSR {
			continue
		}
		mean := f.average(sample.OfPod(u.member.Pod.UID)).V
		if within {
			below += mean
		}
		switch pin {
		case protocol.QoSBE:
			out.BE.V += mean
			out.Now.V, out.Now.OK = out.Now.V-u.cpu.V, out.Now.OK && (u.cpu.OK || within && class.Known())
		case protocol.QoSLSE, protocol.QoSLSR:
			out.Exclusive.V += mean
			out.Now.V, out.Now.OK = out.Now.V-u.cpu.V, out.Now.OK && u.cpu.OK
			if u.spec != nil {
				out.Requests += u.spec.Requests().AnyCPU()
				continue
			}
			claim := f.View.Claims.ByPod[u.member.Pod.UID]
			out.Requests += unit.MilliCPU(claim.LSE.Union(claim.LSR).Len() * 1000)
		}
	}
	// What best effort uses of which nobody has told yet is not the pool's either.
	if class.Known() {
		out.Now.V -= max(milli(class).V-a.below, 0)
		out.BE.V += max(f.averageOf(sample.OfQoS(protocol.QoSBE), sample.ClassCPU).V-below, 0)
	}
	return out
}

func (f *Facts) average(s sample.Subject) unit.Measured[unit.MilliCPU] {
	return f.averageOf(s, sample.CPUUsage)
}

func (f *Facts) averageOf(s sample.Subject, m sample.Metric) unit.Measured[unit.MilliCPU] {
	q := f.Window.Query(s, m, f.Now-max(poolWindow, 2*f.Interval), f.Now+1)
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
