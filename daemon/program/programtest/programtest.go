// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package programtest checks the command line and the start of a daemon, so that every daemon of ours answers alike.
//
// Input is a Program as its main composes it; output are subtests. It is imported by tests of mains and of daemon/program
// only, and imports daemon/lock, daemon/program and the standard library.
package programtest

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/program"
)

// Case is a command line with what is expected of it: parts of both outputs, empty for none.
type Case struct {
	Args     []string
	Code     int
	Out, Err string
}

// CommandLine runs what holds for every daemon whose configuration is a document of kind, and the program's own cases by
// name. Nothing is started: no case of it may lead so far. GOOD in an argument or an output is the path of a valid
// configuration without a strategy.
func CommandLine(t *testing.T, p *program.Program, kind string, own map[string]Case) {
	t.Helper()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	text := "apiVersion: koord-rt.dev/v1alpha1\nkind: " + kind + "\nstrategyFile: " + good + ".none\n"
	for path, text := range map[string]string{good: text, bad: text + "runDirr: /x\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := p.Version.Program
	cases := map[string]Case{
		"version":          {[]string{"--version"}, 0, name + " devel (", ""},
		"version first":    {[]string{"--version", "--config", bad}, 0, name + " devel (", ""},
		"check good":       {[]string{"--check-config", "--config", good}, 0, "valid: " + good + ", strategy: none", ""},
		"check bad":        {[]string{"--check-config", "--config", bad}, 1, "", name + ": "},
		"check names it":   {[]string{"--check-config", "--config", bad}, 1, "", "runDirr"},
		"check absent":     {[]string{"--check-config", "--config", bad + ".none"}, 1, "", "no such file"},
		"start with bad":   {[]string{"--config", bad}, 1, "", "runDirr"},
		"argument":         {[]string{"start"}, 2, "", name + `: unexpected argument "start"`},
		"argument behind":  {[]string{"--version", "now"}, 2, "", `unexpected argument "now"`},
		"unknown flag":     {[]string{"--confg", good}, 2, "", "confg"},
		"help":             {[]string{"--help"}, 0, "", "-check-config"},
		"help: what it is": {[]string{"--help"}, 0, "", "configuration file: " + kind + ", NodeSLO or both (default /etc/koord-rt/"},
	}
	for what, c := range own {
		if _, twice := cases[what]; twice {
			t.Fatalf("case %q stands for every program", what)
		}
		cases[what] = c
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			args := make([]string, len(c.Args))
			for i, a := range c.Args {
				args[i] = strings.ReplaceAll(a, "GOOD", good)
			}
			var stdout, stderr strings.Builder
			code := p.Start(t.Context(), args, &stdout, &stderr)
			if code != c.Code || !says(stdout.String(), strings.ReplaceAll(c.Out, "GOOD", good)) || !says(stderr.String(), c.Err) {
				t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout.String(), stderr.String())
			}
		})
	}
}

// SecondInstance checks that a program of which one runs is refused before it touches anything, and names the first: kind
// is that of its configuration, writer the name of its lock.
func SecondInstance(t *testing.T, p *program.Program, kind, writer string) {
	t.Helper()
	dir := t.TempDir()
	held, err := lock.Acquire(lock.Path(dir, writer))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: koord-rt.dev/v1alpha1\nkind: " + kind + "\nrunDir: " + dir + "\nstateDir: " + dir + "\nstrategyFile: " + path + ".none\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := p.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var other *lock.HeldError
	if _, err := loaded.New(t.Context(), p.Version, slog.New(slog.DiscardHandler)); !errors.As(err, &other) || other.PID != os.Getpid() {
		t.Errorf("second instance: %v", err)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != writer+".lock" {
			t.Errorf("the refused instance has made %s", e.Name())
		}
	}
}

// says reports whether the text has the part, and has nothing where the part is empty.
func says(text, part string) bool {
	return strings.Contains(text, part) && (text == "") == (part == "")
}
