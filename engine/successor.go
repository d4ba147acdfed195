// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/workload"
)

// When a sandbox dies the kubelet makes another one for the same pod, with the same UID and cgroup, and removes the dead one some time
// later. What is the pod's belongs to whichever sandbox lives: the cgroup with its values, the ledger's books on it, the pod's
// resctrl group.

// samePod reports whether two sandboxes are of one pod.
func samePod(a, b *workload.Pod) bool {
	return a.UID != "" && a.UID == b.UID || a.Cgroup != "" && a.Cgroup == b.Cgroup
}

// shared reports whether another sandbox of the pod is known.
func (r *registry) shared(p *workload.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.pods {
		if id != p.ID && samePod(r.pods[id].p, p) {
			return true
		}
	}
	return false
}

// succeed ends the earlier sandboxes of the pod that has just got this one, which takes over what they have in the pod's cgroup.
func (r *registry) succeed(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.pods[sandbox]
	if !ok {
		return
	}
	for id, old := range r.pods {
		if id == sandbox || !samePod(old.p, e.p) {
			continue
		}
		e.inherit(&old)
		r.pods[id] = old
		r.generation++
	}
	r.pods[sandbox] = e
}

// inherit takes over what an earlier sandbox of the pod has in its cgroup, and ends that.
func (e *podEntry) inherit(old *podEntry) {
	if e.plan == nil {
		e.plan, e.before, e.gen = old.plan, old.before, old.gen
	} else if all := join(e.plan, old.plan); len(all) > len(e.plan) {
		e.plan, e.before, e.gen = all, append(e.before[:len(e.before):len(e.before)], old.before...), undecided
	}
	e.minAbove, e.lowAbove = max(e.minAbove, old.minAbove), max(e.lowAbove, old.lowAbove)
	old.stopped, old.minAbove, old.lowAbove = true, 0, 0
}

// outlived ends the sandboxes of a list whose pod has another one that lives, as far as the list tells: one with a process or with a
// container that has not ended.
func outlived(pods []podEntry, containers []entry) {
	lives := map[string]bool{}
	for i := range containers {
		if containers[i].c.State != workload.StateStopped {
			lives[containers[i].sandbox] = true
		}
	}
	alive := func(p *workload.Pod) bool { return p.PID != 0 || lives[p.ID] }
	byUID := map[string][]int{}
	for i := range pods {
		if uid := pods[i].p.UID; uid != "" {
			byUID[uid] = append(byUID[uid], i)
		}
	}
	for _, same := range byUID {
		heir := slices.IndexFunc(same, func(i int) bool { return alive(pods[i].p) })
		for _, i := range same {
			if heir >= 0 && !alive(pods[i].p) {
				pods[same[heir]].inherit(&pods[i])
			}
		}
	}
}
