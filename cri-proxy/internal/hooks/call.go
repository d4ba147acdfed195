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

// maxCall bounds a call whose context has no deadline: kubelet's default limit of a CRI call (runtimeRequestTimeout).
const maxCall = 2 * time.Minute

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
)

// Call is one call of a hook server that has ended.
type Call struct {
	Server string
	Hook   hook.Kind
	Result Result
	// Late tells that the time was up.
	Late bool
	Took time.Duration
	// Err is why it failed; nil for ResultOK. It holds no value of a request.
	Err error
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
		start := time.Now()
		change, err := hook.Change{}, encodeErr
		if err == nil {
			change, err = r.one(ctx, s, k, raw, decode)
		}
		result := resultOf(err, k, s.Policy)
		r.observe(Call{Server: s.Name, Hook: k, Result: result, Late: isLate(err), Took: time.Since(start), Err: err})
		switch {
		case result == ResultRefused:
			return nil, &Refusal{Server: s.Server, Hook: k, Target: t.Name, Err: err}
		case result == ResultOK && k.Before() && (!change.Empty() || len(change.Problems) > 0):
			out = append(out, Answer{Server: s.Name, Merge: s.Merge, Change: change})
		}
	}
	return out, nil
}

// one calls one server within its time.
func (r *Registry) one(ctx context.Context, s *server, k hook.Kind, raw []byte, decode func(string, []byte) (hook.Change, error)) (hook.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit(ctx, s.Policy))
	defer cancel()
	answer, err := s.client.Call(ctx, k.Method(), raw)
	if err != nil {
		return hook.Change{}, err
	}
	return decode(s.Name, answer)
}

// limit is the time of one call. Without a setting it is what is left of the CRI call, as upstream does; a server whose
// failure is to be ignored gets half of it, or nothing would be left to go on with.
func (r *Registry) limit(ctx context.Context, p Policy) time.Duration {
	limit := maxCall
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
		if p != PolicyFail {
			limit /= 2
		}
	}
	if set := r.o.Config.Timeout.Std(); set > 0 {
		limit = min(limit, set)
	}
	return limit
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
