// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/model/node"
)

func states() []node.FeatureState {
	return []node.FeatureState{
		{Feature: "memory-qos", State: "degraded", Detail: "by order"}, {Feature: "llc", State: "unsupported", Detail: "no resctrl"},
		{Feature: "cpu-burst", State: "active"}, {Feature: "blkio", State: "off"}, {Feature: "oom-score", State: "observe"}, {Feature: "x", State: "?"},
	}
}

func TestStrategyStatus(t *testing.T) {
	t.Parallel()
	first := time.Date(2024, 1, 1, 12, 0, 0, 5, time.UTC)
	at := slo.At(first)
	got, changed := StrategyStatus(slo.NodeSLOStatus{}, &InForce{UID: "u", Generation: 3, Features: states()}, first)
	condition := func(kind, status, reason, message string) slo.Condition {
		return slo.Condition{Type: kind, Status: status, ObservedGeneration: 3, LastTransitionTime: at, Reason: reason, Message: message}
	}
	want := slo.NodeSLOStatus{ObservedGeneration: 3, NodeMetric: &slo.Applied{UpdateTime: at}, Conditions: []slo.Condition{
		condition("Applied", "True", "InForce", ""), condition("memory-qos", "True", "Degraded", "by order"), condition("llc", "False", "Unsupported", "no resctrl"),
		condition("cpu-burst", "True", "Active", ""), condition("blkio", "False", "Off", ""), condition("oom-score", "False", "ObserveOnly", ""), condition("x", "Unknown", "Unknown", ""),
	}}
	if d := cmp.Diff(want, got); d != "" || !changed {
		t.Errorf("changed %v %s", changed, d)
	}
	// The seed's own check: kubectl get nodeslo -o yaml | grep -i status, then status.nodeMetric.updateTime.
	if raw, err := json.Marshal(got); err != nil || !strings.Contains(string(raw), `"nodeMetric":{"updateTime":"2024-01-01T12:00:00Z"}`) {
		t.Errorf("%s %v", raw, err)
	}
	later := first.Add(time.Hour)
	if _, changed := StrategyStatus(got, &InForce{UID: "u", Generation: 3, Features: states()}, later); changed {
		t.Error("changed though nothing has")
	}
	next := states()
	next[1] = node.FeatureState{Feature: "llc", State: "active"}
	next[0].Detail = "by order, again"
	second, changed := StrategyStatus(got, &InForce{UID: "u", Generation: 4, Problem: "two spellings", Features: next}, later)
	if !changed || second.ObservedGeneration != 4 || second.NodeMetric.UpdateTime != slo.At(later) {
		t.Errorf("%+v", second)
	}
	transitions := map[string]slo.Time{}
	for _, c := range second.Conditions {
		transitions[c.Type] = c.LastTransitionTime
	}
	wantTimes := map[string]slo.Time{"Applied": slo.At(later), "memory-qos": at, "llc": slo.At(later), "cpu-burst": at, "blkio": at, "oom-score": at, "x": at}
	if d := cmp.Diff(wantTimes, transitions); d != "" {
		t.Error(d)
	}
	if _, changed := StrategyStatus(got, &InForce{UID: "u", Generation: 3, Features: states()[1:]}, later); !changed {
		t.Error("a feature less is no change")
	}
}

// A write that the server takes and whose answer is lost: what stood there before is written again when that is in force again.
func TestStrategyOfALostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &server{object: `{"metadata":{"name":"node-001","uid":"u"}}`}
		s := NewStrategy(api, "node-001")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		put := func(problem string, lost error) {
			api.mu.Lock()
			api.lost = lost
			api.mu.Unlock()
			s.Put(InForce{UID: "u", Generation: 1, Problem: problem, Features: states()})
			synctest.Wait()
		}
		put("", nil)
		put("drift", errors.New("connection reset by peer"))
		if s.Err() == nil {
			t.Error("the answer is not lost")
		}
		put("", nil)
		time.Sleep(2 * strategyMax)
		synctest.Wait()
		if stands, ok := api.last.(slo.NodeSLOStatus); !ok || stands.Conditions[0].Status != slo.ConditionTrue || s.Err() != nil {
			t.Errorf("%+v stands there, %v", api.last, s.Err())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestStrategyIsWrittenOnChangeOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &server{object: `{"metadata":{"name":"node-001","uid":"u"},"status":{"conditions":5}}`, err: &kube.Error{Code: 404, Named: true}}
		s := NewStrategy(api, "node-001")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		start := time.Now()
		s.Put(InForce{Generation: 1})
		s.Put(InForce{UID: "u", Generation: 1, Features: states()})
		synctest.Wait()
		if err := s.Err(); !errors.Is(err, kube.ErrNotFound) {
			t.Errorf("error %v", err)
		}
		api.fail(nil)
		time.Sleep(time.Minute)
		if got := api.since(start); len(got) != 1 || s.Err() != nil {
			t.Errorf("writes at %v, %v", got, s.Err())
		}
		for range 3 {
			s.Put(InForce{UID: "u", Generation: 1, Features: states()})
			time.Sleep(time.Hour)
		}
		if got := api.since(start); len(got) != 0 {
			t.Errorf("writes at %v though nothing has changed", got)
		}
		s.Put(InForce{UID: "u", Generation: 2, Features: states()})
		if got := api.since(start); len(got) != 1 {
			t.Errorf("writes at %v", got)
		}
		s.Put(InForce{UID: "another", Generation: 1, Features: states()})
		if got := api.since(start); len(got) != 0 {
			t.Errorf("the status of an object that is not there was written: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}
