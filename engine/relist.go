// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"os"
	"path"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Lister asks the runtime about one container that NRI has not told; adapt/cri.
type Lister interface {
	// Container reads a container and its sandbox; marks are what is known to stand in its specification of ours, newest
	// first.
	Container(ctx context.Context, id string, marks ...*protocol.Applied) (*workload.Pod, *workload.Container, error)
}

// Reacher is a Lister that can say whether anybody answers it.
type Reacher interface {
	Reach(ctx context.Context) error
}

// relistLater searches for containers that were created while Synchronize ran: the runtime may leave those out.
func (g *Engine) relistLater() {
	life := g.ctx()
	for _, d := range relistDelays {
		time.AfterFunc(d, func() {
			if life.Err() == nil {
				g.jobs.add(g.relist)
			}
		})
	}
}

// relist walks the cgroups of the known pods for containers that are not known, and takes them in.
func (g *Engine) relist(ctx context.Context) {
	if r, ok := g.o.List.(Reacher); ok {
		if err := r.Reach(ctx); err != nil {
			g.problem("runtime", "relist", "containers that came while the runtime listed its own cannot be asked for: "+err.Error())
		}
	}
	found := 0
	for _, pod := range g.reg.podList() {
		for _, dir := range g.unknownIn(pod.p.Cgroup) {
			if ctx.Err() != nil {
				return
			}
			g.beat(&g.pulses.jobs) // each one asks the runtime
			if g.takeIn(ctx, dir) {
				found++
			}
		}
	}
	if found > 0 {
		g.log.Info("found containers that the runtime had not told", "count", found)
		g.reclaim()
		g.repairSoon()
		g.countUnmanaged(ctx)
	}
}

// unknownIn lists the container directories below a pod's cgroup that the registry does not have.
func (g *Engine) unknownIn(dir string) []string {
	if dir == "" || g.o.CgroupRoot == "" {
		return nil
	}
	dir = path.Join(g.o.CgroupRoot, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if id, ok := containerID(e.Name()); ok && !g.reg.known(id) {
			out = append(out, path.Join(dir, e.Name()))
		}
	}
	return out
}

// containerID reads the id out of a directory's name: "ID" or, CRI-O's, "crio-ID" with the cgroupfs driver, "cri-containerd-ID.scope"
// or "crio-ID.scope" with systemd's. "crio-conmon-ID" is a monitor's.
func containerID(name string) (string, bool) {
	if scope, ok := strings.CutSuffix(name, ".scope"); ok {
		if strings.HasPrefix(scope, "crio-conmon-") {
			return "", false
		}
		name = scope[strings.LastIndexByte(scope, '-')+1:]
	} else {
		name = strings.TrimPrefix(name, "crio-")
	}
	if len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
		return "", false
	}
	return name, true
}

// takeIn fetches the container of a directory over CRI. Without an endpoint it is only reported. What the runtime has told of it
// meanwhile is newer: one that has been started is known, and the directory of one that has been removed is gone.
func (g *Engine) takeIn(ctx context.Context, dir string) bool {
	id, _ := containerID(path.Base(dir))
	if g.o.List == nil {
		g.problem(id, "relist", "container was not told by the runtime, and there is no criEndpoint to ask")
		return false
	}
	pod, c, err := g.o.List.Container(ctx, id)
	if err != nil {
		g.problem(id, "relist", err.Error())
		return false
	}
	if c.State == workload.StateStopped || g.reg.known(id) {
		return false
	}
	newPod := false
	if _, ok := g.reg.pod(pod.ID); !ok {
		known := g.listedPod(pod)
		g.startPod(&known)
		newPod = g.reg.newPod(known)
		g.problems(pod, "", pod.Problems)
	}
	e := entry{c: c, sandbox: pod.ID, inSpec: c.Applied != nil, unmanaged: c.Applied == nil, plan: plan.Plan(nil)}
	g.startContainer(pod, &e)
	if _, first := g.enter(pod, e); !first {
		return false
	}
	if exists(dir) {
		return true // who removes it from now on finds it in the registry
	}
	g.Forget(id)
	if newPod {
		g.ForgetPod(pod.ID)
	}
	return false
}
