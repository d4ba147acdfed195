// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestTurnSees: each instant is the first of its kind, and a way's turn ends when its answer is there.
func TestTurnSees(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	begin := step{0, 4000}
	quotas := []step{{1 * ms, 4000}, {3 * ms, 4000}, {91 * ms, 4100}, {97 * ms, 3900}, {98 * ms, 3600}, {99 * ms, 760}, {101 * ms, 380}}
	for way, want := range map[string]turn{
		wayTriggers: {Held: 99 * ms, Reads: 6, Over: 99 * ms, Steps: []step{begin, quotas[2], quotas[3], quotas[4], quotas[5]}},
		wayTick:     {Reads: 5, Over: 98 * ms, Steps: []step{begin, quotas[2], quotas[3], quotas[4]}},
	} {
		want.Way, want.Less, want.Taken, want.Gap, want.Last = way, 97*ms, 98*ms, 88*ms, 1*ms
		got := turn{Way: way, Steps: []step{begin}}
		for i, s := range quotas {
			if got.done() {
				break
			}
			if got.sees(s.At, s.Quota); i == len(quotas)-1 {
				t.Errorf("%s: the turn does not end", way)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(turn{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", way, diff)
		}
	}
}

// TestTurnFeels: 50 ms of stall were there at the earliest when the time since the reading before was stall from its begin on.
func TestTurnFeels(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		looks []step // stall in ms
		want  time.Duration
	}{
		"in the middle": {[]step{{10 * ms, 5}, {90 * ms, 45}, {100 * ms, 52}, {110 * ms, 62}}, 95 * ms},
		"at a reading":  {[]step{{40 * ms, 40}, {50 * ms, 50}}, 50 * ms},
		"at once":       {[]step{{60 * ms, 60}}, 50 * ms},
		"not enough":    {[]step{{60 * ms, 49}}, 0},
	} {
		var got turn
		for _, l := range c.looks {
			got.feels(l.At, time.Duration(l.Quota)*ms)
		}
		if got.Pressed != c.want {
			t.Errorf("%s: %s, want %s", name, got.Pressed, c.want)
		}
	}
}

// TestCalm: it begins anew when the quota moves, has no room for a load, or is not there.
func TestCalm(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	for name, c := range map[string]struct {
		quotas []int // one a second
		low    int   // 0 for no calm at the last of them
	}{
		"steady":    {[]int{4000, 3800, 4100, 4000}, 3800},
		"too short": {[]int{4000, 3800, 4100}, 0},
		"grows":     {[]int{2400, 3200, 4000, 4000, 4000}, 0},
		"has grown": {[]int{2400, 3200, 4000, 4000, 4000, 4000}, 4000},
		"no room":   {[]int{1900, 1950, 1900, 1900, 1900}, 0},
		"none":      {[]int{unlimited, unlimited, unlimited, unlimited, unlimited}, 0},
		"decided":   {[]int{unlimited, 4000, 4000, 4000, 4000}, 4000},
	} {
		at := calm{room: leastRoom, wobble: calmWobble}
		still := false
		for i, q := range c.quotas {
			still = at.see(begun.Add(time.Duration(i)*time.Second), q)
		}
		if still != (c.low != 0) || still && at.low != c.low {
			t.Errorf("%s: calm %t at %d, want %d", name, still, at.low, c.low)
		}
	}
}

// TestLookout reads the files as Linux 6.12 writes them.
func TestLookout(t *testing.T) {
	t.Parallel()
	class, pod := t.TempDir(), t.TempDir()
	write := func(dir, file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newLookout(class, pod); err == nil {
		t.Error("files that are not there are read")
	}
	write(class, "cpu.max", "76000 100000\n")
	write(pod, "cpu.pressure", "some avg10=1.02 avg60=0.20 avg300=0.00 total=51234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	l, err := newLookout(class, pod)
	if err != nil {
		t.Fatal(err)
	}
	if stalled, err := l.stalled(); err != nil || stalled != 51234*time.Microsecond {
		t.Errorf("stalled for %s, %v", stalled, err)
	}
	if quota, err := l.quota.allowed(); err != nil || quota != 760 {
		t.Errorf("quota %d, %v", quota, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]int{"max 100000": unlimited, "2000 100000": 20, "150000 50000\n": 3000} {
		if got, err := milliCPUs(text); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "max", "12", "x 100000", "100 0"} {
		if got, err := milliCPUs(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

// TestTellReaction: one turn that was not answered misses the maximum and not the median, and a way that was not what it is called
// has no figures.
func TestTellReaction(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	fast := &turn{Way: wayTriggers, Less: 150 * ms, Taken: 150 * ms, Held: 150 * ms, Pressed: 100 * ms, Called: 140 * ms, Between: 1, Step: 0.004, Reads: 10}
	slow := &turn{Way: wayTick, Less: 600 * ms, Taken: 1200 * ms, Steps: []step{{0, 5000}, {600 * ms, 4700}}, Reads: 90}
	late, never := *fast, turn{Way: wayTriggers, Pressed: 100 * ms}
	late.Less, late.Taken, late.Held = 260*ms, 260*ms, 260*ms
	for name, c := range map[string]struct {
		turns turns
		want  string // verdicts of the judged figures
	}{
		"fast":  {turns{fast, slow, fast, slow, fast, slow}, "ok ok ok ok"},
		"late":  {turns{fast, slow, &late, slow, fast, slow}, "ok ok ok missed"},
		"never": {turns{fast, slow, &never, slow, fast, slow}, "ok missed ok missed"},
	} {
		r := newReport("x")
		if err := tellReaction(r, c.turns); err != nil {
			t.Fatal(err)
		}
		var verdicts []string
		for _, f := range r.figures {
			if f.goal != "" {
				verdicts = append(verdicts, f.verdict)
			}
		}
		if got := strings.Join(verdicts, " "); got != c.want {
			t.Errorf("%s: %s, want %s\n%s", name, got, c.want, r.table())
		}
		for _, want := range []string{" 4.0\n", " 8.0\n", "median 600 ms, p90 600 ms, max 600 ms (3)"} {
			if !strings.Contains(r.table(), want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, r.table())
			}
		}
		if want := "  6 tick alone stalled enough never, another trigger never, lower 600 ms, taken 1.20 s, held never; 90 reads"; !strings.Contains(r.raw.String(), want) {
			t.Errorf("%s: %q is missing in\n%s", name, want, r.raw.String())
		}
	}
	byTick, byTrigger := *fast, *slow
	byTick.Between, byTrigger.Between = 0, 1
	for name, ts := range map[string]turns{"held by ticks": {&byTick, slow}, "one held by ticks": {fast, slow, &byTick, slow}, "a trigger without triggers": {fast, &byTrigger}} {
		if err := tellReaction(newReport("x"), ts); err == nil {
			t.Errorf("%s: figures are told", name)
		}
	}
}
