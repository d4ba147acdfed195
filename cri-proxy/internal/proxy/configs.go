// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"
	"sync"

	"github.com/koord-rt/koord-rt/adapt/cri"
)

// configs are what the kubelet has stated of the pods, for hook servers: labels and annotations whole, where the model
// keeps only what they ask for. They are kept while a hook server may want them.
type configs struct {
	mu   sync.Mutex
	byID map[string]cri.SandboxConfig
}

func (c *configs) put(id string, cfg *cri.SandboxConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[string]cri.SandboxConfig{}
	}
	c.byID[id] = *cfg
}

func (c *configs) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, id)
}

func (c *configs) get(id string) (cri.SandboxConfig, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cfg, ok := c.byID[id]
	return cfg, ok
}

// configOf is what the kubelet has stated of a pod; the runtime is asked for one that came before us.
func (p *Proxy) configOf(ctx context.Context, sandbox string) (*cri.SandboxConfig, error) {
	if cfg, ok := p.configs.get(sandbox); ok {
		return &cfg, nil
	}
	cfg, err := p.o.List.SandboxConfig(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	p.configs.put(sandbox, &cfg)
	return &cfg, nil
}
