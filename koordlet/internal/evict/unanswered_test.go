// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

const slower = time.Hour // than any bound

// An eviction that is not answered, since a webhook hangs or budgets are in dispute, is a deletion in danger; and whatever hangs over one pod leaves the
// others their turn.
func TestUnansweredEviction(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.slow["evict a"] = slower }, func(n *node, x *Executor) {
		submit(x, danger("a"))
		pass(dangerTimeout)
		want(t, n.take(), "evict a a-uid 5s", "delete a a-uid 5s", "= accepted a", "event node-001 Evicted a a-uid 0s")
	})
	// The pause does not grow, for it may not be the pod's fault, and leaves the pauses of failures as they were.
	with(t, func(n *node, _ *Options) {
		n.answers["evict a"] = &kube.Error{Request: "POST eviction", Code: 403, Reason: "Forbidden"}
	}, func(n *node, x *Executor) {
		try := func(wait, pause time.Duration, err string) {
			t.Helper()
			submit(x, calm("a"))
			pass(wait)
			want(t, n.take(), "evict a a-uid 20s", "= failed a: "+err+", pause "+pause.String())
			if x.Held()["a-uid"] != evict.ByFailure {
				t.Error("not held")
			}
			pass(pause)
			if len(x.Held()) != 0 {
				t.Error("held for ever")
			}
		}
		try(0, firstPause, "POST eviction: 403 Forbidden")
		n.set(func() { n.slow["evict a"] = slower })
		for range 2 {
			try(callTimeout, firstPause, "context deadline exceeded")
		}
		n.set(func() { n.slow["evict a"] = 0 })
		try(0, 2*firstPause, "POST eviction: 403 Forbidden")
	})
	// Where deletions are not answered either one second answer is waited for, and no more until there has been any, or a while has passed. That says
	// nothing about who is asked for meanwhile: he is not held, or the turn would pass to ever worse victims.
	with(t, func(n *node, o *Options) {
		o.Stops = StopEvicted
		for _, name := range []string{"a", "b", "c"} {
			n.slow["evict "+name], n.slow["delete "+name] = slower, slower
		}
	}, func(n *node, x *Executor) {
		const twice, once = ": context deadline exceeded; context deadline exceeded, pause 10s", ": the API server answers nobody: context deadline exceeded"
		submit(x, danger("a"), danger("b"))
		pass(3 * dangerTimeout)
		want(t, n.take(), "evict a a-uid 5s", "delete a a-uid 5s", "= failed a"+twice, "evict b b-uid 5s", "= failed b"+once)
		if h := x.Held(); h["a-uid"] != evict.ByFailure || h["b-uid"] != evict.NotHeld {
			t.Errorf("held %v", h)
		}
		n.set(func() { n.slow["evict b"] = 0 })
		submit(x, danger("b"), danger("c"))
		pass(2 * dangerTimeout)
		want(t, n.take(), "evict b b-uid 5s", "= accepted b", "evict c c-uid 5s", "delete c c-uid 5s", "= failed c"+twice, "event node-001 Evicted b b-uid 0s")
		n.put(pod("a", ""), pod("c", ""))
		pass(firstPause)
		want(t, n.take(), "= gone b")
		submit(x, danger("a"))
		pass(2 * dangerTimeout)
		want(t, n.take(), "evict a a-uid 5s", "delete a a-uid 5s", "= failed a"+twice)
	})
	// A deletion that is refused is no reason to hold the pod for long.
	with(t, func(n *node, _ *Options) {
		n.slow["evict a"] = slower
		n.answers["delete a"] = &kube.Error{Request: "DELETE pod", Code: 403, Reason: "Forbidden"}
	}, func(n *node, x *Executor) {
		for range 2 {
			submit(x, danger("a"))
			pass(dangerTimeout)
			want(t, n.take(), "evict a a-uid 5s", "delete a a-uid 5s", "= failed a: context deadline exceeded; DELETE pod: 403 Forbidden, pause 10s")
			pass(firstPause)
		}
	})
}

