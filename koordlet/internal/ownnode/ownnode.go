// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package ownnode finds out whether the API server holds this agent to its node.
//
// Input is the way to the API server, output a State that Run keeps. RBAC cannot hold it, for all agents have one role: a policy does
// that, by the node which a token tells. Whether one is in force nobody can read: a server serves and stores policies whose plugin is
// switched off. So a [Watch] asks for two objects that differ in their names alone, the NodeResourceTopology of its own node and that of a
// node which there is not, by dry runs: the first must be granted, the second refused, and neither is stored. That takes the right by
// which the agent makes its own, and no other.
//
// It may import koordlet/internal/kube.
package ownnode

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
)

// Elsewhere is the other node's name: there is none of it, and who finds it in an audit log sees what it is for.
const Elsewhere = "another-node.koord-rt.dev"

// Times of a Watch. Until it is held it asks sooner, since somebody may be applying the policy.
const (
	soon  = 10 * time.Second
	every = time.Hour
)

// Verdict is what the API server makes of this agent's writes.
type Verdict uint8

// Verdicts.
const (
	Unknown Verdict = iota
	// Held: what is another node's is refused.
	Held
	// Loose: it may write for every node.
	Loose
)

// State is what is known.
type State struct {
	// Verdict is the newest, Since when it became that.
	Verdict Verdict
	Since   time.Time
	// Err is why the newest question has brought none; nil when it has. While the server only does not answer, the verdict before holds.
	Err error
}

// Trier asks whether an object could be made; *kube.Client is one.
type Trier interface {
	Try(ctx context.Context, r kube.Resource, object any) error
}

// Watch keeps a State. Run is its only writer, State is for everybody.
type Watch struct {
	api   Trier
	node  string
	log   *slog.Logger
	state atomic.Pointer[State]
}

// New makes a Watch of the agent of a node; nothing is asked yet.
func New(api Trier, node string, log *slog.Logger) *Watch {
	w := &Watch{api: api, node: node, log: log}
	w.state.Store(&State{})
	return w
}

// State is what is known; never nil.
func (w *Watch) State() *State { return w.state.Load() }

// Run asks until ctx ends, and returns nil then.
func (w *Watch) Run(ctx context.Context) error {
	// Nodes that start together do not ask together.
	timer := time.NewTimer(rand.N(soon))
	defer timer.Stop()
	for again := 0; ; again++ {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		w.look(ctx, time.Now())
		s := w.State()
		pause := min(soon<<min(again, 9), every)
		if s.Verdict == Held && s.Err == nil {
			pause, again = every, -1
		}
		var answer *kube.Error
		if errors.As(s.Err, &answer) {
			pause = max(pause, answer.RetryAfter)
		}
		timer.Reset(pause - pause/20 + rand.N(pause/10))
	}
}

// look asks once.
func (w *Watch) look(ctx context.Context, now time.Time) {
	verdict, err := w.ask(ctx)
	if ctx.Err() != nil {
		return
	}
	old := w.State()
	if err != nil && !answered(err) {
		verdict = old.Verdict
	}
	s := &State{Verdict: verdict, Since: old.Since, Err: err}
	if verdict != old.Verdict {
		s.Since = now
		w.tell(s)
	}
	w.state.Store(s)
}

// ask asks for the node's own object first: who may not make that one is refused the other one too, and not because of its name.
func (w *Watch) ask(ctx context.Context) (Verdict, error) {
	if err := w.try(ctx, w.node); err != nil {
		return Unknown, err
	}
	err := w.try(ctx, Elsewhere)
	switch {
	case err == nil:
		return Loose, nil
	case refused(err):
		return Held, nil
	}
	return Unknown, err
}

// try asks for one object. That it is there already was found out after everything else was granted.
func (w *Watch) try(ctx context.Context, node string) error {
	r := kube.NodeResourceTopologies
	err := w.api.Try(ctx, r, map[string]any{
		"apiVersion": r.Group + "/" + r.Version, "kind": "NodeResourceTopology", "metadata": map[string]any{"name": node},
		"topologyPolicies": []string{"None"}, "zones": []any{},
	})
	if errors.Is(err, kube.ErrConflict) {
		return nil
	}
	return err
}

// refused reports that the object was not to be made: policies say 403 or 422, webhooks often 400.
func refused(err error) bool {
	var answer *kube.Error
	if !errors.As(err, &answer) {
		return false
	}
	return answer.Code == http.StatusForbidden || answer.Code == http.StatusUnprocessableEntity || answer.Code == http.StatusBadRequest
}

// answered reports that the server has understood the question. One that is away or busy has not, and changes nothing.
func answered(err error) bool {
	var answer *kube.Error
	return errors.As(err, &answer) && answer.Code < http.StatusInternalServerError && !errors.Is(err, kube.ErrBusy)
}

func (w *Watch) tell(s *State) {
	switch s.Verdict {
	case Held:
		w.log.Info("the API server holds this agent to its node")
	case Loose:
		w.log.Warn("the API server does not hold this agent to its node: it may write for others")
	case Unknown:
		w.log.Warn("it is not known any more whether the API server holds this agent to its node", "err", s.Err)
	}
}
