// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// asProgram in the environment makes the test binary the program itself.
const asProgram = "KOORD_RT_TEST_AS_PARTS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs it with an empty cache in which runc is given.
func program(t *testing.T, args ...string) (code int, out, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "KOORD_RT_CACHE="+t.TempDir(), "KOORD_RT_PARTS=runc=/given/runc")
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

func TestProgram(t *testing.T) {
	t.Parallel()
	code, out, _ := program(t)
	want := append([]string{groupTest, groupVM, groupAll, partDocker}, parts.Names()...)
	if diff := cmp.Diff(want, strings.Fields(out)); code != 0 || diff != "" {
		t.Errorf("without arguments: %d\n%s", code, diff)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		out  string
		says []string
		not  string
	}{
		"a part that is there":   {[]string{"runc"}, 0, "runc /given/runc\n", nil, "unknown"},
		"unknown":                {[]string{"none-a", "runc"}, 1, "", []string{`parts: part "none-a" is unknown`}, "none-b"},
		"the first error ends":   {[]string{"none-a", "none-b"}, 1, "", []string{"none-a"}, "none-b"},
		"fetching goes on":       {[]string{"-fetch", "none-a", "none-b"}, 1, "", []string{"none-a", "none-b"}, "none-c"},
		"fetched and not built":  {[]string{"-fetch", "runc"}, 0, "", nil, "unknown"},
		"while its parent lives": {[]string{"-while", strconv.Itoa(os.Getpid()), "runc"}, 0, "runc /given/runc\n", nil, "unknown"},
	} {
		code, out, stderr := program(t, c.args...)
		if code != c.code || out != c.out || strings.Contains(stderr, c.not) {
			t.Errorf("%s: %d, %q, %q", name, code, out, stderr)
		}
		for _, text := range c.says {
			if !strings.Contains(stderr, text) {
				t.Errorf("%s: %q does not say %q", name, stderr, text)
			}
		}
	}
}

// TestGroups: what make test wants is known, and "all" is all of it.
func TestGroups(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{"runc", "vm", "none"}, expand([]string{"runc", "vm", "none"})); diff != "" {
		t.Error(diff)
	}
	all := expand([]string{groupAll})
	for _, name := range append([]string{groupVM, partDocker}, parts.Names()...) {
		if !slices.Contains(all, name) {
			t.Errorf("all does not have %s", name)
		}
	}
	list := expand([]string{groupTest})
	for i, name := range list {
		if !slices.Contains(all, name) || name == groupVM || slices.Contains(list[:i], name) {
			t.Errorf("%s in %v", name, list)
		}
	}
	if len(list) < 10 {
		t.Errorf("make test wants %v only", list)
	}
}

// TestEndWith: it waits while the process lives, and stops when it is gone.
func TestEndWith(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go endWith(cmd.Process.Pid, stop)
		time.Sleep(time.Hour) // of the bubble
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("stopped while the process lived")
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("not stopped although the process is gone")
		}
	})
}
