// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// A strategy file that is edited, half written, and then right again: the last good one holds in between.
func TestStrategyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "strategy.yaml")
	var got *strategy.Spec
	calls, refused := 0, 0
	f := &strategyFile{path: path, refused: func(string, error) { refused++ }, log: slog.New(slog.NewTextHandler(io.Discard, nil)), set: func(s *strategy.Spec, _ string) { got, calls = s, calls+1 }}
	f.look()
	put(t, path, "cpuBurstStrategy: {policy: auto}\n")
	f.look()
	if got == nil || calls != 1 {
		t.Fatalf("after creation: %v, %d calls", got, calls)
	}
	put(t, path, "cpuBurstStrategy: {polic")
	f.look()
	f.look()
	if calls != 1 || refused != 1 {
		t.Fatalf("half a file: %d calls, reported %d times", calls, refused)
	}
	put(t, path, "cpuBurstStrategy: {policy: cpuBurstOnly}\n")
	f.look()
	if calls != 2 || *got.CPUBurstStrategy.Policy != "cpuBurstOnly" {
		t.Fatalf("after repair: %d calls", calls)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.look()
	if got != nil || calls != 3 {
		t.Fatalf("after removal: %v, %d calls", got, calls)
	}
}

// What has changed between the start and the first look is taken in; what has not is not set anew, and neither is a file that was
// only touched.
func TestStrategyFileChangedAtTheStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		later string
		want  string // "" for no news
	}{
		"same":     {later: "cpuBurstStrategy: {policy: auto}\n"},
		"reworded": {later: "# by hand\ncpuBurstStrategy: {policy: \"auto\"}\n"},
		"changed":  {later: "cpuBurstStrategy: {policy: none}\n", want: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "strategy.yaml")
			put(t, path, "cpuBurstStrategy: {policy: auto}\n")
			read, err := ReadStrategy(path)
			if err != nil {
				t.Fatal(err)
			}
			put(t, path, tc.later)
			var got []string
			f := &strategyFile{
				path: path, holds: read, log: slog.New(slog.DiscardHandler), refused: func(_ string, err error) { t.Error(err) },
				set: func(s *strategy.Spec, _ string) { got = append(got, *s.CPUBurstStrategy.Policy) },
			}
			ctx, stop := context.WithCancel(t.Context())
			stop()
			if err := f.run(ctx); err != nil { // it looks before it waits
				t.Fatal(err)
			}
			if tc.want == "" && len(got) > 0 || tc.want != "" && !slices.Equal(got, []string{tc.want}) {
				t.Errorf("set: %q", got)
			}
			touched := time.Now().Add(time.Hour)
			if err := os.Chtimes(path, touched, touched); err != nil {
				t.Fatal(err)
			}
			was := len(got)
			if f.look(); len(got) != was {
				t.Error("a file that was touched is set anew")
			}
		})
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
