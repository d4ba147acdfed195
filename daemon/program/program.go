// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package program is the frame around a daemon: command line, configuration, log, memory, priority, signals, exit code.
//
// Input is a Program, which says what is a program's own, with arguments and streams; output is an exit code, after the
// daemon has ended. main.go composes a Program and nothing else. It imports api/config, daemon/logs, daemon/run and the
// standard library only.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/daemon/run"
)

// Exit codes of Start.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Program is what one daemon has of its own. All fields are required unless a comment says otherwise.
type Program struct {
	// Version is the answer to --version; its Program begins every message.
	Version run.Version
	// Kinds are the documents of the configuration file ("NRIConfig, NodeSLO or both"), Default is its path when none is
	// given; both are for --help.
	Kinds, Default string
	// Flags are those beside --config, --version and --check-config; may be nil.
	Flags []Flag
	// MemoryLimit is the soft limit in bytes and GCPercent GOGC, see run.TuneMemory; 0 leaves one as it is.
	MemoryLimit int64
	GCPercent   int
	// Processors bounds those that Go code uses at a time, see run.TuneProcessors; 0 leaves it as it is.
	Processors int
	// TimerSlack is how much longer than asked for a thread may sleep, see run.TuneTimers; 0 leaves it as it is.
	TimerSlack time.Duration
	// Nice is the process's priority, see run.Prioritise; 0 leaves it as it is.
	Nice int
	// Load reads the configuration at path, where the program looks by itself when path is empty. given are the values of
	// those Flags that are on the command line, by name; they win over the file.
	Load func(path string, given map[string]string) (Loaded, error)
}

// Flag is a flag of a program's own, a text.
type Flag struct {
	Name, Default, Help string
	// Bool may stand without a value, which is true then.
	Bool bool
}

// Loaded is a configuration that has been checked.
type Loaded struct {
	Log config.Log
	// Path is the configuration file's, empty when defaults hold; Strategy says where the strategy stands, empty for
	// none.
	Path, Strategy string
	// New makes the daemon ready to run. On error it has given everything back.
	New func(ctx context.Context, v run.Version, log *slog.Logger) (Daemon, error)
}

// Daemon is what runs.
type Daemon interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
}

// String says where configuration and strategy come from.
func (l *Loaded) String() string {
	path, source := l.Path, l.Strategy
	if path == "" {
		path = "defaults"
	}
	if source == "" {
		source = "none (every feature off)"
	}
	return path + ", strategy: " + source
}

// Main is Start with this process's arguments and streams, until SIGINT or SIGTERM.
func (p *Program) Main() int {
	ctx, stop := run.Signals(context.Background())
	defer stop()
	return p.Start(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Start does what args ask and returns the exit code: 0, also for a daemon that ran until ctx ended; 1 when something
// failed; 2 for a command line that cannot be understood.
func (p *Program) Start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := p.parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case c.show:
		fmt.Fprintln(stdout, p.Version)
		return exitOK
	}
	loaded, err := p.Load(c.path, c.given)
	if err != nil {
		p.complain(stderr, err)
		return exitFailed
	}
	if c.check {
		fmt.Fprintln(stdout, "configuration is valid:", &loaded)
		return exitOK
	}
	return p.serve(ctx, &loaded, stderr)
}

func (p *Program) complain(stderr io.Writer, err error) {
	fmt.Fprintf(stderr, "%s: %v\n", p.Version.Program, err)
}

// command is what the command line says.
type command struct {
	path        string
	show, check bool
	given       map[string]string
}

// parse has told on stderr what is wrong when it returns an error.
func (p *Program) parse(args []string, stderr io.Writer) (command, error) {
	c := command{given: map[string]string{}}
	flags := flag.NewFlagSet(p.Version.Program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.path, "config", "", "configuration file: "+p.Kinds+" (default "+p.Default+", which may be absent)")
	flags.BoolVar(&c.show, "version", false, "print the version and end")
	flags.BoolVar(&c.check, "check-config", false, "check the configuration and the strategy file, and end")
	own := map[string]bool{}
	for _, f := range p.Flags {
		if f.Bool {
			flags.BoolFunc(f.Name, f.Help, func(v string) error { c.given[f.Name] = v; return nil })
			continue
		}
		flags.String(f.Name, f.Default, f.Help)
		own[f.Name] = true
	}
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unexpected argument %q", flags.Arg(0))
		p.complain(stderr, err)
		return c, err
	}
	flags.Visit(func(f *flag.Flag) {
		if own[f.Name] {
			c.given[f.Name] = f.Value.String()
		}
	})
	return c, nil
}

// serve runs the daemon.
func (p *Program) serve(ctx context.Context, loaded *Loaded, stderr io.Writer) int {
	log, err := logs.New(logs.Options{Level: loaded.Log.Level, Format: loaded.Log.Format, Out: stderr})
	if err != nil {
		p.complain(stderr, err)
		return exitFailed
	}
	run.TuneMemory(os.Getenv, p.MemoryLimit, p.GCPercent)
	run.TuneProcessors(os.Getenv, p.Processors)
	if err := run.TuneTimers(p.TimerSlack); err != nil {
		log.Warn("cannot calm timers", "err", err)
	}
	if p.Nice != 0 {
		if err := run.Prioritise(p.Nice); err != nil {
			log.Warn("cannot take priority", "err", err)
		}
	}
	d, err := loaded.New(ctx, p.Version, log)
	if err != nil {
		log.Error("cannot start", "err", err)
		return exitFailed
	}
	log.Info("started", "version", p.Version.String(), "config", loaded.String())
	if err := d.Run(ctx); err != nil {
		log.Error("ended", "err", err)
		return exitFailed
	}
	log.Info("ended")
	return exitOK
}
