// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"sync"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	podpolicy "github.com/koord-rt/koord-rt/policy/pod"
)

// ancestors remembers the QoS directories that carry sums of ours: they must fall to 0 when their last pod goes, and at
// the end all of them (D6: they are the kubelet's).
type ancestors struct {
	// turn is held from the sum to its write, so that no older sum is written over a newer one.
	turn sync.Mutex
	// mu guards what follows.
	mu   sync.Mutex
	dirs map[string]string // QoS directory to the root of all pods
}

// OwnsMemoryMin reports whether memory.min of a directory above pods is ours.
func (g *Engine) OwnsMemoryMin(dir string) bool {
	if g.views.Load().Kernel.KubeletMemoryQoS {
		return false
	}
	g.above.mu.Lock()
	defer g.above.mu.Unlock()
	if _, ok := g.above.dirs[dir]; ok {
		return true
	}
	for _, root := range g.above.dirs {
		if root == dir {
			return true
		}
	}
	return false
}

// settleAncestors brings the QoS directories and the root of all pods to the sum of what the pods protect. Until the
// runtime has told its pods the sums are not known: what an earlier life or another writer has left stands.
func (g *Engine) settleAncestors(ctx context.Context, v *node.View) {
	if g.stats.lastSync.Load() == 0 {
		return
	}
	g.above.turn.Lock()
	defer g.above.turn.Unlock()
	past, sums := g.past.Load(), podpolicy.Ancestors(v, g.protections())
	left := past.takeAbove()
	results := g.apply(ctx, v, withAboveUndo(sums, left))
	past.keepAbove(left.refused(sums, results))
	g.above.forget(sums, results)
}

// forget strikes off the directories that carry nothing of ours any more. They are the kubelet's again: to go on holding them at 0 would undo
// what it writes there itself once its MemoryQoS is switched on.
func (a *ancestors) forget(sums plan.Plan, results []apply.Result) {
	carries, refused := map[string]bool{}, map[string]bool{}
	for i := range sums {
		s := &sums[i]
		carries[s.Target.Cgroup] = carries[s.Target.Cgroup] || s.Observe || s.Value.Int() != 0
	}
	for i := range results {
		switch r := &results[i]; r.Outcome {
		case apply.Unchanged, apply.Written, apply.Gone:
		default:
			refused[r.Setting.Target.Cgroup] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for dir, root := range a.dirs {
		if still, summed := carries[dir]; summed && !still && !refused[dir] && !refused[root] {
			delete(a.dirs, dir)
		}
	}
}

// protections lists what each pod protects, and every directory that may still have a sum of ours with nothing. A pod's part is noted, whoever
// asks for the sum: else nobody would miss it when it falls.
func (g *Engine) protections() []podpolicy.Protection {
	pods := g.reg.podList()
	out := make([]podpolicy.Protection, 0, len(pods)+4)
	g.above.mu.Lock()
	defer g.above.mu.Unlock()
	for i := range pods {
		pr := protection(&pods[i])
		if pr.Min > 0 || pr.Low > 0 {
			g.above.dirs[pr.QoSCgroup] = pr.KubepodsCgroup
			out = append(out, pr)
		}
		if pr.Min != pods[i].minAbove || pr.Low != pods[i].lowAbove {
			g.reg.changePod(pods[i].p.ID, func(e *podEntry) { e.minAbove, e.lowAbove = pr.Min, pr.Low })
		}
	}
	for dir, root := range g.above.dirs {
		out = append(out, podpolicy.Protection{QoSCgroup: dir, KubepodsCgroup: root})
	}
	return out
}

// protection is what one pod's cgroup protects under its present plan.
func protection(e *podEntry) podpolicy.Protection {
	info, ok := cgrouppath.OfPod(e.p.Cgroup)
	if !ok {
		return podpolicy.Protection{}
	}
	out := podpolicy.Protection{QoSCgroup: info.QoSCgroup, KubepodsCgroup: info.Root}
	if s := e.plan.Get(plan.MemoryMin); s != nil && !s.Observe {
		out.Min = unit.Bytes(max(s.Value.Int(), 0))
	}
	if s := e.plan.Get(plan.MemoryLow); s != nil && !s.Observe {
		out.Low = unit.Bytes(max(s.Value.Int(), 0))
	}
	return out
}

// leave takes back what stands in the kubelet's own directories, when the program is stopped in an orderly way. Running
// containers and pods keep their guarantees.
//
// Another writer that lives on has the same pods and keeps the same sums by its repair pass: then they stay, because a
// protection that is gone for a moment lets the kernel reclaim what it protected. The last one to leave takes back what any
// of them has written.
func (g *Engine) leave(ctx context.Context) {
	var left *Past
	if g.o.Leave != nil {
		others, past := g.o.Leave()
		if others {
			g.log.Info("the protections of the QoS directories are left to the writer that lives on")
			return
		}
		left = past
	}
	g.above.turn.Lock()
	defer g.above.turn.Unlock()
	v := g.views.Load()
	pl := podpolicy.Ancestors(v, g.above.zero(left))
	for i := range pl {
		pl[i].Reason = "the plugin is stopped: this directory is the kubelet's"
	}
	g.apply(ctx, v, pl)
}

// zero lists every directory that carries a sum of ours, or of those who left theirs to us, with nothing.
func (a *ancestors) zero(left *Past) []podpolicy.Protection {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]podpolicy.Protection, 0, len(a.dirs))
	for dir, root := range a.dirs {
		out = append(out, podpolicy.Protection{QoSCgroup: dir, KubepodsCgroup: root})
	}
	for dir, root := range left.ancestors() {
		if _, known := a.dirs[dir]; !known {
			out = append(out, podpolicy.Protection{QoSCgroup: dir, KubepodsCgroup: root})
		}
	}
	return out
}
