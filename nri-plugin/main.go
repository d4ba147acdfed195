// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koord-nri is an NRI plugin that gives containers their colocation guarantees before their first instruction.
//
// It needs a container runtime with NRI (containerd ≥ 1.7.27, CRI-O ≥ 1.32) and root; configuration is one file, and
// without one every default holds. See docs/ for what it sets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/nri-plugin/internal/setup"
)

// Filled by the linker: -ldflags "-X main.version=v0.1.0 -X main.commit=abc123".
var (
	version = "devel"
	commit  = ""
)

// Memory: a soft limit well above what a thousand containers need, and a collector that prefers small to fast.
const (
	memoryLimit = 48 << 20
	gcPercent   = 100
)

// nice of the process, see run.Prioritise.
const nice = -10

func main() {
	ctx, stop := run.Signals(context.Background())
	defer stop()
	os.Exit(start(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// start is main with its surroundings as arguments; the result is the exit code.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("koord-nri", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "", "configuration file: NRIConfig, NodeSLO or both (default "+setup.DefaultConfig+", which may be absent)")
	show := flags.Bool("version", false, "print the version and end")
	check := flags.Bool("check-config", false, "check the configuration and the strategy file, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	program := run.Version{Program: "koord-nri", Version: version, Commit: commit}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "koord-nri: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	if *show {
		fmt.Fprintln(stdout, program)
		return 0
	}
	loaded, err := setup.Load(*path)
	if err != nil {
		fmt.Fprintln(stderr, "koord-nri:", err)
		return 1
	}
	if *check {
		fmt.Fprintln(stdout, "configuration is valid:", describe(loaded))
		return 0
	}
	return serve(ctx, loaded, program, stderr)
}

func serve(ctx context.Context, loaded setup.Loaded, program run.Version, stderr io.Writer) int {
	log, err := logs.New(logs.Options{Level: loaded.Config.Log.Level, Format: loaded.Config.Log.Format, Out: stderr})
	if err != nil {
		fmt.Fprintln(stderr, "koord-nri:", err)
		return 1
	}
	run.TuneMemory(os.Getenv, memoryLimit, gcPercent)
	if err := run.Prioritise(nice); err != nil {
		log.Warn("cannot take priority", "err", err)
	}
	d, err := setup.New(ctx, loaded, program.Version, program.String(), log)
	if err != nil {
		log.Error("cannot start", "err", err)
		return 1
	}
	log.Info("started", "version", program.String(), "config", describe(loaded))
	if err := d.Run(ctx); err != nil {
		log.Error("ended", "err", err)
		return 1
	}
	log.Info("ended")
	return 0
}

// describe says where configuration and strategy come from.
func describe(l setup.Loaded) string {
	path, source := l.Path, l.Source
	if path == "" {
		path = "defaults"
	}
	if source == "" {
		source = "none (every feature off)"
	}
	return path + ", strategy: " + source
}
