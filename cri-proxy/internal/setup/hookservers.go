// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/engine"
)

// problemHook is the key of the problem metric for hook servers.
const problemHook = "hook server"

// hookServers is the registry with what it has to tell to log, metric and status.
type hookServers struct {
	*hooks.Registry
	engine *engine.Engine
	log    *slog.Logger
}

func newHookServers(cfg config.ProxyHooks, g *engine.Engine, log *slog.Logger) *hookServers {
	h := &hookServers{engine: g, log: log}
	h.Registry = hooks.New(hooks.Options{Config: cfg, Observe: h.observe})
	return h
}

// run follows the directory until ctx ends.
func (h *hookServers) run(ctx context.Context) error { return h.Run(ctx, h.registered) }

// observe reports calls that failed, and servers that are left alone for it.
func (h *hookServers) observe(c hooks.Call) {
	where := problemHook + " " + c.Server
	if c.Err != nil {
		h.engine.Trouble(where, c.Hook.String(), c.Err)
	}
	switch {
	case c.Pause > 0:
		h.engine.Problem(where, problemHook, fmt.Sprintf("it does not answer in time and is not called for %v", c.Pause))
	case c.Back:
		h.log.Info("hook server answers again", "server", c.Server)
	}
}

// registered tells of hook servers that come and go, and of files that cannot be used.
func (h *hookServers) registered(s hooks.Snapshot) {
	names, policies := make([]string, 0, len(s.Servers)), make([]hooks.Policy, 0, len(s.Servers))
	for i := range s.Servers {
		names, policies = append(names, s.Servers[i].Name), append(policies, s.Servers[i].Policy)
	}
	h.log.Info("hook servers", "registered", names, "policies", policies, "problems", len(s.Problems))
	for _, p := range s.Problems {
		h.engine.Problem(p.File, problemHook, p.Reason)
	}
}
