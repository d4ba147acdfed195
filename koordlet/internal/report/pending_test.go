// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
)

// A generation that the node cannot put in force takes nothing away from what is: only Applied says so, and of which.
func TestStrategyStatusOfAPendingGeneration(t *testing.T) {
	t.Parallel()
	first, later := time.Unix(100, 0), time.Unix(200, 0)
	old, _ := StrategyStatus(slo.NodeSLOStatus{}, &InForce{UID: "u", Generation: 3, Features: states()}, first)
	pending := &InForce{UID: "u", Generation: 4, Pending: true, Problem: "no space left", Features: states()}
	got, changed := StrategyStatus(old, pending, later)
	if !changed || got.ObservedGeneration != 3 || got.NodeMetric == nil || got.NodeMetric.UpdateTime != slo.At(first) {
		t.Errorf("changed %v: %+v", changed, got)
	}
	for i, c := range got.Conditions {
		if i == 0 && (c.Status != slo.ConditionFalse || c.ObservedGeneration != 4 || c.Message != "no space left" || c.LastTransitionTime != slo.At(later)) ||
			i > 0 && (c.ObservedGeneration != 3 || c != old.Conditions[i]) {
			t.Errorf("%+v", c)
		}
	}
	if _, changed = StrategyStatus(got, pending, later); changed {
		t.Error("told twice")
	}
	pending.Generation = 5
	if got, changed = StrategyStatus(got, pending, later); !changed || got.Conditions[0].ObservedGeneration != 5 {
		t.Errorf("the next one: changed %v, %+v", changed, got.Conditions[0])
	}
	if got, changed = StrategyStatus(got, &InForce{UID: "u", Generation: 5, Features: states()}, later); !changed || got.ObservedGeneration != 5 ||
		got.Conditions[0].Status != slo.ConditionTrue || got.NodeMetric.UpdateTime != slo.At(later) {
		t.Errorf("in force at last: changed %v, %+v", changed, got)
	}
	if got, changed = StrategyStatus(slo.NodeSLOStatus{}, pending, later); !changed || got.NodeMetric != nil || got.ObservedGeneration != 0 {
		t.Errorf("never in force: %+v", got)
	}
}

// A status that cannot be written is tried ever less often, however often the same is said, and at once when another generation is in force.
func TestStrategyIsPatient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err       error
		low, high int
	}{
		"server away: rarer and rarer": {errors.New("connection refused"), 10, 25},
		"the server asks for patience": {&kube.Error{Code: 429, RetryAfter: time.Minute}, 3, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &server{object: `{"metadata":{"name":"node-001","uid":"u"}}`}
			s := NewStrategy(api, "node-001")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			s.Put(InForce{UID: "u", Generation: 1, Features: states()})
			if got := api.since(time.Now()); len(got) != 1 {
				t.Errorf("%s: writes at %v", name, got)
			}
			api.fail(c.err)
			api.read()
			start := time.Now()
			for range 300 {
				s.Put(InForce{UID: "u", Generation: 2, Features: states()})
				time.Sleep(2 * time.Second)
			}
			// Once a write has failed what stands there is read first, which is what fails then.
			if got := len(api.since(start)) + api.read(); got < c.low || got > c.high || !errors.Is(s.Err(), c.err) {
				t.Errorf("%s: %d attempts in ten minutes: %v", name, got, s.Err())
			}
			api.fail(nil)
			s.Put(InForce{UID: "u", Generation: 3, Features: states()})
			if got := api.since(start); len(got) != 1 || s.Err() != nil {
				t.Errorf("%s: writes at %v of another generation, %v", name, got, s.Err())
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%s: run: %v", name, err)
			}
		})
	}
}

// A status that could not be written while the server was away is written when it is back, and tried often where it says no at first.
func TestStrategyAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &server{object: `{"metadata":{"name":"node-001","uid":"u"}}`, err: errors.New("connection refused")}
		s := NewStrategy(api, "node-001")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		s.Put(InForce{UID: "u", Generation: 1, Features: states()})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if s.Err() == nil {
			t.Error("written to a server that is away")
		}
		start := time.Now()
		api.fail(&kube.Error{Code: 403})
		s.Back()
		synctest.Wait() // it says no, as one does that has just started
		api.fail(nil)
		time.Sleep(2 * time.Second)
		if got := api.since(start); len(got) != 1 || s.Err() != nil {
			t.Errorf("writes %v s after its return, %v", got, s.Err())
		}
		s.Back()
		if got := api.since(start); len(got) != 0 {
			t.Errorf("written again without news: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
