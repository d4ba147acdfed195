// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const (
	passed = "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\nok  \tx\t0.1s\n"
	failed = "=== RUN   TestB\n    b_test.go:7: no such group\n--- FAIL: TestB (1.00s)\nFAIL\nFAIL\tx\t1.0s\n"
	told   = "\nWhat failed, and what each test said last:\n  TestB: b_test.go:7: no such group\n"
)

func TestRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, more string }{
		"nothing failed": {passed, ""},
		"one failed":     {passed + failed, told},
		"failed first":   {failed + passed, told},
		"nothing":        {"", ""},
		"no last line":   {passed + "a dump \x00\xff without an end", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := run(strings.NewReader(c.in), &out); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != c.in+c.more {
				t.Errorf("passed on %q, want %q", got, c.in+c.more)
			}
		})
	}
}

// TestAsItComes: a lane can run for an hour, and who looks at it wants to see the line of now.
func TestAsItComes(t *testing.T) {
	t.Parallel()
	in, feed := io.Pipe()
	show, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(in, out)
		out.Close()
	}()
	go io.WriteString(feed, failed)
	got := make([]byte, len(failed))
	if _, err := io.ReadFull(show, got); err != nil || string(got) != failed {
		t.Fatalf("%q, %v", got, err)
	}
	go feed.Close()
	rest, err := io.ReadAll(show)
	if err != nil || string(rest) != told {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestBrokenOff: the error is returned, and what failed before is told all the same.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	var out bytes.Buffer
	if err := run(io.MultiReader(strings.NewReader(failed), iotest.ErrReader(cut)), &out); !errors.Is(err, cut) {
		t.Errorf("error %v", err)
	}
	if got := out.String(); got != failed+told {
		t.Errorf("%q", got)
	}
	if err := run(strings.NewReader(passed), full{}); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
}

var errFull = errors.New("disk full")

// full takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
