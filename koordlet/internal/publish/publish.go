// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package publish hands the node agent's view to koord-nri and koord-runtime-proxy (D5), so that a container that is made
// now gets what was decided last.
//
// Inputs are the strategy, the dynamic state and the pod cache as values; outputs are the handoff's files, written only
// when their content changes or would expire. It may import model, api/strategy and daemon/handoff.
package publish

import (
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/model/node"
)

// TTL is how long a dynamic state holds without us: long enough for a restart of the agent, short enough that a node
// without one is soon back at its static defaults. It is written again after half of it.
const TTL = time.Minute

// Publisher writes the files. One goroutine at a time may use it.
type Publisher struct {
	runDir, stateDir string
	// w is nil while the run directory cannot be used.
	w *handoff.Writer
	// Generations of what was published last.
	strategyGen, dynamicGen, podsGen uint64
	strategy                         *strategy.Spec
	dynamic                          node.Dynamic
	pods                             map[string]node.PodSpec
	// look: a file may have vanished, or could not be written again.
	look   bool
	copies keeper
}

// New goes on where an earlier life has ended: its files stay until they are replaced, and generations grow. A run directory that cannot be
// used is tried again at each publication, which fails until it can.
func New(runDir, stateDir string, now time.Time) *Publisher {
	p := &Publisher{runDir: runDir, stateDir: stateDir, copies: keeper{write: (*handoff.Copy).Write}}
	_ = p.open(now) // whoever publishes hears of it
	return p
}

// open prepares the directories and takes up what stands there, once.
func (p *Publisher) open(now time.Time) error {
	if p.w != nil {
		return nil
	}
	w, err := handoff.NewWriter(p.runDir, p.stateDir)
	if err != nil {
		return fmt.Errorf("prepare handoff: %w", err)
	}
	past := handoff.Read(handoff.Options{RunDir: p.runDir, StateDir: p.stateDir, Now: func() time.Time { return now }})
	p.w, p.strategyGen, p.podsGen = w, past.StrategyGeneration, past.PodsGeneration
	p.dynamicGen = handoff.Generation(p.runDir, handoff.DynamicFile) // one that has expired is none to who reads it
	p.dynamic, p.pods = past.Dynamic, past.Pods
	if !past.StrategyFromState {
		p.strategy = past.Strategy
	}
	return nil
}

// Generations are those that were published last; 0 is never.
type Generations struct{ Strategy, Dynamic, Pods uint64 }

// Generations of what stands there now.
func (p *Publisher) Generations() Generations {
	return Generations{Strategy: p.strategyGen, Dynamic: p.dynamicGen, Pods: p.podsGen}
}

// Strategy publishes what the cluster wants of this node; nil, when it has said nothing yet, leaves what stands there.
func (p *Publisher) Strategy(s *strategy.Spec, now time.Time) (changed bool, err error) {
	if s == nil {
		return false, nil
	}
	if err := p.open(now); err != nil {
		return false, err
	}
	if p.strategy != nil && reflect.DeepEqual(*p.strategy, *s) {
		return false, nil
	}
	if err := p.w.Strategy(p.strategyGen+1, s, now); err != nil {
		return false, err
	}
	p.strategyGen, p.strategy = p.strategyGen+1, s
	return true, nil
}

// Dynamic publishes what was decided in this tick; Known and Expires are set here.
func (p *Publisher) Dynamic(d node.Dynamic, now time.Time) (changed bool, err error) {
	d.Known = true
	if err := p.open(now); err != nil {
		return false, err
	}
	same := p.dynamic.Same(&d)
	if same && p.dynamic.Expires.Sub(now) > TTL/2 && p.dynamic.Expires.Sub(now) <= TTL {
		return false, nil
	}
	d.Expires = now.Add(TTL)
	if err := p.w.Dynamic(p.dynamicGen+1, d, now); err != nil {
		return false, err
	}
	p.dynamicGen, p.dynamic, p.look = p.dynamicGen+1, d, true
	return !same, nil
}

// Again publishes what has vanished since: strategy and pods may stay the same for days, and who reads would be without them. It looks when
// Dynamic has written, and at each call while one of them cannot be written again.
func (p *Publisher) Again(now time.Time) (strategy, pods error) {
	if !p.look {
		return nil, nil
	}
	if p.strategy != nil && p.w.Lacks(handoff.StrategyFile) {
		strategy = p.w.Strategy(p.strategyGen, p.strategy, now)
	}
	if p.pods != nil && p.w.Lacks(handoff.PodsFile) {
		pods = p.w.Pods(p.podsGen, p.pods, now)
	}
	p.look = strategy != nil || pods != nil
	return strategy, pods
}

// Pods publishes what neither NRI nor CRI tells of a pod.
func (p *Publisher) Pods(pods map[string]node.PodSpec, now time.Time) (changed bool, err error) {
	if err := p.open(now); err != nil {
		return false, err
	}
	if p.pods != nil && reflect.DeepEqual(p.pods, pods) {
		return false, nil
	}
	if err := p.w.Pods(p.podsGen+1, pods, now); err != nil {
		return false, err
	}
	p.podsGen, p.pods = p.podsGen+1, maps.Clone(pods)
	return true, nil
}
