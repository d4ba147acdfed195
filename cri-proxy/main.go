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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/setup"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/daemon/run"
)

// Filled by the linker: -ldflags "-X main.version=v0.1.0 -X main.commit=abc123".
var (
	version = "devel"
	commit  = ""
)

const name = "koord-runtime-proxy"

// Memory: a soft limit well above what a node needs, and a collector that prefers small to fast.
const (
	memoryLimit = 64 << 20
	gcPercent   = 100
)

// nice of the process, see run.Prioritise: every call of the kubelet goes through it.
const nice = -10

func main() {
	ctx, stop := run.Signals(context.Background())
	defer stop()
	os.Exit(start(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is what the command line says.
type command struct {
	path        string
	show, check bool
	// given are the flags that override the file.
	given map[string]string
}

func parse(args []string, stderr io.Writer) (command, error) {
	var c command
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.path, "config", "", "configuration file: ProxyConfig, NodeSLO or both (default "+setup.DefaultConfig+", which may be absent)")
	flags.BoolVar(&c.show, "version", false, "print the version and end")
	flags.BoolVar(&c.check, "check-config", false, "check the configuration and the strategy file, and end")
	defaults := config.DefaultProxy()
	over := map[string]bool{}
	for _, f := range defaults.Flags() {
		flags.StringVar(f.Value, f.Name, *f.Value, f.Help)
		over[f.Name] = true
	}
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	c.given = map[string]string{}
	flags.Visit(func(f *flag.Flag) {
		if over[f.Name] {
			c.given[f.Name] = f.Value.String()
		}
	})
	return c, nil
}

// start is main with its surroundings as arguments; the result is the exit code.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, name+":", err)
		return 2
	}
	program := run.Version{Program: name, Version: version, Commit: commit}
	if c.show {
		fmt.Fprintln(stdout, program)
		return 0
	}
	loaded, err := setup.Load(c.path, c.given)
	if err != nil {
		fmt.Fprintln(stderr, name+":", err)
		return 1
	}
	if c.check {
		fmt.Fprintln(stdout, "configuration is valid:", describe(loaded))
		return 0
	}
	return serve(ctx, loaded, program, stderr)
}

func serve(ctx context.Context, loaded setup.Loaded, program run.Version, stderr io.Writer) int {
	log, err := logs.New(logs.Options{Level: loaded.Config.Log.Level, Format: loaded.Config.Log.Format, Out: stderr})
	if err != nil {
		fmt.Fprintln(stderr, name+":", err)
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
