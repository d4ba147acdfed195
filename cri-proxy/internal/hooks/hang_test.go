// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/adapt/hook/hooktest"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
)

// hanging is a server that counts its calls and answers none until it is told to.
type hanging struct {
	calls   atomic.Int64
	answers atomic.Bool
}

func (h *hanging) answer(ctx context.Context, _ string, _ map[string]any) (map[string]any, error) {
	h.calls.Add(1)
	if h.answers.Load() {
		return map[string]any{"container_annotations": map[string]string{"a": "b"}}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// hung is a registry whose one server hangs, and what it has seen of some calls.
type hung struct {
	*hooks.Registry
	server        *hanging
	dir, endpoint string
	seen          calls
}

// hang makes some calls, each of which ends after the limit.
func hang(t *testing.T, policy string, n int, limit, pause time.Duration) *hung {
	t.Helper()
	u := &hung{server: &hanging{}, dir: t.TempDir()}
	_, u.endpoint = hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), u.server.answer)
	register(t, u.dir, "slow", u.endpoint, policy, all()...)
	u.Registry = open(t, u.dir, func(o *hooks.Options) {
		o.Observe, o.Pause, o.Config.Timeout = u.seen.add, pause, config.Duration(limit)
	})
	for range n {
		if _, err := call(t.Context(), u.Registry, hook.PreCreateContainer); (policy == "Fail") != (err != nil) {
			t.Errorf("%s: %v", policy, err)
		}
	}
	return u
}

// twice makes a case once more with calls of 10 s where it has not gone as wanted: a call may have ended before it reached the server.
func twice(made func(limit time.Duration) *hung, wrong func(*hung) error) (*hung, error) {
	u := made(1500 * time.Millisecond)
	err := wrong(u)
	if err != nil {
		u = made(10 * time.Second)
		err = wrong(u)
	}
	return u, err
}

