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

// deleted is what the metadata of a pod has while it is being deleted.
const deleted = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`

var budget = &kube.Error{Request: "POST eviction", Code: 429, Causes: []string{"DisruptionBudget"}, Reason: "TooManyRequests"}

func TestEvictionUntilThePodIsGone(t *testing.T) {
	t.Parallel()
	with(t, nil, func(n *node, x *Executor) {
		submit(x, calm("a"))
		if x.Leaving()["a-uid"] == 0 {
			t.Error("does not leave yet: the next decision would take another one")
		}
		want(t, n.take(), "evict a a-uid 20s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		submit(x, calm("a"))
		pass(5 * time.Second)
		want(t, n.take())
		n.put(pod("a", deleted), pod("b", ""), pod("c", ""))
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
	with(t, func(n *node, _ *Options) { n.alive["a-uid"] = true }, func(n *node, x *Executor) {
		submit(x, calm("a"))
		n.put(pod("b", ""), pod("c", ""))
		pass(10 * time.Second)
		want(t, n.take(), "evict a a-uid 20s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		n.set(func() { n.alive["a-uid"] = false })
		pass(2 * time.Second)
		want(t, n.take(), "= gone a")
	})
	// What its end has released stands beside what was promised, and nothing runs any more although the object is still there.
	with(t, func(n *node, _ *Options) {
		n.alive["a-uid"] = true
		n.used = map[string]unit.Bytes{"a-uid": 8 << 30, "": 104 << 30}
	}, func(n *node, x *Executor) {
		e := calm("a")
		e.Memory = 7 << 30
		submit(x, e)
		n.take()
		n.put(pod("a", deleted))
		n.set(func() { n.used["a-uid"] = 1 << 30 }) // it ends, and gives back
		pass(10 * time.Second)
		want(t, n.take())
		n.set(func() { n.alive["a-uid"], n.used[""] = false, 97<<30 })
		pass(2 * time.Second)
		want(t, n.take(), "= gone a: promised 7 GiB, its use fell by 8 GiB, the node's went from 104 GiB to 97 GiB")
	})
}

func TestBudgetIsRespected(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.answers["evict a"] = budget }, func(n *node, x *Executor) {
		submit(x, calm("a"))
		want(t, n.take(), "evict a a-uid 20s", "= refused a: POST eviction: 429 TooManyRequests", "event node-001 EvictionRefused a a-uid 0s")
		if x.Held()["a-uid"] != evict.ByBudget || len(x.Leaving()) != 0 {
			t.Errorf("held %v, leaving %v", x.Held(), x.Leaving())
		}
		pass(refusedFor)
		if len(x.Held()) != 0 {
			t.Errorf("refused for ever: %v", x.Held())
		}
		submit(x, calm("a"))
		want(t, n.take(), "evict a a-uid 20s", "= refused a: POST eviction: 429 TooManyRequests")
	})
}

func TestDangerDoesNotWait(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.answers["evict a"] = budget }, func(n *node, x *Executor) {
		submit(x, calm("b"), danger("a"))
		want(t, n.take(), "evict a a-uid 5s", "delete a a-uid 5s", "= accepted a", "evict b b-uid 20s", "= accepted b",
			"event node-001 Evicted a a-uid 0s", "event node-001 Evicted b b-uid 0s")
	})
}

// TestWebhookAway: where koord-manager is to agree and is away, a pod in calm is not held for it, for the next one would fare alike, and in
// danger it is deleted.
func TestWebhookAway(t *testing.T) {
	t.Parallel()
	away := &kube.Error{Request: "POST eviction", Code: 500, Reason: "InternalError", Message: `failed calling webhook "veviction.koordinator.sh"`}
	with(t, func(n *node, _ *Options) { n.answers["evict a"], n.answers["evict b"] = away, away }, func(n *node, x *Executor) {
		submit(x, danger("a"))
		want(t, n.take(), "evict a a-uid 5s", "delete a a-uid 5s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		submit(x, calm("b"))
		want(t, n.take(), "evict b b-uid 20s", `= failed b: POST eviction: 500 InternalError: failed calling webhook "veviction.koordinator.sh"`)
		if len(x.Held()) != 0 {
			t.Errorf("held %v", x.Held())
		}
	})
}

func TestDangerWithoutAPIServer(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) {
		n.slow["evict a"], n.slow["delete a"] = time.Hour, time.Hour
		n.slow["stop a"], n.slow["stop b"] = 3*time.Second, time.Second
		n.answers["evict b"] = errors.New("refused connection")
		n.alive["a-uid"], n.alive["b-uid"] = true, true
		n.used["a-uid"] = 8 << 30
	}, func(n *node, x *Executor) {
		a := danger("a")
		a.Memory = 8 << 30
		submit(x, a, danger("b"), calm("c"))
		follow(x, 2*dangerTimeout, evict.Needed)
		// Stops run beside everything else.
		lines := strings.Split(n.take(), "\n")
		slices.Sort(lines)
		want(t, strings.Join(lines, "\n"), "= accepted c", "delete a a-uid 5s", "event node-001 Evicted c c-uid 0s", "evict a a-uid 5s", "evict b b-uid 5s", "evict c c-uid 20s",
			"stop a a-uid 5s", "stop b b-uid 5s")
		n.set(func() { n.used["a-uid"] = 1 << 20 }) // its sandbox
		pass(4 * time.Second)
		want(t, n.take(), "event node-001 ContainersStopped b b-uid 0s", "event node-001 ContainersStopped a a-uid 0s")
		if len(x.Leaving()) != 3 {
			t.Errorf("leaving %v", x.Leaving())
		}
		// Nobody has deleted the pods: they are as they were, and the kubelet may start their containers again.
		pass(4*time.Second + check)
		want(t, n.take(), "= stopped b: refused connection", "= stopped a: context deadline exceeded; context deadline exceeded: promised 8 GiB, its use fell by 8 GiB")
		if len(x.Leaving()) != 1 || len(x.Held()) != 0 {
			t.Errorf("leaving %v, held %v", x.Leaving(), x.Held())
		}
		submit(x, danger("b"))
		pass(2 * time.Second)
		want(t, n.take(), "evict b b-uid 5s", "stop b b-uid 5s")
	})
	with(t, func(n *node, o *Options) { o.API = nil; n.answers["stop a"] = errors.New("no runtime") }, func(n *node, x *Executor) {
		submit(x, danger("a"), calm("b"))
		pass(time.Second)
		lines := strings.Split(n.take(), "\n") // the stop of a runs beside b
		slices.Sort(lines)
		want(t, strings.Join(lines, "\n"), "= failed a: no API server; stop its containers: stop its container: no runtime, pause 10s", "= failed b: no API server", "stop a a-uid 5s")
		if len(x.Leaving()) != 0 || x.Held()["a-uid"] != evict.ByFailure || len(x.Held()) != 1 {
			t.Errorf("leaving %v, held %v", x.Leaving(), x.Held())
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
			submit(x, c.in)
			if got := n.take(); !strings.HasPrefix(got, "evict "+c.in.Name+" "+c.in.Pod+" "+c.want+"\n") {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestRateIsLimited(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 2, 10*time.Second }, func(n *node, x *Executor) {
		submit(x, calm("a"), calm("b"), calm("c"))
		if got := strings.Count(n.take(), "= accepted"); got != 2 {
			t.Errorf("%d evictions at once", got)
		}
		follow(x, 8*time.Second, evict.Needed)
		want(t, n.take())
		follow(x, 3*time.Second, evict.Needed)
		if got := n.take(); !strings.HasPrefix(got, "evict c") {
			t.Errorf("%q", got)
		}
	})
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, time.Hour }, func(n *node, x *Executor) {
		submit(x, calm("a"), calm("b"))
		n.take()
		submit(x, danger("b"))
		if got := n.take(); !strings.HasPrefix(got, "evict b b-uid 5s") {
			t.Errorf("danger waits for the rate: %q", got)
		}
	})
}

func TestWhoIsNotEvicted(t *testing.T) {
	t.Parallel()
	static := pod("a", `,"annotations":{"kubernetes.io/config.source":"file"}`)
	with(t, func(n *node, _ *Options) { n.put(static) }, func(n *node, x *Executor) {
		submit(x, danger("a"))
		want(t, n.take(), "= failed a: static pod, pause 10s")
	})
	with(t, func(_ *node, o *Options) { o.Observe = true }, func(n *node, x *Executor) {
		submit(x, danger("a"))
		want(t, n.take(), "= observed a", "event node-001 WouldEvict a a-uid 0s")
		submit(x, danger("a"))
		want(t, n.take(), "= observed a")
	})
	with(t, func(n *node, _ *Options) {
		n.answers["evict a"] = &kube.Error{Request: "POST eviction", Code: 403, Reason: "Forbidden"}
	}, func(n *node, x *Executor) {
		submit(x, calm("a"))
		want(t, n.take(), "evict a a-uid 20s", "= failed a: POST eviction: 403 Forbidden, pause 10s")
	})
}

// After a restart, pods that are being deleted leave since they were first seen, whoever evicted them: one that is stuck is not
// counted on for ever.
func TestRestart(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.put(pod("a", deleted), pod("b", "")) }, func(n *node, x *Executor) {
		first := x.Leaving()
		if len(first) != 1 || first["a-uid"] != n.clock() {
			t.Errorf("%v at %d", first, n.clock())
		}
		pass(3 * time.Minute)
		if d := cmp.Diff(first, x.Leaving()); d != "" {
			t.Error(d)
		}
		n.put(pod("b", ""))
		pass(2 * time.Second)
		if l := x.Leaving(); len(l) != 0 || len(x.deleted) != 0 {
			t.Errorf("%v", l)
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
	submit(x, calm("a"))
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
