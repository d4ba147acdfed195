// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// A state of an earlier life that comes late takes the place of what was decided since, which nobody has written, but for evictions: those
// have happened.
func TestStateThatComesLate(t *testing.T) {
	t.Parallel()
	later := make(chan decide.State, 1)
	a := New(Options{Later: later, Kept: decide.State{Evict: evict.State{MemoryAt: 500, MemoryOf: []string{"b"}}}})
	a.resume()
	if a.state.TierHeld || a.state.Evict.MemoryAt != 500 {
		t.Errorf("before it comes: %+v", a.state)
	}
	later <- decide.State{TierHeld: true, Evict: evict.State{MemoryAt: 100, MemoryOf: []string{"a"}, CPUAt: 200, CPUOf: []string{"a"}, OverAt: 50}}
	a.resume()
	got := a.state.Evict
	if !a.state.TierHeld || got.MemoryAt != 500 || !slices.Equal(got.MemoryOf, []string{"b"}) || got.CPUAt != 200 || !slices.Equal(got.CPUOf, []string{"a"}) || got.OverAt != 0 {
		t.Errorf("then: %+v", a.state)
	}
}

// What could not be kept is still to be kept, sooner than what was learned.
func TestKeepAgain(t *testing.T) {
	t.Parallel()
	full, kept := errors.New("no room"), 0
	a := New(Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Keep: func(decide.State) error { kept++; return full }})
	a.keep(unit.Minute)
	full = nil
	a.keepNowAndThen(unit.Minute + keepChanged)
	a.keepNowAndThen(unit.Minute + 2*keepChanged)
	if kept != 2 {
		t.Errorf("tried %d times, want once again", kept)
	}
}

// A round of evictions is kept as a decision is, so that its pause outlasts a kill -9; a step that evicts nobody is not.
func TestPausesAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now  evict.State
		kept bool
	}{
		"nobody": {evict.State{MemoryAt: 5, CPUAt: 7, OverAt: 9}, false}, "for memory": {evict.State{MemoryAt: 6, CPUAt: 7}, true},
		"for CPU": {evict.State{MemoryAt: 5, CPUAt: 8}, true},
	} {
		kept := 0
		a := New(Options{Keep: func(decide.State) error { kept++; return nil }, Kept: decide.State{Evict: c.now}})
		a.moved(&evict.State{MemoryAt: 5, CPUAt: 7}, &decide.Outcome{})
		if a.keepNowAndThen(keepChanged); (kept == 1) != c.kept {
			t.Errorf("%s: kept %d times", name, kept)
		}
	}
}

// told counts what an Evictor hears.
type told int

func (n *told) Evict(*evict.Output) { *n++ }

func (*told) Leaving() (map[string]unit.Micros, map[string]evict.Held) { return nil, nil }

// An urgent step says nothing about evictions: those that wait for their turn would go by it.
func TestUrgentStepsDoNotDecideEvictions(t *testing.T) {
	t.Parallel()
	var heard told
	a := New(Options{Evict: &heard})
	a.evict(&decide.Outcome{}, true)
	a.evict(&decide.Outcome{}, false)
	if heard != 1 {
		t.Errorf("heard of %d steps, want the whole one", heard)
	}
}

// While another agent may be here nothing may be evicted.
func TestNobodyIsEvictedTwice(t *testing.T) {
	t.Parallel()
	var beside error
	a := New(Options{EvictFeatures: evict.All, Alone: func() error { return beside }})
	if got := a.mayEvict(); got != evict.All {
		t.Errorf("alone: %v", got)
	}
	if beside = errors.New("no lock"); a.mayEvict() != 0 {
		t.Error("beside another")
	}
}
