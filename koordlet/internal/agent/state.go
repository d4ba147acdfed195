// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"fmt"

	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// The state is kept at once when what is ours in the kernel or the tier's set changes, keepChanged after the last time when
// another decision has moved, and every keepEvery for what the loops have learned.
const (
	keepChanged = 10 * unit.Second
	keepEvery   = unit.Minute
)

// keep stores the state for the next life.
func (a *Agent) keep(now unit.Micros) {
	err := a.o.Keep(a.state)
	a.keptAt, a.unkept = now, err != nil
	a.trouble("keep state", err)
}

func (a *Agent) keepNowAndThen(now unit.Micros) {
	if age := now - a.keptAt; age >= keepEvery || a.unkept && age >= keepChanged {
		a.keep(now)
	}
}

// resume takes up the state of an earlier life that comes late. Nothing was written meanwhile, but pods may have been evicted: a pause after
// that goes on.
func (a *Agent) resume() {
	select {
	case past := <-a.o.Later:
		e, since := &past.Evict, &a.state.Evict
		if since.MemoryAt != 0 {
			e.MemoryAt, e.MemoryOf = since.MemoryAt, since.MemoryOf
		}
		if since.CPUAt != 0 {
			e.CPUAt, e.CPUOf = since.CPUAt, since.CPUOf
		}
		e.OverAt = since.OverAt
		a.state = past
	default:
	}
}

// moved marks what a step has changed as not kept yet: a decision, or a round of evictions, whose pause a kill -9 must not end.
func (a *Agent) moved(before *evict.State, o *decide.Outcome) {
	e := &a.state.Evict
	a.unkept = a.unkept || o.Suppress.Changed || o.Burst.Changed || o.OOMScore.Changed || before.MemoryAt != e.MemoryAt || before.CPUAt != e.CPUAt
}

// mayEvict are the features that may evict: none while another agent may be here and do the same.
func (a *Agent) mayEvict() evict.Features {
	if a.alone() != nil {
		return 0
	}
	return a.o.EvictFeatures
}

// evict hands on what was decided about evictions, which an urgent step does not look at: that says nothing about those that wait.
func (a *Agent) evict(o *decide.Outcome, urgent bool) {
	if !urgent {
		a.o.Evict.Evict(&o.Evict)
	}
}

// alone is why a step leaves to another agent, who may be here, what must not be done twice; nil when nobody else is.
func (a *Agent) alone() error {
	if a.o.Alone == nil {
		return nil
	}
	if err := a.o.Alone(); err != nil {
		return fmt.Errorf("another agent may be here: %w", err)
	}
	return nil
}
