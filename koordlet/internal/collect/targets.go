// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"path"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
)

// Targets is whom to measure. Cgroups are paths below the hierarchies: "/kubepods/burstable/podX". Pods that have finished do not
// belong here.
type Targets struct {
	Pods     []Pod
	HostApps []HostApp
	// BestEffort is the cgroup of Kubernetes' BestEffort class, where suppression sets its limits; empty when it is not known.
	BestEffort string
}

// Pod is one pod that has a cgroup.
type Pod struct {
	UID, Cgroup string
	// QoS and Priority are the classes that it counts for, defaults resolved.
	QoS      protocol.QoS
	Priority protocol.PriorityClass
	// PID is a process in the pod's network namespace, its sandbox say; 0 when unknown. HostNetwork pods have no traffic of their own.
	PID         int
	HostNetwork bool
	Containers  []Container
}

// Container is one running container.
type Container struct{ ID, Cgroup string }

// HostApp is one host application of the NodeSLO.
type HostApp struct{ Name, Cgroup string }

// entry is one followed cgroup with what the last readings of it were.
type entry struct {
	subject sample.Subject
	path    string
	// phase spreads the entries over the ticks of a slow interval.
	phase uint64

	cg *usage.Cgroup // nil while it does not exist
	// failures in a row to open it; after many, it is tried less often.
	failures uint32
	// own is a pod's.
	own ownTime
	reading
}

// podEntry is a pod with its containers.
type podEntry struct {
	entry
	pod        Pod
	containers []*entry
	// above is the directory of its class, nil where only few pods are in it.
	above *entry
}

// key finds an entry again when the targets change: same subject, same cgroup.
type key struct {
	subject sample.Subject
	path    string
}

func (e *entry) key() key { return key{e.subject, e.path} }

// follow takes over new targets: who stays keeps its descriptors and counters, who has gone gives them back.
func (s *Scanner) follow(next *Targets) {
	t := &s.tick
	t.told = true
	pods := make(map[key]*podEntry, len(t.pods))
	others := make(map[key]*entry, len(t.apps))
	for _, p := range t.pods {
		pods[p.key()] = p
		for _, c := range p.containers {
			others[c.key()] = c
		}
	}
	for _, a := range t.apps {
		others[a.key()] = a
	}
	t.pods = make([]*podEntry, 0, len(next.Pods))
	for i := range next.Pods {
		t.pods = append(t.pods, t.followPod(&next.Pods[i], pods, others))
	}
	t.apps = make([]*entry, 0, len(next.HostApps))
	for _, a := range next.HostApps {
		t.apps = append(t.apps, take(others, key{sample.OfHostApp(a.Name), a.Cgroup}, t.nextPhase()))
	}
	for _, p := range pods {
		s.forget(&p.entry)
	}
	for _, e := range others {
		s.forget(e)
	}
	t.followParents(next.BestEffort)
	t.followBestEffort(next.BestEffort)
}

// manyPods in one directory make it worth to ask the directory first.
const manyPods = 4

// followParents finds the directories of the pods, and has the one of best effort whoever is in it: what it uses is known before its pods are.
func (t *tick) followParents(bestEffort string) {
	count := map[string]int{}
	if bestEffort != "" {
		count[bestEffort] = manyPods
	}
	for _, p := range t.pods {
		count[path.Dir(p.path)]++
	}
	next := make([]*entry, 0, len(count))
	for _, e := range t.parents {
		if count[e.path] < manyPods {
			e.close()
			continue
		}
		next = append(next, e)
		count[e.path] = 0
	}
	for dir, n := range count {
		if n >= manyPods {
			next = append(next, &entry{path: dir})
		}
	}
	t.parents = next
	for _, p := range t.pods {
		p.above = nil
		if i := slices.IndexFunc(next, func(e *entry) bool { return e.path == path.Dir(p.path) }); i >= 0 {
			p.above = next[i]
		}
	}
}

func (t *tick) followPod(p *Pod, pods map[key]*podEntry, others map[key]*entry) *podEntry {
	k := key{sample.OfPod(p.UID), p.Cgroup}
	e := pods[k]
	delete(pods, k)
	if e == nil {
		e = &podEntry{entry: entry{subject: k.subject, path: k.path, phase: t.nextPhase()}}
	}
	e.pod = *p
	e.containers = make([]*entry, 0, len(p.Containers))
	for _, c := range p.Containers {
		// A pod and its containers have one phase: what is summed up for the pod is of one moment.
		e.containers = append(e.containers, take(others, key{sample.OfContainer(c.ID), c.Cgroup}, e.phase))
	}
	return e
}

// take is the entry of a key, the old one or a new one. One that is named twice is followed twice.
func take(others map[key]*entry, k key, phase uint64) *entry {
	if e := others[k]; e != nil {
		delete(others, k)
		return e
	}
	return &entry{subject: k.subject, path: k.path, phase: phase}
}

func (t *tick) nextPhase() uint64 {
	t.phases++
	return t.phases
}

// followBestEffort: only tables of it are read, so it holds nothing.
func (t *tick) followBestEffort(dir string) {
	if dir == "" {
		t.bestEffort = nil
		return
	}
	cg, err := t.usage.At(dir)
	if err != nil {
		t.fail(err)
	}
	t.bestEffort = cg
}

// forget gives back what an entry holds, here and in the collectors.
func (s *Scanner) forget(e *entry) {
	e.close()
	for i := range s.running {
		if f, ok := s.running[i].collector.(forgetter); ok {
			f.forget(e)
		}
	}
}
