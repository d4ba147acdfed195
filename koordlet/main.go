// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koordlet is the node agent: it measures, decides every second how much best-effort work the node can bear, and
// keeps what was promised to the others true.
//
// It needs root and a container runtime that speaks CRI; kubelet and API server are used where they are. Configuration is
// one file, and without one every default holds; upstream's flags win over it. See docs/ for its loops.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
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

// koordlet is the program: small before fast, it shares the node with what it protects. One processor, because its work is
// one tick a second, and threads that do not interrupt each other.
func koordlet() *program.Program {
	return &program.Program{
		Version: run.Version{Program: setup.Program, Version: version, Commit: commit},
		Kinds:   "KoordletConfig, NodeSLO or both", Default: setup.DefaultConfig, Flags: flags(),
		MemoryLimit: 48 << 20, GCPercent: 50, Processors: 1, TimerSlack: time.Millisecond, Nice: -10,
		Load: load,
	}
}

// flags are upstream's, for who comes with its DaemonSet.
func flags() []program.Flag {
	var out []program.Flag
	for _, f := range config.KoordletFlags() {
		out = append(out, program.Flag{Name: f.Name, Help: f.Help, Bool: f.Bool})
	}
	return out
}

func load(path string, given map[string]string) (program.Loaded, error) {
	l, notes, err := setup.Load(path, given)
	return program.Loaded{
		Log: l.Config.Log, Path: l.Path, Strategy: l.Source,
		New: func(ctx context.Context, v run.Version, log *slog.Logger) (program.Daemon, error) {
			for _, note := range notes {
				log.Warn(note)
			}
			return setup.New(ctx, l, v.Version, v.String(), log)
		},
	}, err
}
