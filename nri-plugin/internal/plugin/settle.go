// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"sync"
)

// unsettled are the pods whose sums may have changed. A pod that is asked for ten times before its turn is settled once.
type unsettled struct {
	mu   sync.Mutex
	pods map[string]struct{} // by sandbox id
}

// settleSoon brings a pod and its ancestors to what its containers need, in the background.
func (p *Plugin) settleSoon(sandbox string) {
	u := &p.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pods == nil {
		u.pods = map[string]struct{}{}
		p.jobs.add(p.settle)
	}
	u.pods[sandbox] = struct{}{}
}

// settle works off what is unsettled.
func (p *Plugin) settle(ctx context.Context) {
	u := &p.unsettled
	u.mu.Lock()
	pods := u.pods
	u.pods = nil
	u.mu.Unlock()
	v := p.views.Load()
	for sandbox := range pods {
		pod, ok := p.reg.pod(sandbox)
		if !ok || pod.stopped {
			continue
		}
		old := pod.plan
		p.apply(ctx, v, withUndo(v, old, p.decidePod(v, sandbox, pod.p), pod.p.Base))
	}
	p.settleAncestors(ctx, v)
}
