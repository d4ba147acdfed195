// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"os"
	"path"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Lister asks the runtime about one container that NRI has not told; adapt/cri.
type Lister interface {
	// Container reads a container and its sandbox.
	Container(ctx context.Context, id string) (*workload.Pod, *workload.Container, error)
}

// relistLater searches for containers that were created while Synchronize ran: the runtime may leave those out.
func (p *Plugin) relistLater() {
	life := p.ctx()
	for _, d := range relistDelays {
		time.AfterFunc(d, func() {
			if life.Err() == nil {
				p.jobs.add(p.relist)
			}
		})
	}
}

// relist walks the cgroups of the known pods for containers that are not known, and takes them in.
func (p *Plugin) relist(ctx context.Context) {
	found := 0
	for _, pod := range p.reg.podList() {
		for _, id := range p.unknownIn(pod.p.Cgroup) {
			if ctx.Err() != nil {
				return
			}
			if p.takeIn(ctx, id) {
				found++
			}
		}
	}
	if found > 0 {
		p.log.Info("found containers that the runtime had not told", "count", found)
		p.publishClaims()
		p.repairSoon()
	}
}

// unknownIn lists the ids of container directories below a pod's cgroup that the registry does not have.
func (p *Plugin) unknownIn(dir string) []string {
	if dir == "" || p.o.CgroupRoot == "" {
		return nil
	}
	entries, err := os.ReadDir(path.Join(p.o.CgroupRoot, dir))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if id, ok := containerID(e.Name()); ok && !p.reg.known(id) {
			out = append(out, id)
		}
	}
	return out
}

// containerID reads the id out of a directory's name: "ID" with the cgroupfs driver, "cri-containerd-ID.scope" or
// "crio-ID.scope" with systemd's.
func containerID(name string) (string, bool) {
	if scope, ok := strings.CutSuffix(name, ".scope"); ok {
		if strings.HasPrefix(scope, "crio-conmon-") {
			return "", false
		}
		name = scope[strings.LastIndexByte(scope, '-')+1:]
	}
	if len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
		return "", false
	}
	return name, true
}

// takeIn fetches one container over CRI. Without an endpoint it is only reported.
func (p *Plugin) takeIn(ctx context.Context, id string) bool {
	if p.o.List == nil {
		p.problem(id, "relist", "container was not told by the runtime, and there is no criEndpoint to ask")
		return false
	}
	pod, c, err := p.o.List.Container(ctx, id)
	if err != nil {
		p.problem(id, "relist", err.Error())
		return false
	}
	if c.State == workload.StateStopped || p.reg.known(id) {
		return false
	}
	if _, ok := p.reg.pod(pod.ID); !ok {
		p.reg.putPod(podEntry{p: pod})
		p.problems(pod, "", pod.Problems)
	}
	e := entry{c: c, sandbox: pod.ID, inSpec: c.Applied != nil, plan: plan.Plan(nil)}
	p.claimed(p.views.Load(), pod, &e)
	p.reg.putContainer(e)
	return true
}
