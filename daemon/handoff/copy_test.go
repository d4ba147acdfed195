// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package handoff

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// keep writes the copy that a writer owes.
func keep(w *Writer) error {
	c := w.Owed()
	if c == nil {
		return nil
	}
	err := c.Write()
	w.Kept(c, err)
	return err
}

// A strategy that changes while the copy of another is on its way, and one whose copy has failed on its way: what stands there in the end is the
// last, though it is what stood there before.
func TestCopyOfTheLastStrategy(t *testing.T) {
	t.Parallel()
	for name, failed := range map[string]error{"on its way": nil, "its answer is lost": os.ErrDeadlineExceeded} {
		run, state := t.TempDir(), t.TempDir()
		w := writer(t, run, state)
		must(t, errors.Join(w.Strategy(1, spec(500), t0), keep(w)))
		must(t, w.Strategy(2, spec(600), t0))
		other := w.Owed()
		must(t, errors.Join(w.Strategy(3, spec(500), t0), other.Write()))
		w.Kept(other, failed)
		must(t, keep(w))
		got := Read(Options{RunDir: t.TempDir(), StateDir: state})
		if got.StrategyGeneration != 3 || *got.Strategy.CPUBurstStrategy.CPUBurstPercent != 500 || w.Owed() != nil {
			t.Errorf("%s: generation %d stands there, of %d %%", name, got.StrategyGeneration, *got.Strategy.CPUBurstStrategy.CPUBurstPercent)
		}
	}
}

// A copy that a power cut has left empty or cut off, as a filesystem may, is told at the next boot and passed over; who publishes then owes it anew.
func TestTornCopy(t *testing.T) {
	t.Parallel()
	run, state := t.TempDir(), t.TempDir()
	w := writer(t, run, state)
	must(t, errors.Join(w.Strategy(1, spec(500), t0), keep(w)))
	kept := filepath.Join(state, StrategyFile)
	whole, err := os.ReadFile(kept)
	must(t, err)
	for _, cut := range []int{0, 1, len(whole) / 2} {
		must(t, os.WriteFile(kept, whole[:cut], 0o600))
		next := filepath.Join(t.TempDir(), "run")
		got := Read(Options{RunDir: next, StateDir: state})
		if got.Strategy != nil || got.StrategyFromState || len(got.Problems) != 1 || got.Problems[0].File != kept {
			t.Errorf("cut at %d: %+v", cut, got)
		}
		w := writer(t, next, state)
		must(t, errors.Join(keep(w), w.Strategy(1, spec(500), t0), keep(w)))
		if got := Read(Options{RunDir: t.TempDir(), StateDir: state}); got.Strategy == nil || len(got.Problems) != 0 {
			t.Errorf("cut at %d, and published again: %+v", cut, got)
		}
	}
}
