// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koordlet is the node agent: it measures, decides every second how much best-effort work the node can bear, and
// keeps what was promised to the others true.
//
// It needs root and a container runtime that speaks CRI; kubelet and API server are used where they are. Configuration is
// one file, and without one every default holds. See docs/ for its loops.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/koord-rt/koord-rt/daemon/program"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/koordlet/internal/setup"
)

// Filled by the linker: -ldflags "-X main.version=v0.1.0 -X main.commit=abc123".
var (
	version = "devel"
	commit  = ""
)

func main() { os.Exit(koordlet().Main()) }

// koordlet is the program: small before fast, it shares the node with what it protects.
func koordlet() *program.Program {
	return &program.Program{
		Version: run.Version{Program: setup.Program, Version: version, Commit: commit},
		Kinds:   "KoordletConfig, NodeSLO or both", Default: setup.DefaultConfig,
		MemoryLimit: 48 << 20, GCPercent: 50, Nice: -10,
		Load: load,
	}
}

func load(path string, _ map[string]string) (program.Loaded, error) {
	l, err := setup.Load(path)
	return program.Loaded{
		Log: l.Config.Log, Path: l.Path, Strategy: l.Source,
		New: func(ctx context.Context, v run.Version, log *slog.Logger) (program.Daemon, error) {
			return setup.New(ctx, l, v.Version, v.String(), log)
		},
	}, err
}
