// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// calm is a decision that respects budgets, danger one that does not.
func calm(name string) evict.Eviction {
	return evict.Eviction{Pod: name + "-uid", Namespace: "batch", Name: name, RespectBudget: true, Reason: "memory"}
}

func danger(name string) evict.Eviction {
	e := calm(name)
	e.RespectBudget = false
	return e
}

func want(t *testing.T, got string, lines ...string) {
	t.Helper()
	if d := cmp.Diff(strings.Join(lines, "\n"), got); d != "" {
		t.Error(d)
	}
}

var budget = &kube.Error{Request: "POST eviction", Code: 429, Causes: []string{"DisruptionBudget"}, Reason: "TooManyRequests"}

func TestEvictionUntilThePodIsGone(t *testing.T) {
	t.Parallel()
	with(t, nil, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a")})
		if x.Leaving()["a-uid"] == 0 {
			t.Error("does not leave yet: the next decision would take another one")
		}
		want(t, n.take(), "evict a a-uid 20s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		x.Submit([]evict.Eviction{calm("a")})
		pass(5 * time.Second)
		want(t, n.take())
		n.put(pod("a", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`), pod("b", ""), pod("c", ""))
		pass(5 * time.Second)
		if len(x.Leaving()) != 1 {
			t.Errorf("leaving %v", x.Leaving())
		}
		n.put(pod("b", ""), pod("c", ""))
		pass(3 * time.Second)
		want(t, n.take(), "= gone a")
		if len(x.Leaving()) != 0 {
			t.Errorf("leaving %v", x.Leaving())
		}
	})
}

// A pod counts as gone when nothing of it runs any more, not when its object has disappeared.
func TestEvictionVerifiesTheRelease(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, o *Options) { o.Alive = n.living; n.alive["a-uid"] = true }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a")})
		n.put(pod("b", ""), pod("c", ""))
		pass(10 * time.Second)
		want(t, n.take(), "evict a a-uid 20s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		n.mu.Lock()
		n.alive["a-uid"] = false
		n.mu.Unlock()
		pass(2 * time.Second)
		want(t, n.take(), "= gone a")
	})
}

func TestBudgetIsRespected(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.answers["evict a"] = budget }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a")})
		want(t, n.take(), "evict a a-uid 20s", "= refused a: POST eviction: 429 TooManyRequests", "event node-001 EvictionRefused a a-uid 0s")
		if !x.Refused()["a-uid"] || len(x.Leaving()) != 0 {
			t.Errorf("refused %v, leaving %v", x.Refused(), x.Leaving())
		}
		pass(refusedFor)
		if len(x.Refused()) != 0 {
			t.Errorf("refused for ever: %v", x.Refused())
		}
		x.Submit([]evict.Eviction{calm("a")})
		want(t, n.take(), "evict a a-uid 20s", "= refused a: POST eviction: 429 TooManyRequests")
	})
}

func TestDangerDoesNotWait(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.answers["evict a"] = budget }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("b"), danger("a")})
		want(t, n.take(), "evict a a-uid 5s", "delete a a-uid 5s", "= accepted a", "evict b b-uid 20s", "= accepted b",
			"event node-001 Evicted a a-uid 0s", "event node-001 Evicted b b-uid 0s")
	})
}

func TestDangerWithoutAPIServer(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) {
		n.slow["evict a"] = time.Hour
		n.slow["stop a"], n.slow["stop b"] = 3*time.Second, time.Second
		n.answers["evict b"] = errors.New("refused connection")
	}, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{danger("a"), danger("b"), calm("c")})
		pass(dangerTimeout)
		// Stops run beside everything else.
		lines := strings.Split(n.take(), "\n")
		slices.Sort(lines)
		want(t, strings.Join(lines, "\n"), "= accepted c", "event node-001 Evicted c c-uid 0s", "evict a a-uid 5s", "evict b b-uid 5s", "evict c c-uid 20s",
			"stop a a-uid 5s", "stop b b-uid 5s")
		pass(4 * time.Second)
		want(t, n.take(), "= stopped b: refused connection", "event node-001 ContainersStopped b b-uid 0s",
			"= stopped a: context deadline exceeded", "event node-001 ContainersStopped a a-uid 0s")
		n.put(pod("c", ""))
		pass(3 * time.Second)
		want(t, n.take(), "= gone a", "= gone b")
	})
	with(t, func(n *node, o *Options) { o.API = nil; n.answers["stop a"] = errors.New("no runtime") }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{danger("a"), calm("b")})
		pass(time.Second)
		want(t, n.take(), "= failed b: no API server", "stop a a-uid 5s", "= failed a: no API server; stop its containers: no runtime")
		if len(x.Leaving()) != 0 {
			t.Errorf("leaving %v", x.Leaving())
		}
	})
}

func TestOverduePodIsHelpedOnce(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Grace = 8 * time.Second }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a")})
		want(t, n.take(), "evict a a-uid 8s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		pass(8*time.Second + slack + check)
		want(t, n.take(), "= overdue a", "stop a a-uid 0s", "= stopped a", "event node-001 ContainersStopped a a-uid 0s")
		pass(time.Minute)
		want(t, n.take())
		if len(x.Leaving()) != 1 {
			t.Errorf("leaving %v", x.Leaving())
		}
	})
}

func TestGraceIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace time.Duration
		in    evict.Eviction
		want  string
	}{
		"the pod's own is shorter": {time.Minute, calm("a"), "20s"},
		"ours is shorter":          {7 * time.Second, calm("a"), "7s"},
		"the pod's own":            {-1, calm("a"), "20s"},
		"danger":                   {time.Minute, danger("a"), "5s"},
		"a pod nobody told us of":  {time.Minute, calm("x"), "-1ns"},
		"the same in danger":       {time.Minute, danger("x"), "5s"},
	} {
		with(t, func(_ *node, o *Options) { o.Grace = c.grace }, func(n *node, x *Executor) {
			x.Submit([]evict.Eviction{c.in})
			if got := n.take(); !strings.HasPrefix(got, "evict "+c.in.Name+" "+c.in.Pod+" "+c.want+"\n") {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestRateIsLimited(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 2, 10*time.Second }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a"), calm("b"), calm("c")})
		if got := strings.Count(n.take(), "= accepted"); got != 2 {
			t.Errorf("%d evictions at once", got)
		}
		pass(8 * time.Second)
		want(t, n.take())
		pass(3 * time.Second)
		if got := n.take(); !strings.HasPrefix(got, "evict c") {
			t.Errorf("%q", got)
		}
	})
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, time.Hour }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a"), calm("b")})
		n.take()
		x.Submit([]evict.Eviction{danger("b")})
		if got := n.take(); !strings.HasPrefix(got, "evict b b-uid 5s") {
			t.Errorf("danger waits for the rate: %q", got)
		}
	})
}

func TestWhoIsNotEvicted(t *testing.T) {
	t.Parallel()
	static := pod("a", `,"annotations":{"kubernetes.io/config.source":"file"}`)
	with(t, func(n *node, _ *Options) { n.put(static) }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{danger("a")})
		want(t, n.take(), "= failed a: static pod")
	})
	with(t, func(_ *node, o *Options) { o.Observe = true }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{danger("a")})
		want(t, n.take(), "= observed a", "event node-001 WouldEvict a a-uid 0s")
		x.Submit([]evict.Eviction{danger("a")})
		want(t, n.take(), "= observed a")
	})
	with(t, func(n *node, _ *Options) {
		n.answers["evict a"] = &kube.Error{Request: "POST eviction", Code: 403, Reason: "Forbidden"}
	}, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a")})
		want(t, n.take(), "evict a a-uid 20s", "= failed a: POST eviction: 403 Forbidden")
	})
	with(t, func(n *node, _ *Options) { n.answers["evict a"] = &kube.Error{Code: 409} }, func(n *node, x *Executor) {
		x.Submit([]evict.Eviction{calm("a")})
		want(t, n.take(), "evict a a-uid 20s", "= accepted a")
		n.put()
		pass(2 * time.Second)
		want(t, n.take(), "= gone a")
	})
}

// After a restart, pods that are being deleted leave, whoever evicted them.
func TestRestart(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) {
		n.put(pod("a", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`), pod("b", ""))
	}, func(_ *node, x *Executor) {
		if d := cmp.Diff(map[string]unit.Micros{"a-uid": 0}, x.Leaving()); d != "" {
			t.Error(d)
		}
	})
	if _, err := New(Options{}); err == nil {
		t.Error("an executor without pods and clock")
	}
}

// TestOverSockets: the whole way to an API server, once.
func TestOverSockets(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	const path = "/api/v1/namespaces/batch/pods"
	server.Put(t, path, pod("a", ""))
	server.Serve("/apis/events.k8s.io/v1/namespaces/batch/events")
	client, err := kube.New(kube.Config{Server: server.URL, Trust: server.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	results := make(chan Result, 10)
	empty := pods.New(pods.Options{})
	start := time.Now()
	x, err := New(Options{
		API: client, Pods: empty.Snapshot, Node: "node-001", OnResult: func(r Result) { results <- r },
		Clock: func() unit.Micros { return micros(time.Since(start)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- x.Run(ctx) }()
	x.Submit([]evict.Eviction{calm("a")})
	if r := <-results; r.Outcome != Accepted || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if r := <-results; r.Outcome != Gone {
		t.Errorf("%+v", r)
	}
	if m := server.Object(path, "a")["metadata"].(kubetest.Object); m["deletionTimestamp"] == nil {
		t.Errorf("%v", m)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