// TestUnansweredOverSockets: a real server's silence to an eviction, and its deletion.
func TestUnansweredOverSockets(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	const path = "/api/v1/namespaces/batch/pods"
	server.Put(t, path, pod("a", ""))
	server.Fail(func(r *http.Request) (int, string) {
		if !strings.HasSuffix(r.URL.Path, "/eviction") {
			return 0, ""
		}
		<-r.Context().Done()
		return http.StatusInternalServerError, ""
	})
	client, err := kube.New(kube.Config{Server: server.URL, Trust: server.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	results, start := make(chan Result, 1), time.Now()
	x, err := New(Options{
		API: client, Pods: pods.New(pods.Options{}).Snapshot, Node: "node-001", OnResult: func(r Result) { results <- r },
		Clock: func() unit.Micros { return micros(time.Since(start)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	x.carryOut(t.Context(), danger("a"))
	if r := <-results; r.Outcome != Accepted || len(server.Requests("DELETE "+path)) != 1 {
		t.Errorf("%s: %v", r.Outcome, r.Err)
	}
	submit(x, danger("b"))
	x.carryOut(t.Context(), calm("a"))
	if r := <-results; r.Outcome != Failed || !errors.Is(r.Err, ErrYielded) {
		t.Errorf("%s: %v", r.Outcome, r.Err)
	}
}

// Who goes in calm and is not answered holds up nobody in danger for longer than another one in danger would, and counts as not answered.
func TestCalmGivesWayToDanger(t *testing.T) {
	t.Parallel()
	const yields = "= failed a: context deadline exceeded: a pod in danger goes first, pause 10s"
	then := []string{"evict b b-uid 5s", "= accepted b", "event node-001 Evicted b b-uid 0s"}
	for _, c := range []struct{ comes, waits time.Duration }{{time.Second, time.Second}, {0, dangerTimeout}, {3 * time.Second, 0}, {dangerTimeout, 0}} {
		with(t, func(n *node, _ *Options) { n.slow["evict a"] = slower }, func(n *node, x *Executor) {
			submit(x, calm("a"), calm("b"))
			pass(c.comes)
			want(t, n.take(), "evict a a-uid 20s")
			submit(x, danger("b"))
			if c.waits > 0 {
				pass(c.waits - time.Millisecond)
				submit(x) // each step looks
				want(t, n.take())
				pass(time.Millisecond)
			}
			want(t, n.take(), append([]string{yields}, then...)...)
			if x.Held()["a-uid"] != evict.ByFailure {
				t.Errorf("held %v", x.Held())
			}
		})
	}
	// One that is answered in that time is not cut short; nor is one for somebody in danger who need not go any more.
	with(t, func(n *node, _ *Options) { n.slow["evict a"] = dangerTimeout - time.Millisecond }, func(n *node, x *Executor) {
		submit(x, calm("a"))
		pass(0)
		submit(x, danger("b"))
		pass(dangerTimeout)
		want(t, n.take(), "evict a a-uid 20s", "= accepted a", "evict b b-uid 5s", "= accepted b", "event node-001 Evicted a a-uid 0s", "event node-001 Evicted b b-uid 0s")
	})
	with(t, func(n *node, _ *Options) { n.slow["evict a"] = slower }, func(n *node, x *Executor) {
		submit(x, calm("a"))
		pass(time.Second)
		x.Follow(step(evict.Enough, danger("b")))
		pass(callTimeout - time.Second)
		want(t, n.take(), "evict a a-uid 20s", "= failed a: context deadline exceeded, pause 10s", "= dropped b")
	})
}

// The end does not cut an eviction short, which the API server might have carried out and nobody would know of; and is not put off for long.
func TestEndWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.slow["evict a"] = time.Second }, func(n *node, x *Executor) {
		submit(x, calm("a"), calm("b"))
		want(t, n.take(), "evict a a-uid 20s")
		n.end()
		pass(time.Second)
		want(t, n.take(), "= accepted a")
	})
	for what, c := range map[string]struct {
		victim evict.Eviction
		bound  time.Duration
		asked  string
	}{
		"calm":   {calm("a"), callTimeout, "evict a a-uid 20s"},
		"danger": {danger("a"), dangerTimeout, "evict a a-uid 5s"},
	} {
		with(t, func(n *node, _ *Options) { n.slow["evict a"] = slower }, func(n *node, x *Executor) {
			submit(x, c.victim, calm("b"))
			if got := n.take(); got != c.asked {
				t.Errorf("%s: %q", what, got)
			}
			n.end()
			pass(c.bound)
			want(t, n.take(), "= failed a: context deadline exceeded, pause 10s")
		})
	}
}

// No eviction waits for an event; those that cannot be sent are dropped, which is said once until one can be.
func TestEventsBesideEvictions(t *testing.T) {
	t.Parallel()
	with(t, func(n *node, _ *Options) { n.slow["event node-001 Evicted a"] = 3 * time.Second }, func(n *node, x *Executor) {
		submit(x, calm("a"))
		n.take()
		submit(x, danger("b"))
		want(t, n.take(), "evict b b-uid 5s", "= accepted b")
		pass(3 * time.Second)
		want(t, n.take(), "event node-001 Evicted b b-uid 0s")
	})
	with(t, func(n *node, _ *Options) {
		n.slow["event node-001 Evicted a"] = slower
		n.answers["event node-001 Evicted c"], n.answers["event node-001 Evicted e"] = errors.New("no"), errors.New("no")
	}, func(n *node, x *Executor) {
		const says = `log level=WARN msg="events about evictions are not recorded" dropped=`
		submit(x, calm("a"), calm("b"))
		n.take()
		pass(callTimeout)
		want(t, n.take(), says+`2 err="pod batch/a: context deadline exceeded"`)
		for _, name := range []string{"c", "d"} {
			submit(x, calm(name))
			if got := n.take(); strings.Contains(got, "log") {
				t.Error(got)
			}
		}
		submit(x, calm("e"))
		if got := n.take(); !strings.Contains(got, says+`1 err="pod batch/e: no"`) {
			t.Error(got)
		}
	})
	// An answer about one event alone costs that event.
	for code, dropped := range map[int]int{401: 3, 403: 1, 404: 1, 422: 1, 429: 3, 500: 3, 503: 3} {
		with(t, func(n *node, _ *Options) {
			n.slow["event node-001 Evicted a"] = time.Second
			n.answers["event node-001 Evicted a"] = &kube.Error{Request: "POST events", Code: code, Reason: "No"}
		}, func(n *node, x *Executor) {
			submit(x, calm("a"), calm("b"), calm("c"))
			n.take()
			pass(time.Second)
			lines := []string{fmt.Sprintf(`log level=WARN msg="events about evictions are not recorded" dropped=%d err="pod batch/a: POST events: %d No"`, dropped, code)}
			if dropped == 1 {
				lines = append(lines, "event node-001 Evicted b b-uid 0s", "event node-001 Evicted c c-uid 0s")
			}
			want(t, n.take(), lines...)
		})
	}
	with(t, func(n *node, _ *Options) { n.slow["event node-001 Evicted a"] = slower }, func(n *node, x *Executor) {
		submit(x, calm("a"))
		n.take()
		n.end()
		pass(callTimeout)
		want(t, n.take())
	})
}
