// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/node"
)

// stats is what the status file tells about this process.
type stats struct {
	late, failOpen, connects    atomic.Uint64
	unmanaged                   atomic.Int64
	lastSync, lastEvent, joined atomic.Int64 // Unix nanoseconds, 0 for never; joined is 0 while disconnected

	// changed has a token when something happened that a person waits to see.
	changed chan struct{}

	mu       sync.Mutex
	problems []status.Problem
	proofs   map[string]status.ProofFailure
}

// tell wakes whoever writes the status file; it never waits.
func (s *stats) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *stats) keepProblem(now time.Time, where, key, reason string) {
	defer s.tell()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, status.Problem{Time: now, Where: where, Key: key, Reason: reason})
	if n := len(s.problems); n > status.MaxProblems {
		s.problems = slices.Delete(s.problems, 0, n-status.MaxProblems)
	}
}

func (s *stats) keepProof(id string, f status.ProofFailure) {
	defer s.tell()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proofs == nil {
		s.proofs = map[string]status.ProofFailure{}
	}
	if _, known := s.proofs[id]; !known && len(s.proofs) >= status.MaxProofFailures {
		delete(s.proofs, oldest(s.proofs))
	}
	s.proofs[id] = f
}

// oldest is the container whose failure is the oldest.
func oldest(of map[string]status.ProofFailure) (id string) {
	for other, f := range of {
		if id == "" || f.Time.Before(of[id].Time) {
			id = other
		}
	}
	return id
}

func (s *stats) dropProof(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.proofs, id)
}

func (g *Engine) featureList() []node.FeatureState {
	_, list, _ := g.views.List()
	return list
}

// Status describes the plugin for koordctl. Writer, process and program are the caller's to fill.
func (g *Engine) Status() status.Status {
	v, list, source := g.views.List()
	pods, containers := g.reg.counts()
	s := status.Status{
		Connects: g.stats.connects.Load(), ConnectedSince: moment(&g.stats.joined),
		LastSync: moment(&g.stats.lastSync), LastEvent: moment(&g.stats.lastEvent),
		RuntimeName: v.Runtime.Name, RuntimeVersion: v.Runtime.Version, NRIVersion: v.Runtime.NRI,
		RequestTimeoutMS: v.Runtime.RequestTimeoutMS,
		WeightFormula:    v.Runtime.Weight.String(), PodWeightFormula: v.Runtime.PodWeight.String(),
		ViewGeneration: v.Generation, StrategySource: source, Features: list,
		Counters: map[string]uint64{
			"pods": uint64(pods), "containers": uint64(containers), "late": g.stats.late.Load(),
			"failOpen": g.stats.failOpen.Load(), "unmanaged": uint64(max(g.stats.unmanaged.Load(), 0)),
		},
	}
	g.stats.mu.Lock()
	defer g.stats.mu.Unlock()
	s.Problems = slices.Clone(g.stats.problems)
	for _, text := range v.Runtime.Problems {
		s.Problems = append(s.Problems, status.Problem{Time: g.o.Now(), Where: "runtime", Reason: text})
	}
	s.ProofFailures = maps.Clone(g.stats.proofs)
	return s
}

func moment(n *atomic.Int64) time.Time {
	if v := n.Load(); v != 0 {
		return time.Unix(0, v)
	}
	return time.Time{}
}

// StatusChanged has a token when Status has news: a connection, a synchronisation, a problem, a failed proof.
func (g *Engine) StatusChanged() <-chan struct{} { return g.stats.changed }

// Connected reports whether the runtime has configured us and the connection stands.
func (g *Engine) Connected() bool { return g.stats.joined.Load() != 0 }
