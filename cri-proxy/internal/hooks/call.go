// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/unary"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/model/plan"
)

// defaultLimit bounds a call without a setting. A hook server is on this machine and answers from memory.
const defaultLimit = time.Second

// share is the part of what is left of a CRI call that one hook server gets at most: the runtime needs the rest, and so
// do the servers after it.
const share = 4

// Result of one call of a hook server.
type Result string

// The results.
const (
	ResultOK Result = "ok"
	// ResultIgnored: the call failed and the CRI call goes on, by the server's policy or because the runtime has done its
	// part already.
	ResultIgnored Result = "ignored"
	// ResultRefused: the call failed and the CRI call is refused.
	ResultRefused Result = "refused"
	// ResultLeft: the server was not called, because it has not answered for some time.
	ResultLeft Result = "left alone"
)

// Call is one call of a hook server that has ended.
type Call struct {
	Server string
	Hook   hook.Kind
	Result Result
	// Late tells that the time was up.
	Late bool
	Took time.Duration
	// Err is why it failed; nil for ResultOK and ResultLeft. It holds no value of a request.
	Err error
	// Pause, when not 0, is for how long the server is left alone after this call; Back tells that it answers again.
	Pause time.Duration
	Back  bool
}

// Answer is what one hook server wants changed.
type Answer struct {
	// Server is its name, Merge how its values meet ours.
	Server string
	Merge  config.HookMerge
	hook.Change
}

// Refusal is the error of a hook server with policy Fail; it is the CRI call's.
type Refusal struct {
	Server Server
	Hook   hook.Kind
	// Target is the pod or container, "namespace/pod/container".
	Target string
	Err    error
}

// Error names the hook server, its file, the hook and the pod.
func (r *Refusal) Error() string {
	return fmt.Sprintf("hook server %s (%s) failed %s of %s, and its failure-policy in %s is %s: %v",
		r.Server.Name, r.Server.Endpoint, r.Hook, r.Target, r.Server.File, r.Server.Policy, r.Err)
}

// Unwrap is why the call failed.
func (r *Refusal) Unwrap() error { return r.Err }

// Pod calls every hook server that is registered for k, a hook of pods, one after another by name. Answers are those of
// hooks before the runtime, without the empty ones. The error is a [*Refusal]; those after the runtime never refuse.
// Whether the pod is skipped is the caller's to ask: [Registry.Skips].
func (r *Registry) Pod(ctx context.Context, k hook.Kind, asked *hook.PodRequest, t plan.Target) ([]Answer, error) {
	return r.call(ctx, k, t, asked.Encode, func(server string, raw []byte) (hook.Change, error) {
		a, err := hook.DecodePodAnswer(raw)
		if err != nil {
			return hook.Change{}, err
		}
		return a.Change(asked, server, t), nil
	})
}

// Container is Pod for the hooks of containers.
func (r *Registry) Container(ctx context.Context, k hook.Kind, asked *hook.ContainerRequest, t plan.Target) ([]Answer, error) {
	return r.call(ctx, k, t, asked.Encode, func(server string, raw []byte) (hook.Change, error) {
		a, err := hook.DecodeContainerAnswer(raw)
		if err != nil {
			return hook.Change{}, err
		}
		return a.Change(asked, server, t), nil
	})
}

// Unasked is the call of hook servers whose question could not be put together, because of err: to each it is a call that
// has failed.
func (r *Registry) Unasked(ctx context.Context, k hook.Kind, t plan.Target, err error) error {
	_, err = r.call(ctx, k, t, func() ([]byte, error) { return nil, err }, nil)
	return err
}

func (r *Registry) call(ctx context.Context, k hook.Kind, t plan.Target, encode func() ([]byte, error), decode func(string, []byte) (hook.Change, error)) ([]Answer, error) {
	now := r.last.Load()
	if !now.wants.Has(k) {
		return nil, nil
	}
	var out []Answer
	raw, encodeErr := encode()
	for i := range now.servers {
		s := &now.servers[i]
		if !s.Hooks.Has(k) {
			continue
		}
		seen := Call{Server: s.Name, Hook: k}
		change, err := hook.Change{}, encodeErr
		if err == nil {
			change, err = r.one(ctx, s, &seen, raw, decode)
		}
		if seen.Err = err; seen.Result == "" {
			seen.Result = resultOf(err, k, s.Policy)
		}
		r.observe(seen)
		switch {
		case seen.Result == ResultRefused:
			return nil, &Refusal{Server: s.Server, Hook: k, Target: t.Name, Err: err}
		case seen.Result == ResultOK && k.Before() && (!change.Empty() || len(change.Problems) > 0):
			out = append(out, Answer{Server: s.Name, Merge: s.Merge, Change: change})
		}
	}
	return out, nil
}

// one calls one server within its time, unless it is to be left alone.
func (r *Registry) one(ctx context.Context, s *server, seen *Call, raw []byte, decode func(string, []byte) (hook.Change, error)) (hook.Change, error) {
	start := time.Now()
	if s.Policy != PolicyFail && !s.breaker.allow(start) {
		seen.Result = ResultLeft
		return hook.Change{}, nil
	}
	limit, whole := r.limit(ctx, s.Policy)
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := s.client.Call(call, seen.Hook.Method(), raw)
	seen.Took, seen.Late = time.Since(start), isLate(err)
	switch {
	case seen.Late && whole:
		if s.breaker.hung(time.Now(), r.o.Pause) && s.Policy != PolicyFail {
			seen.Pause = r.o.Pause
		}
	case seen.Late || ctx.Err() != nil:
		s.breaker.cut()
	default:
		seen.Back = s.breaker.answered() && s.Policy != PolicyFail
	}
	if err != nil {
		return hook.Change{}, err
	}
	return decode(s.Name, answer)
}

// limit is the time of one call: the configuration's or a second, of what is left of the CRI call a quarter at most. Only
// a server whose failure refuses the call may have all of it, if the configuration gives so much. whole is false when
// the server gets so little that it cannot be blamed for being late.
func (r *Registry) limit(ctx context.Context, p Policy) (limit time.Duration, whole bool) {
	set := r.o.Config.Timeout.Std()
	full := set
	if set <= 0 {
		full = defaultLimit
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return full, true
	}
	left := time.Until(deadline)
	if set <= 0 || p != PolicyFail {
		left /= share
	}
	limit = min(full, left)
	return limit, limit >= full/share
}

func resultOf(err error, k hook.Kind, p Policy) Result {
	switch {
	case err == nil:
		return ResultOK
	case k.Before() && p == PolicyFail:
		return ResultRefused
	default:
		return ResultIgnored
	}
}

// isLate reports a call that ran out of time, here or by the server's clock.
func isLate(err error) bool {
	var refused *unary.Status
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) && refused.Code == unary.CodeDeadlineExceeded
}

func (r *Registry) observe(c Call) {
	if r.o.Observe != nil {
		r.o.Observe(c)
	}
}
