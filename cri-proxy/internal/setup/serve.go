// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/listen"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
)

const (
	// patience is how long the first client waits for the runtime's list: without it a container that came before us is
	// not known. A runtime that is away must not keep the kubelet from seeing that it is.
	patience = 5 * time.Second
	// grace is what calls under way get at the end.
	grace = 2 * time.Second
)

// awaitList returns when clients may come; false at the end of ctx.
func awaitList(ctx context.Context, synced <-chan struct{}, log *slog.Logger) bool {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-synced:
	case <-wait.C:
		log.Warn("the runtime has not answered yet, calls are relayed without knowing its containers")
	}
	return true
}

// modeOptions is what every mode is made of.
func modeOptions(cfg config.Proxy, version string, h *host.Host, servers *hookServers, log *slog.Logger) mode.Options {
	return mode.Options{Config: cfg, Version: version, Log: log, Metrics: h.Metrics, Engine: h.Engine, Hooks: servers.Registry}
}

// socket makes the socket that clients connect to, and its folder.
func socket(cfg *config.Proxy) (*net.UnixListener, error) {
	at := cfg.ListenPath()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	return listen.Unix(at)
}

// cgroupsOf are the cgroups as the host has found them.
func cgroupsOf(cfg config.Proxy, g *engine.Engine) (cgroup.FS, error) {
	at := cfg.Host
	roots := root.Roots{Cgroup: at.CgroupRoot, Proc: at.Proc, Sys: at.Sys, Resctrl: at.Resctrl, Dev: at.Dev}
	return cgroup.Open(roots, g.Views().Load().Kernel.Cgroup, cgroup.Options{})
}