// A server that hangs and is to be ignored is not called any more after three calls; one whose failure refuses is. It is
// told once.
func TestHangingServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	for policy, called := range map[string]int64{"Ignore": 3, "Fail": 5} {
		u, err := twice(func(limit time.Duration) *hung { return hang(t, policy, 5, limit, time.Hour) }, func(u *hung) error {
			var errs []error
			if n := u.server.calls.Load(); n != called {
				errs = append(errs, fmt.Errorf("called %d times, want %d", n, called))
			}
			for i, c := range u.seen.list {
				left, third := int64(i) >= called, policy == "Ignore" && i == 2
				if (c.Result == hooks.ResultLeft) != left || c.Late == left || (c.Err == nil) != left || (c.Pause == time.Hour) != third || c.Back {
					errs = append(errs, fmt.Errorf("call %d: %+v", i, c))
				}
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Errorf("%s: %v", policy, err)
		}
		h, r, dir, endpoint := u.server, u.Registry, u.dir, u.endpoint
		// A file that comes anew for the same place changes nothing; the server elsewhere has another chance.
		if policy == "Fail" {
			continue
		}
		other := &hanging{}
		other.answers.Store(true)
		_, elsewhere := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), other.answer)
		ctx, cancel := context.WithCancel(t.Context())
		changed, ended := make(chan struct{}, 9), make(chan error, 1)
		go func() { ended <- r.Run(ctx, func(hooks.Snapshot) { changed <- struct{}{} }) }()
		register(t, dir, "slow", endpoint, policy, hook.PreCreateContainer)
		<-changed
		if _, err := call(t.Context(), r, hook.PreCreateContainer); err != nil || h.calls.Load() != 3 {
			t.Errorf("after a change of its hooks: %v, %d calls", err, h.calls.Load())
		}
		register(t, dir, "slow", elsewhere, policy, all()...)
		<-changed
		if answers, err := call(t.Context(), r, hook.PreCreateContainer); err != nil || len(answers) != 1 {
			t.Errorf("elsewhere: %v, %v", answers, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// After the pause one call tries it again, and the first answer, an error too, brings it back.
func TestHangingServerComesBack(t *testing.T) {
	t.Parallel()
	u, err := twice(func(limit time.Duration) *hung { return hang(t, "Ignore", 4, limit, 1) }, func(u *hung) error { // the fourth is the first try
		if c := u.seen.last(t); u.server.calls.Load() != 4 || c.Pause == 0 {
			return fmt.Errorf("%d calls, the last %+v", u.server.calls.Load(), c)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	h, r, seen := u.server, u.Registry, &u.seen
	h.answers.Store(true)
	answers, err := call(t.Context(), r, hook.PreCreateContainer)
	if c := seen.last(t); err != nil || len(answers) != 1 || !c.Back || c.Pause != 0 {
		t.Errorf("%v, %v, %+v", answers, err, c)
	}
	if _, err := call(t.Context(), r, hook.PreCreateContainer); err != nil || seen.last(t).Back {
		t.Errorf("%v, told twice: %+v", err, seen.last(t))
	}
}

// A call that the kubelet gives up, or for which there was hardly any time, is nobody's fault.
func TestCutCallsDoNotCount(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 10)
	_, endpoint := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), func(ctx context.Context, _ string, _ map[string]any) (map[string]any, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	dir := t.TempDir()
	register(t, dir, "slow", endpoint, "Ignore", all()...)
	seen := &calls{}
	r := open(t, dir, func(o *hooks.Options) {
		o.Observe, o.Pause, o.Config.Timeout = seen.add, time.Hour, config.Duration(time.Minute)
	})
	for range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-entered; cancel() }()
		if _, err := call(ctx, r, hook.PreCreateContainer); err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := call(ctx, r, hook.PreCreateContainer); err != nil {
			t.Error(err)
		}
		cancel()
		for len(entered) > 0 {
			<-entered
		}
	}
	for i, c := range seen.list {
		if c.Result != hooks.ResultIgnored || c.Err == nil {
			t.Errorf("call %d: %+v", i, c)
		}
	}
}

// What a server gets of a CRI call's time, as it hears itself.
func TestShareOfTheCall(t *testing.T) {
	t.Parallel()
	const call2m = 2 * time.Minute
	for name, tt := range map[string]struct {
		policy     string
		set, call  time.Duration
		above, max time.Duration
	}{
		"default":                     {"Ignore", 0, call2m, 0, time.Second},
		"default, Fail":               {"Fail", 0, call2m, 0, time.Second},
		"default, no deadline":        {"Ignore", 0, 0, 0, time.Second},
		"short call":                  {"Ignore", 0, 2 * time.Second, 0, 500 * time.Millisecond},
		"short call, Fail":            {"Fail", 0, 2 * time.Second, 0, 500 * time.Millisecond},
		"configured":                  {"Ignore", 10 * time.Second, call2m, 2 * time.Second, 10 * time.Second},
		"configured beyond, Ignore":   {"Ignore", time.Hour, call2m, 15 * time.Second, 30 * time.Second},
		"configured beyond, Fail":     {"Fail", time.Hour, call2m, 31 * time.Second, call2m},
		"configured, and no deadline": {"Ignore", time.Minute, 0, 2 * time.Second, time.Minute},
	} {
		var told atomic.Int64
		_, endpoint := hooktest.Serve(t, "unix", filepath.Join(t.TempDir(), "s"), func(ctx context.Context, _ string, _ map[string]any) (map[string]any, error) {
			deadline, ok := ctx.Deadline()
			if !ok {
				return nil, errors.New("no deadline")
			}
			told.Store(int64(time.Until(deadline)))
			return nil, nil
		})
		dir := t.TempDir()
		register(t, dir, "x", endpoint, tt.policy, all()...)
		var got time.Duration
		var err error
		for range 100 { // a call that is late tells nothing
			told.Store(0)
			r := open(t, dir, func(o *hooks.Options) { o.Config.Timeout = config.Duration(tt.set) })
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if tt.call > 0 {
				ctx, cancel = context.WithTimeout(ctx, tt.call)
			}
			_, err = call(ctx, r, hook.PreCreateContainer)
			cancel()
			if got = time.Duration(told.Load()); err == nil && got > tt.above {
				break
			}
		}
		if err != nil || got <= tt.above || got > tt.max {
			t.Errorf("%s: %v, %v; want more than %v and at most %v", name, got, err, tt.above, tt.max)
		}
	}
}

// A question that cannot be put together is a call that has failed.
func TestUnasked(t *testing.T) {
	t.Parallel()
	cause := errors.New("the pod cannot be read")
	for policy, refused := range map[string]bool{"Fail": true, "Ignore": false} {
		dir := t.TempDir()
		register(t, dir, "x", "/nobody", policy, hook.PreStartContainer)
		seen := &calls{}
		r := open(t, dir, func(o *hooks.Options) { o.Observe = seen.add })
		err := r.Unasked(t.Context(), hook.PreStartContainer, containerTarget, cause)
		var refusal *hooks.Refusal
		if errors.As(err, &refusal) != refused || refused && !errors.Is(err, cause) || !errors.Is(seen.last(t).Err, cause) {
			t.Errorf("%s: %v, %+v", policy, err, seen.last(t))
		}
		if err := r.Unasked(t.Context(), hook.PreCreateContainer, containerTarget, cause); err != nil || len(seen.list) != 1 {
			t.Errorf("%s: a hook that nobody takes: %v, %+v", policy, err, seen.list)
		}
	}
}
