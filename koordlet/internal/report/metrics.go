// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Manager is the field manager of what we write.
const Manager = "koordlet"

// Defaults of MetricsOptions.
const (
	DefaultCheck     = 10 * time.Second
	DefaultThreshold = unit.Percent(10)
)

// StatusWriter replaces the status of an object; *kube.Client is one.
type StatusWriter interface {
	ReplaceStatus(ctx context.Context, r kube.Resource, name, manager string, status any) error
}

// MetricsOptions of NewMetrics.
type MetricsOptions struct {
	// API and Node, the name of our Node object, are required.
	API  StatusWriter
	Node string
	// Input is what is known now, called in Run's goroutine; false while there is nothing to report. Required.
	Input func() (Input, bool)
	// Check is how often news is looked for, and the least time between two writes to one object. Default 10 s.
	Check time.Duration
	// Threshold of News. Default 10 %.
	Threshold unit.Percent
}

// MetricsState says how reporting goes.
type MetricsState struct {
	// Written is the last success, Err why the last attempt failed, Failures how many have failed in a row.
	Written  time.Time
	Err      error
	Failures int
	// Writes counts successes; News those of them that did not wait for their interval.
	Writes, News uint64
}

// Metrics reports NodeMetric's status.
type Metrics struct {
	o     MetricsOptions
	poke  chan struct{}
	state atomic.Pointer[MetricsState]

	// The rest belongs to Run. last is what readers have, in object; due when they must have another one; tryAt when a failed write
	// is repeated; interval what due was computed with.
	last       Totals
	object     string
	due, tryAt time.Time
	interval   time.Duration
}

// NewMetrics makes a Metrics; nothing is written yet.
func NewMetrics(o MetricsOptions) (*Metrics, error) {
	if o.API == nil || o.Input == nil || o.Node == "" {
		return nil, errors.New("make reporter: API, Input and Node are required")
	}
	if o.Check <= 0 {
		o.Check = DefaultCheck
	}
	if o.Threshold <= 0 {
		o.Threshold = DefaultThreshold
	}
	m := &Metrics{o: o, poke: make(chan struct{}, 1)}
	m.state.Store(&MetricsState{})
	return m, nil
}

// State is how reporting goes; never nil.
func (m *Metrics) State() *MetricsState { return m.state.Load() }

// Poke looks at the object, at the policy and for news at once: the NodeMetric was made or its spec has changed.
func (m *Metrics) Poke() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Run reports until ctx ends, and returns nil then.
func (m *Metrics) Run(ctx context.Context) error {
	// Nodes that start together do not report together.
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(m.o.Check))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-m.poke:
			// What could not be written may be possible now.
			m.tryAt = time.Time{}
		}
		m.look(ctx)
		timer.Reset(m.pause(time.Now()))
	}
}

// pause is how long to wait for the next look: one check, or less when a report is due within it. Reports that waited for a check would all
// come so many checks after another, and nodes that once report together would do so for ever.
func (m *Metrics) pause(now time.Time) time.Duration {
	if left := m.due.Sub(now); left > 0 {
		return min(left, m.o.Check)
	}
	return m.o.Check // one that is overdue could not be written
}

// look writes if it is time, if there is news, or if another object has taken the place of the one that was written to: it says nothing
// yet. Who makes the objects of many nodes anew sets the pace at which they report.
func (m *Metrics) look(ctx context.Context) {
	in, ok := m.o.Input()
	if m.object == "" {
		m.object = in.Object // a report may have gone before the object was seen
	}
	now, anew := time.Now(), in.Object != m.object
	if !ok || now.Before(m.tryAt) || !anew && now.Sub(m.State().Written) < m.o.Check-m.o.Check/10 {
		return
	}
	if in.Policy.Report != m.interval {
		m.interval = in.Policy.Report
		if next := now.Add(m.interval); m.State().Writes > 0 && next.Before(m.due) {
			m.due = next
		}
	}
	totals := Measure(&in)
	beat := !now.Before(m.due)
	if !beat && !anew && !News(&m.last, &totals, in.Capacity, m.o.Threshold) {
		return
	}
	err := m.o.API.ReplaceStatus(ctx, kube.NodeMetrics, m.o.Node, Manager, Build(&in))
	if ctx.Err() != nil {
		return
	}
	state := *m.State()
	if state.Err = err; err != nil {
		state.Failures++
		m.tryAt = now.Add(m.patience(state.Failures, err))
	} else {
		state.Failures, state.Written, state.Writes = 0, now, state.Writes+1
		if !beat {
			state.News++
		}
		m.last, m.object, m.due = totals, in.Object, now.Add(jitter(m.interval))
	}
	m.state.Store(&state)
}

// patience is the pause behind a failure: from one check to one interval, or what the server asks for.
func (m *Metrics) patience(failures int, err error) time.Duration {
	pause := m.interval
	if !errors.Is(err, kube.ErrNotFound) && !errors.Is(err, kube.ErrNotServed) {
		pause = min(m.o.Check<<min(failures-1, 8), m.interval)
	}
	var answer *kube.Error
	if errors.As(err, &answer) {
		pause = max(pause, answer.RetryAfter)
	}
	return pause - m.o.Check/2
}

// jitter is d ± 5 %.
func jitter(d time.Duration) time.Duration {
	return d - d/20 + time.Duration(rand.Int64N(int64(d)/10+1))
}
