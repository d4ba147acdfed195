// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"context"
	"net/http"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// createPod asks the hook servers and refuses a pod whose guarantees this node cannot give. The pod is taken in when its
// sandbox runs.
func (p *Proxy) createPod(ctx context.Context, c *docker.Call) ([]byte, error) {
	answers, err := p.Servers.Pod(ctx, hook.PreRunPodSandbox, c.Pod, statedOf(c.Create.Labels, c.Create.CgroupParent()))
	if err != nil {
		return nil, err
	}
	pod, body := c.Pod, []byte(nil)
	if change, ok := podChange(answers); ok {
		if body, err = c.Create.Edit(change); err != nil {
			p.engine.Problem(c.Pod.FullName(), "docker", err.Error())
			body = nil
		} else if next, err := adapt.ParseCreate(body); err == nil {
			pod = next.Pod()
		}
	}
	return body, p.engine.Guarded(metrics.EventRunPodSandbox, pod.FullName(), func(context.Context) error { return p.engine.Refuses(pod) })
}

// startedPod takes the pod in: its cgroup exists from now on. Its first container comes after this.
func (p *Proxy) startedPod(c *docker.Call, o docker.Outcome) {
	if _, known := p.engine.KnownPod(c.ID); known && o.Status == http.StatusNotModified {
		return // it ran already, and we know
	}
	err := p.engine.Guarded(metrics.EventRunPodSandbox, c.Pod.FullName(), func(ctx context.Context) error {
		return p.engine.RunPod(ctx, sandbox(p.withBase(c.Pod)))
	})
	if err != nil {
		p.engine.Trouble(c.Pod.FullName(), "pod", err)
	}
}

// stoppedPod ends a pod whose sandbox has ended.
func (p *Proxy) stoppedPod(ctx context.Context, c *docker.Call) {
	if runsOn(c) {
		return
	}
	p.engine.StopPod(c.ID)
	p.Servers.TellPod(ctx, hook.PostStopPodSandbox, c.Pod)
}
