// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koord-runtime-proxy stands between kubelet and container runtime and gives containers their colocation
// guarantees in the requests that make them, for runtimes without NRI.
//
// It speaks CRI, or with --backend-runtime-mode=Docker the Docker Engine API. Flags are those of Koordinator's proxy;
// everything else is in one configuration file, and without one every default holds.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/setup"
	"github.com/koord-rt/koord-rt/daemon/program"
	"github.com/koord-rt/koord-rt/daemon/run"
)

// Filled by the linker: -ldflags "-X main.version=v0.1.0 -X main.commit=abc123".
var (
	version = "devel"
	commit  = ""
)

func main() { os.Exit(koordRuntimeProxy().Main()) }

// koordRuntimeProxy is the program: a soft limit well above what a node needs, a collector that prefers small to fast, and
// priority, because every call of the kubelet goes through it.
func koordRuntimeProxy() *program.Program {
	return &program.Program{
		Version: run.Version{Program: "koord-runtime-proxy", Version: version, Commit: commit},
		Kinds:   "ProxyConfig, NodeSLO or both", Default: setup.DefaultConfig, Flags: flags(),
		MemoryLimit: 64 << 20, GCPercent: 100, Nice: -10,
		Load: load,
	}
}

// flags are those that override a setting of the file.
func flags() []program.Flag {
	defaults := config.DefaultProxy()
	var out []program.Flag
	for _, f := range defaults.Flags() {
		out = append(out, program.Flag{Name: f.Name, Default: *f.Value, Help: f.Help})
	}
	return out
}

func load(path string, given map[string]string) (program.Loaded, error) {
	l, err := setup.Load(path, given)
	return program.Loaded{
		Log: l.Config.Log, Path: l.Path, Strategy: l.Source,
		New: func(ctx context.Context, v run.Version, log *slog.Logger) (program.Daemon, error) {
			return setup.New(ctx, l, v.Version, v.String(), log)
		},
	}, err
}
