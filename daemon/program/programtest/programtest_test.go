// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package programtest_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/program"
	"github.com/koord-rt/koord-rt/daemon/program/programtest"
	"github.com/koord-rt/koord-rt/daemon/run"
)

// sound is a program that passes: its daemon takes a lock and goes no further.
func sound() *program.Program {
	return &program.Program{
		Version: run.Version{Program: "sound", Version: "devel"},
		Kinds:   "NRIConfig, NodeSLO or both", Default: "/etc/koord-rt/sound.yaml",
		Load: func(path string, _ map[string]string) (program.Loaded, error) {
			data, err := os.ReadFile(path)
			if err != nil {
				return program.Loaded{}, err
			}
			c, _, err := config.LoadNRI(data)
			return program.Loaded{Log: c.Log, Path: path, New: func(context.Context, run.Version, *slog.Logger) (program.Daemon, error) {
				held, err := lock.Acquire(lock.Path(c.RunDir, "sound"))
				if err != nil {
					return nil, err
				}
				return nil, errors.Join(errors.New("only a test"), held.Release())
			}}, err
		},
	}
}

// faults are what can be wrong with a program, with the check that must find it.
var faults = map[string]struct {
	change func(*program.Program)
	found  string
}{
	"other name":    {func(p *program.Program) { p.Version.Version = "" }, "TestFaults/version"},
	"no default":    {func(p *program.Program) { p.Default = "" }, "TestFaults/help:_what_it_is"},
	"anything goes": {func(p *program.Program) { p.Load = loose(p.Load) }, "TestFaults/check_bad"},
	"no lock":       {func(p *program.Program) { p.Load = unlocked(p.Load) }, "second instance: only a test"},
	"early ledger":  {func(p *program.Program) { p.Load = hasty(p.Load) }, "the refused instance has made ledger"},
}

type load = func(string, map[string]string) (program.Loaded, error)

// loose takes every file.
func loose(l load) load {
	return func(path string, given map[string]string) (program.Loaded, error) {
		out, err := l(path, given)
		if errors.Is(err, os.ErrNotExist) {
			return out, err
		}
		return out, nil
	}
}

// unlocked starts beside another.
func unlocked(l load) load {
	return func(path string, given map[string]string) (program.Loaded, error) {
		out, err := l(path, given)
		out.New = func(context.Context, run.Version, *slog.Logger) (program.Daemon, error) {
			return nil, errors.New("only a test")
		}
		return out, err
	}
}

// hasty writes before it has the lock. The run directory is told by the lock's error.
func hasty(l load) load {
	return func(path string, given map[string]string) (program.Loaded, error) {
		out, err := l(path, given)
		start := out.New
		out.New = func(ctx context.Context, v run.Version, log *slog.Logger) (program.Daemon, error) {
			d, err := start(ctx, v, log)
			var held *lock.HeldError
			if errors.As(err, &held) {
				err = errors.Join(err, os.WriteFile(filepath.Join(filepath.Dir(held.Path), "ledger"), nil, 0o600))
			}
			return d, err
		}
		return out, err
	}
}

// fault names the fault that this process is to have.
const fault = "KOORDRT_TEST_FAULT"

func TestSound(t *testing.T) {
	programtest.CommandLine(t, sound(), "NRIConfig", nil)
	programtest.SecondInstance(t, sound(), "NRIConfig", "sound")
}

// Each fault is found: the test runs itself in a process that has it, and that process must fail.
func TestFaults(t *testing.T) {
	if f, ok := faults[os.Getenv(fault)]; ok {
		p := sound()
		f.change(p)
		programtest.CommandLine(t, p, "NRIConfig", nil)
		programtest.SecondInstance(t, p, "NRIConfig", "sound")
		return
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFaults$")
			cmd.Env = append(os.Environ(), fault+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), f.found) {
				t.Errorf("%v, want %q in\n%s", err, f.found, out)
			}
		})
	}
}
