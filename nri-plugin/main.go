// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koord-nri is an NRI plugin that gives containers their colocation guarantees before their first instruction.
//
// It needs a container runtime with NRI (containerd ≥ 1.7.27, CRI-O ≥ 1.32) and root; configuration is one file, and
// without one every default holds. See docs/ for what it sets.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/koord-rt/koord-rt/daemon/program"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/nri-plugin/internal/setup"
)

// Filled by the linker: -ldflags "-X main.version=v0.1.0 -X main.commit=abc123".
var (
	version = "devel"
	commit  = ""
)

func main() { os.Exit(koordNRI().Main()) }

// koordNRI is the program: a soft limit well above what a thousand containers need, a collector that prefers small to
// fast, one processor, because a runtime tells one event at a time, and threads that do not interrupt each other.
func koordNRI() *program.Program {
	return &program.Program{
		Version: run.Version{Program: "koord-nri", Version: version, Commit: commit},
		Kinds:   "NRIConfig, NodeSLO or both", Default: setup.DefaultConfig,
		MemoryLimit: 48 << 20, GCPercent: 100, Processors: 1, TimerSlack: setup.TimerSlack, Nice: -10,
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
