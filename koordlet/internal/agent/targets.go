// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/node"
)

// followed is what the list of whom to measure is made of.
type followed struct {
	roster, pods uint64
	spec         *strategy.Spec
	// ticks since it was made.
	ticks int
}

// refollow is after how many ticks the list is made anew although nothing has changed: a trigger that the kernel has refused is tried
// again then.
const refollow = 10

// news takes in what there is now and reports whether the list has to be made anew.
func (f *followed) news(now followed) bool {
	if now.ticks = f.ticks + 1; now.roster == f.roster && now.pods == f.pods && now.spec == f.spec && now.ticks < refollow {
		*f = now
		return false
	}
	now.ticks = 0
	*f = now
	return true
}

// follow has the scanner and the triggers follow the pods.
func (a *Agent) follow(v *node.View, members []engine.Member, snapshot *pods.Snapshot) {
	if a.changed(members) {
		a.o.Pods.Poke() // what a new pod asks for is known to the kubelet alone
	}
	if a.o.Pressure != nil {
		a.trouble("pressure triggers", a.o.Pressure.Follow(members))
	}
	a.o.Scanner.Follow(targets(v, members, snapshot))
}

// changed reports whether pods have come or gone since the list before.
func (a *Agent) changed(members []engine.Member) bool {
	if slices.EqualFunc(a.here, members, func(uid string, m engine.Member) bool { return uid == m.Pod.UID }) {
		return false
	}
	a.here = a.here[:0]
	for i := range members {
		a.here = append(a.here, members[i].Pod.UID)
	}
	return true
}

// targets is whom to measure: what the runtime runs, with the classes that Kubernetes knows, and the strategy's host
// applications.
func targets(v *node.View, members []engine.Member, snapshot *pods.Snapshot) collect.Targets {
	t := collect.Targets{Pods: make([]collect.Pod, 0, len(members))}
	for i := range members {
		m := &members[i]
		if m.Pod.Cgroup == "" {
			continue
		}
		p := collect.Pod{UID: m.Pod.UID, Cgroup: m.Pod.Cgroup, QoS: m.Pod.Class(), PID: m.Pod.PID}
		if spec, ok := snapshot.Pod(m.Pod.UID); ok {
			p.Priority, p.HostNetwork = spec.PriorityClass, spec.HostNetwork
		}
		if p.Priority == protocol.PriorityNone {
			p.Priority = p.QoS.DefaultPriorityClass()
		}
		for _, c := range m.Containers {
			p.Containers = append(p.Containers, collect.Container{ID: c.ID, Cgroup: c.Cgroup})
		}
		t.Pods = append(t.Pods, p)
	}
	t.BestEffort = decide.BestEffort(members)
	apps, _ := decide.Apps(v, members)
	for _, app := range apps {
		t.HostApps = append(t.HostApps, collect.HostApp{Name: app.Name, Cgroup: app.Cgroup})
	}
	return t
}
