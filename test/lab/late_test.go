// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Words that nobody logs any more would excuse nothing, and tests would fail on a starved machine only.
func TestLateWordsAreLogged(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, words := range lateWords {
		if !strings.Contains(source.String(), words+`"`) {
			t.Errorf("the engine does not log %q", words)
		}
	}
}

func TestLateNamesPods(t *testing.T) {
	t.Parallel()
	log := `time=x level=WARN msg="decision is late" subject=default/web/app deadline=1s
time=x level=INFO msg=synchronized subject=default/other pods=3
time=x level=WARN msg=problem where=lab/db what=pod reason="the pod's cgroup is still being written at start" suppressed=0
time=x level=WARN msg=problem where=default/pg/main what=cpuset reason="the claimed CPUs are still being freed at start" suppressed=0
`
	if got, want := Late(log), []string{"default/web", "lab/db", "default/pg"}; !slices.Equal(got, want) {
		t.Errorf("late were %q, want %q", got, want)
	}
}

// An excuse is the late pod's alone, a part of a test has a few, the whole one in ten, and nothing excuses all that was looked at.
func TestExcuses(t *testing.T) {
	t.Parallel()
	late := []string{"default/web"}
	err := errors.New("a value does not stand")
	whole := NewExcuses()
	if part := whole.Part(); part.Take(t, late, err, "default/other") || part.Take(t, nil, err, "default/web") {
		t.Error("a value is excused of whom nobody has called late")
	}
	part := whole.Part()
	for i := range MostExcused {
		if !part.Take(t, late, err, "default/other", "default/web") {
			t.Errorf("excuse %d is refused", i+1)
		}
	}
	if part.Take(t, late, err, "default/web") {
		t.Errorf("more than %d values are excused", MostExcused)
	}
	for range (MostExcused + 1) * excusedPart {
		part.Look()
	}
	if !part.Take(t, late, err, "default/web") || part.Take(t, late, err, "default/web") {
		t.Errorf("of %d looks not %d are excused", (MostExcused+1)*excusedPart, MostExcused+1)
	}
	for _, c := range []struct {
		looks, taken int
		good         bool
	}{{0, 0, true}, {9, 0, true}, {1, 1, false}, {2, 1, true}, {19, 2, false}, {20, 2, true}, {3, 3, false}} {
		e := NewExcuses()
		for range c.looks {
			e.Look()
		}
		for range c.taken {
			e.Part().Take(t, late, err, "default/web")
		}
		if err := e.Err(); (err == nil) != c.good {
			t.Errorf("%d of %d looks excused: %v", c.taken, c.looks, err)
		}
	}
}
