// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/model/node"
)

// ConditionApplied is the condition beside those of the features: the strategy is in force.
const ConditionApplied = "Applied"

// InForce is what the node has made of a NodeSLO.
type InForce struct {
	// UID and Generation of the object whose spec is in force.
	UID        string
	Generation int64
	// Problem says why the newest spec is not in force, or not as it was meant; empty when it is.
	Problem string
	// Pending: this generation is not in force; an older one, or none, is.
	Pending bool
	// Partly: it is in force but for the values that Problem names.
	Partly bool
	// Features in the order in which they are shown.
	Features []node.FeatureState
}

// StrategyStatus is the status for what is in force; changed says that it differs from old. A condition that did not
// change keeps its transition time. Of a generation that is pending only the condition Applied speaks: which one is in force, and since
// when, stays as it was.
func StrategyStatus(old slo.NodeSLOStatus, f *InForce, now time.Time) (out slo.NodeSLOStatus, changed bool) {
	at := slo.At(now)
	add := func(c slo.Condition, generation int64) {
		c.ObservedGeneration, c.LastTransitionTime = generation, at
		i := slices.IndexFunc(old.Conditions, func(o slo.Condition) bool { return o.Type == c.Type })
		if i < 0 || old.Conditions[i].Reason != c.Reason || old.Conditions[i].Message != c.Message {
			changed = true
		}
		if i >= 0 && old.Conditions[i].Status == c.Status {
			c.LastTransitionTime = old.Conditions[i].LastTransitionTime
		}
		out.Conditions = append(out.Conditions, c)
	}
	applied := slo.Condition{Type: ConditionApplied, Status: slo.ConditionTrue, Reason: "InForce"}
	if f.Problem != "" {
		applied.Status, applied.Reason, applied.Message = slo.ConditionFalse, "Problem", f.Problem
	}
	inForce := f.Generation
	if f.Pending {
		inForce = old.ObservedGeneration
	}
	add(applied, f.Generation)
	for _, s := range f.Features {
		add(featureCondition(s), inForce)
	}
	changed = changed || len(old.Conditions) != len(out.Conditions)
	if f.Pending {
		out.ObservedGeneration, out.NodeMetric = old.ObservedGeneration, old.NodeMetric
		return out, changed || old.Conditions[0].ObservedGeneration != f.Generation
	}
	out.ObservedGeneration, out.NodeMetric = f.Generation, &slo.Applied{UpdateTime: at}
	return out, changed || old.ObservedGeneration != f.Generation || old.NodeMetric == nil
}

// featureCondition turns a feature's state into a condition.
func featureCondition(s node.FeatureState) slo.Condition {
	c := slo.Condition{Type: s.Feature, Status: slo.ConditionFalse, Message: s.Detail}
	switch s.State {
	case "active":
		c.Status, c.Reason = slo.ConditionTrue, "Active"
	case "degraded":
		c.Status, c.Reason = slo.ConditionTrue, "Degraded"
	case "observe":
		c.Reason = "ObserveOnly"
	case "off":
		c.Reason = "Off"
	case "unsupported":
		c.Reason = "Unsupported"
	default:
		c.Status, c.Reason = slo.ConditionUnknown, "Unknown"
	}
	return c
}

// StrategyAPI reads an object and replaces its status; *kube.Client is one.
type StrategyAPI interface {
	StatusWriter
	Get(ctx context.Context, r kube.Resource, name string) ([]byte, error)
}

// Retries of a status that could not be written.
const (
	strategyMin = time.Second
	strategyMax = time.Minute
)

// Strategy writes NodeSLO's status when something changes, and never otherwise.
type Strategy struct {
	api  StrategyAPI
	node string
	wake chan struct{}
	// back has a token when the server answers again.
	back chan struct{}

	mu   sync.Mutex
	want *InForce
	err  error

	// The rest belongs to Run: the status that stands in the object with this UID, which is empty while nobody knows.
	uid string
	old slo.NodeSLOStatus
}

// NewStrategy makes a Strategy for the NodeSLO called node.
func NewStrategy(api StrategyAPI, node string) *Strategy {
	return &Strategy{api: api, node: node, wake: make(chan struct{}, 1), back: make(chan struct{}, 1)}
}

// Put says what is in force now; the latest word counts. It returns at once. The same word, which comes every two seconds, does not hasten
// the next try of a status that could not be written; another generation does, for it has come from the server.
func (s *Strategy) Put(f InForce) {
	s.mu.Lock()
	waits := s.err != nil && s.want != nil && s.want.UID == f.UID && s.want.Generation == f.Generation
	s.want = &f
	s.mu.Unlock()
	if waits {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Back tries what could not be written at once, and often at first: the server answers again. A wait that has grown while it was away would
// else outlast its return by more than a minute.
func (s *Strategy) Back() {
	select {
	case s.back <- struct{}{}:
	default:
	}
}

// Err is why the status could not be written; nil when it stands.
func (s *Strategy) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Run writes until ctx ends, and returns nil then.
func (s *Strategy) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.wake:
		case <-s.back:
			failures = 0
		}
		err := s.write(ctx)
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		if err == nil {
			failures = 0
			continue
		}
		failures++
		pause := min(strategyMin<<min(failures-1, 10), strategyMax)
		var answer *kube.Error
		if errors.As(err, &answer) {
			pause = max(pause, 2*answer.RetryAfter) // of which half is left at least
		}
		timer.Reset(pause/2 + time.Duration(rand.Int64N(int64(pause))))
	}
}

// write brings the object's status up to date.
func (s *Strategy) write(ctx context.Context) error {
	s.mu.Lock()
	want := s.want
	s.mu.Unlock()
	if want == nil || want.UID == "" {
		return nil
	}
	if s.uid != want.UID {
		if err := s.read(ctx); err != nil {
			return err
		}
		if s.uid != want.UID {
			return nil // another object of that name; what it wants is not in force yet
		}
	}
	status, changed := StrategyStatus(s.old, want, time.Now())
	if !changed {
		return nil
	}
	if err := s.api.ReplaceStatus(ctx, kube.NodeSLOs, s.node, Manager, status); err != nil {
		s.uid = "" // the server may have taken it, and only its answer was lost: the next try reads first
		return err
	}
	s.old = status
	return nil
}

// read learns what an earlier life has written: its transition times stay.
func (s *Strategy) read(ctx context.Context) error {
	raw, err := s.api.Get(ctx, kube.NodeSLOs, s.node)
	if err != nil {
		return err
	}
	var o struct {
		Metadata slo.Meta        `json:"metadata"`
		Status   json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("read status of %s %s: %w", kube.NodeSLOs, s.node, err)
	}
	s.uid, s.old = o.Metadata.UID, slo.NodeSLOStatus{}
	if len(o.Status) > 0 && json.Unmarshal(o.Status, &s.old) != nil {
		// A status that we cannot read is replaced.
		s.old = slo.NodeSLOStatus{}
	}
	return nil
}
