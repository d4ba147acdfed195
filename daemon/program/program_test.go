// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package program_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/program"
	"github.com/koord-rt/koord-rt/daemon/program/programtest"
	"github.com/koord-rt/koord-rt/daemon/run"
)

// daemon is a function that runs.
type daemon func(ctx context.Context) error

func (d daemon) Run(ctx context.Context) error { return d(ctx) }

// fake is a program whose configuration is koord-nri's and whose daemon is given.
func fake(d daemon) *program.Program {
	return &program.Program{
		Version: run.Version{Program: "fake", Version: "devel", Commit: "abc"},
		Kinds:   "NRIConfig, NodeSLO or both", Default: "/etc/koord-rt/fake.yaml",
		Flags: []program.Flag{{Name: "mode", Default: "slow", Help: "how it works"}, {Name: "quick", Help: "hurry", Bool: true}},
		Load: func(path string, _ map[string]string) (program.Loaded, error) {
			l := program.Loaded{Log: config.Default().Log, Path: path}
			if path != "" {
				data, err := os.ReadFile(path)
				if err != nil {
					return l, err
				}
				if _, _, err := config.LoadNRI(data); err != nil {
					return l, err
				}
			}
			l.New = func(context.Context, run.Version, *slog.Logger) (program.Daemon, error) { return d, nil }
			return l, nil
		},
	}
}

// start runs a program without arguments but these.
func start(ctx context.Context, p *program.Program, args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = p.Start(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	p := fake(func(context.Context) error { return errors.New("was started") })
	programtest.CommandLine(t, p, "NRIConfig", map[string]programtest.Case{
		"own flag": {Args: []string{"--help"}, Err: `how it works (default "slow")`},
	})
}

// A flag is given when it stands on the command line, with its default's value too; the others leave the file alone.
func TestGivenFlags(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want map[string]string
	}{
		"none":    {nil, map[string]string{}},
		"other":   {[]string{"--mode=fast"}, map[string]string{"mode": "fast"}},
		"default": {[]string{"--mode", "slow", "--check-config"}, map[string]string{"mode": "slow"}},
		"empty":   {[]string{"-mode="}, map[string]string{"mode": ""}},
		"alone":   {[]string{"--quick", "--mode=fast"}, map[string]string{"quick": "true", "mode": "fast"}},
		"off":     {[]string{"-quick=false"}, map[string]string{"quick": "false"}},
	} {
		p := fake(func(context.Context) error { return nil })
		load, asked := p.Load, map[string]string(nil)
		p.Load = func(path string, given map[string]string) (program.Loaded, error) {
			asked = given
			return load(path, given)
		}
		if code, _, errs := start(t.Context(), p, c.args...); code != 0 || asked == nil || !maps.Equal(asked, c.want) {
			t.Errorf("%s: code %d, given %v, want %v\n%s", name, code, asked, c.want, errs)
		}
	}
}

func TestDescription(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]program.Loaded{
		"defaults, strategy: none (every feature off)":    {},
		"/etc/a.yaml, strategy: none (every feature off)": {Path: "/etc/a.yaml"},
		"defaults, strategy: /etc/s.yaml":                 {Strategy: "/etc/s.yaml"},
		"/etc/a.yaml, strategy: /etc/a.yaml":              {Path: "/etc/a.yaml", Strategy: "/etc/a.yaml"},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The daemon gets the context and the version; its end and its start are told, and the exit code says how it went.
func TestRun(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad luck")
	for name, c := range map[string]struct {
		change func(*program.Loaded)
		run    daemon
		code   int
		// log are parts in their order; not must not stand there.
		log []string
		not string
	}{
		"until the end": {nil, func(ctx context.Context) error { <-ctx.Done(); return nil }, 0, []string{
			"msg=started", `version="fake devel (abc, go`, `config="defaults, strategy: none (every feature off)"`, "msg=ended",
		}, "ERROR"},
		"with an error": {nil, func(context.Context) error { return bad }, 1, []string{"msg=started", "level=ERROR", "msg=ended", "bad luck"}, "panic"},
		"not made": {func(l *program.Loaded) {
			l.New = func(context.Context, run.Version, *slog.Logger) (program.Daemon, error) { return nil, bad }
		}, nil, 1, []string{"level=ERROR", `msg="cannot start"`, "bad luck"}, "started"},
		"log level": {func(l *program.Loaded) { l.Log.Level = "error" }, func(context.Context) error { return bad }, 1, []string{"bad luck"}, "started"},
		"log format": {func(l *program.Loaded) { l.Log.Format = "json" }, func(context.Context) error { return nil }, 0,
			[]string{`"msg":"started"`, `"msg":"ended"`}, "msg="},
		"no such log": {func(l *program.Loaded) { l.Log.Format = "xml" }, nil, 1, []string{`fake: set up log: format "xml"`}, "started"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(c.run)
			load := p.Load
			p.Load = func(path string, given map[string]string) (program.Loaded, error) {
				l, err := load(path, given)
				if c.change != nil {
					c.change(&l)
				}
				return l, err
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			code, out, log := start(ctx, p)
			if code != c.code || out != "" || strings.Contains(log, c.not) {
				t.Errorf("code %d, want %d\nstdout: %s\nlog: %s", code, c.code, out, log)
			}
			rest := log
			for _, part := range c.log {
				_, behind, found := strings.Cut(rest, part)
				if !found {
					t.Errorf("the log does not say %q at its place:\n%s", part, log)
				}
				rest = behind
			}
		})
	}
}

// Memory is limited before the daemon is made, and the user's own limits win. The limits are the process's, so this test
// runs alone.
func TestMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("GOGC", "")
	limit, gogc := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(gogc)
	}()
	const want = int64(3 << 30)
	var found int64
	var percent int
	p := fake(func(context.Context) error {
		found, percent = debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
		return nil
	})
	p.MemoryLimit, p.GCPercent = want, 77
	if code, _, log := start(t.Context(), p); code != 0 || found != want || percent != 77 {
		t.Errorf("code %d, limit %d, GC at %d %%; want %d and 77\n%s", code, found, percent, want, log)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	t.Setenv("GOGC", "50")
	p.MemoryLimit, p.GCPercent = want-1, 78
	if code, _, log := start(t.Context(), p); code != 0 || found != want || percent != 100 {
		t.Errorf("with limits of the user: code %d, limit %d, GC at %d %%\n%s", code, found, percent, log)
	}
}

// The priority is taken, or the log says that it could not be. It is the process's, so this test runs alone.
func TestPriority(t *testing.T) {
	nice := func() int {
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		return 20 - raw // the system call's, getpriority(2)
	}
	p := fake(func(context.Context) error { return nil })
	before := nice()
	if code, _, log := start(t.Context(), p); code != 0 || nice() != before || strings.Contains(log, "priority") {
		t.Errorf("without a priority: code %d, nice %d, was %d\n%s", code, nice(), before, log)
	}
	p.Nice = 19 // lower, which everybody may
	if before == p.Nice {
		p.Nice = 18
	}
	code, _, log := start(t.Context(), p)
	if refused := strings.Contains(log, `msg="cannot take priority"`); code != 0 || refused == (nice() == p.Nice) {
		t.Errorf("code %d, nice %d, want %d\n%s", code, nice(), p.Nice, log)
	}
}
