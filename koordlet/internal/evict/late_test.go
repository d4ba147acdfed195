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

// A pod that outlives its grace period is told of once; its containers are stopped while memory is in danger, and where that is
// wanted.
func TestOverduePod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stops  Stops
		danger bool
		pod    string
		stop   bool
	}{
		"calm":                    {stops: StopDanger},
		"danger, as it is wanted": {stops: StopEvicted, danger: true, stop: true},
		"danger, by any means":    {stops: StopDanger, danger: true, stop: true},
		"danger, never":           {stops: StopNever, danger: true},
		"danger, a daemon set's":  {stops: StopDanger, danger: true, pod: `,"ownerReferences":[{"kind":"DaemonSet","controller":true}]`},
	} {
		with(t, func(n *node, o *Options) {
			o.Grace, o.Stops = 8*time.Second, c.stops
			n.alive["a-uid"] = true
			n.put(pod("a", c.pod))
		}, func(n *node, x *Executor) {
			submit(x, calm("a"))
			want(t, n.take(), "evict a a-uid 8s", "= accepted a", "event node-001 Evicted a a-uid 0s")
			n.put(pod("a", c.pod+deleted))
			pass(8*time.Second + slack - check)
			x.Danger(c.danger)
			want(t, n.take())
			pass(2 * check)
			lines := []string{"= overdue a"}
			if c.stop {
				lines = append(lines, "stop a a-uid 0s", "= stopped a", "event node-001 ContainersStopped a a-uid 0s")
			}
			want(t, n.take(), lines...)
			if len(x.Leaving()) != 1 {
				t.Errorf("%s: leaving %v", name, x.Leaving())
			}
			for range 59 { // one that still runs is stopped again after a minute
				x.Danger(c.danger)
				pass(time.Second)
			}
			again := ""
			if c.stop {
				again = "stop a a-uid 0s\n= stopped a"
			}
			if got := n.take(); got != again {
				t.Errorf("%s: %q, want %q", name, got, again)
			}
			n.set(func() { n.alive["a-uid"] = false })
			pass(2 * check)
			want(t, n.take(), "= gone a")
		})
	}
}

// What is above Koordinator's priorities is not stopped on the node, whatever was decided.
func TestWhoIsNeverStopped(t *testing.T) {
	t.Parallel()
	critical := strings.Replace(pod("a", ""), `"spec":{`, `"spec":{"priority":2000001000,`, 1)
	with(t, func(n *node, o *Options) { o.API = nil; n.put(critical, pod("b", "")) }, func(n *node, x *Executor) {
		submit(x, danger("a"), danger("unknown"), danger("b"))
		pass(time.Second)
		want(t, n.take(), "= failed a: no API server", "= failed unknown: no API server", "stop b b-uid 5s")
	})
	with(t, func(_ *node, o *Options) { o.API, o.Stops = nil, StopEvicted }, func(n *node, x *Executor) {
		submit(x, danger("a"))
		pass(time.Second)
		want(t, n.take(), "= failed a: no API server")
	})
}

// An eviction that fails is not tried again at once, and later and later with each failure: the others have their turn.
func TestFailuresAreRemembered(t *testing.T) {
	t.Parallel()
	webhook := &kube.Error{Request: "POST eviction", Code: 403, Reason: "Forbidden"}
	with(t, func(n *node, _ *Options) { n.answers["evict a"] = webhook }, func(n *node, x *Executor) {
		for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			submit(x, calm("a"))
			want(t, n.take(), "evict a a-uid 20s", "= failed a: POST eviction: 403 Forbidden, pause "+pause.String())
			pass(pause - time.Second)
			if x.Held()["a-uid"] != evict.ByFailure {
				t.Errorf("%s: not held", pause)
			}
			pass(time.Second)
			if len(x.Held()) != 0 {
				t.Errorf("%s: held for ever", pause)
			}
		}
		pass(time.Minute)
		n.set(func() { n.answers["evict a"] = nil })
		submit(x, calm("a"))
		n.take()
		if len(x.held) != 0 {
			t.Errorf("what has worked is remembered: %v", x.held)
		}
	})
	// It is forgotten after a while, and what is no fault of the pod's is not held against it.
	with(t, func(n *node, _ *Options) {
		n.answers["evict a"] = webhook
		n.answers["evict b"] = errors.New("connection refused")
		n.answers["evict c"] = &kube.Error{Code: 429}
	}, func(n *node, x *Executor) {
		submit(x, calm("a"), calm("b"), calm("c"))
		n.take()
		if h := x.Held(); len(h) != 1 || h["a-uid"] != evict.ByFailure {
			t.Errorf("%v", h)
		}
		pass(31 * time.Second)
		if x.Held(); len(x.held) != 0 {
			t.Errorf("%v", x.held)
		}
	})
}

// The API server has no such pod: that is no eviction. Either it goes, or it is a pod as any other again.
func TestMissingPod(t *testing.T) {
	t.Parallel()
	for _, code := range []int{404, 409} {
		err := &kube.Error{Request: "POST eviction", Code: code, Reason: "Missing", Named: true}
		const says = "= missing a: POST eviction: "
		with(t, func(n *node, _ *Options) { n.answers["evict a"] = err }, func(n *node, x *Executor) {
			submit(x, calm("a"))
			if got := n.take(); !strings.HasPrefix(got, "evict a a-uid 20s\n"+says) || strings.Contains(got, "event") {
				t.Error(got)
			}
			n.put()
			pass(2 * time.Second)
			want(t, n.take(), "= gone a")
		})
		with(t, func(n *node, _ *Options) { n.answers["evict a"] = err }, func(n *node, x *Executor) {
			submit(x, calm("a"))
			n.take()
			pass(missingFor + check)
			want(t, n.take(), "= failed a: nobody ends it, pause 10s")
			if len(x.Leaving()) != 0 || x.Held()["a-uid"] != evict.ByFailure {
				t.Errorf("leaving %v, held %v", x.Leaving(), x.Held())
			}
		})
	}
}

// An answer that has led to nothing does not make a pod untouchable.
func TestAcceptedAndNotDeleted(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Grace = time.Second }, func(n *node, x *Executor) {
		submit(x, calm("a"))
		n.take()
		pass(time.Second + slack + check)
		want(t, n.take(), "= overdue a")
		for range missingFor / time.Second { // what is not being deleted is not stopped either
			x.Danger(true)
			pass(time.Second)
		}
		want(t, n.take(), "= failed a: nobody ends it, pause 10s")
		if len(x.Leaving()) != 0 {
			t.Errorf("leaving %v", x.Leaving())
		}
	})
}

// A pod of a long grace period is counted on until that is over.
func TestLongGrace(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Grace = 10 * time.Minute }, func(n *node, x *Executor) {
		n.put(strings.Replace(pod("a", ""), ":20}", ":300}", 1))
		pass(2 * time.Second)
		submit(x, calm("a"))
		at := n.clock()
		want(t, n.take(), "evict a a-uid 5m0s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		if got, till := x.Leaving()["a-uid"]+evict.DefaultPatience, at+micros(5*time.Minute+slack); got != till {
			t.Errorf("counted on until %d, want %d", got, till)
		}
	})
}

func TestReleaseText(t *testing.T) {
	t.Parallel()
	r := Release{
		Before: Usage{CPU: unit.Got[unit.MilliCPU](2500), NodeCPU: unit.Got[unit.MilliCPU](12000)},
		After:  Usage{CPU: unit.Got[unit.MilliCPU](500), NodeCPU: unit.Got[unit.MilliCPU](9500)},
	}
	got := r.Text(&evict.Eviction{CPU: 3000, Memory: 1 << 30})
	if want := "promised 1 GiB, its use was not measured; promised 3 CPUs, its use fell by 2 CPUs, the node's went from 12 CPUs to 9.5 CPUs"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFailureOverSockets: a budget's no, two budgets, a webhook's no and a pod of the same name, each by a real server's answer.
func TestFailureOverSockets(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/batch/pods"
	status := func(code int, message string) (int, string) {
		return code, fmt.Sprintf(`{"kind":"Status","code":%d,"message":%q,"details":{"name":"a"}}`, code, message)
	}
	for name, c := range map[string]struct {
		code    int
		message string
		want    Outcome
		held    evict.Held
	}{
		"two budgets": {500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", Refused, evict.ByBudget},
		"a webhook":   {403, "admission webhook denied the request", Failed, evict.ByFailure},
		"internal":    {500, "etcdserver: no space", Failed, evict.ByFailure},
		"another UID": {409, "the UID in the precondition does not match", Missing, evict.NotHeld},
		"too many":    {429, "come later", Failed, evict.NotHeld},
		"no server":   {503, "no endpoints", Failed, evict.NotHeld},
	} {
		server := kubetest.New(t)
		server.Put(t, path, pod("a", ""))
		server.Serve("/apis/events.k8s.io/v1/namespaces/batch/events")
		server.Fail(func(r *http.Request) (int, string) {
			if !strings.HasSuffix(r.URL.Path, "/eviction") {
				return 0, ""
			}
			return status(c.code, c.message)
		})
		client, err := kube.New(kube.Config{Server: server.URL, Trust: server.Trust})
		if err != nil {
			t.Fatal(err)
		}
		results, start := make(chan Result, 10), time.Now()
		empty := pods.New(pods.Options{})
		x, err := New(Options{
			API: client, Pods: empty.Snapshot, Node: "node-001", OnResult: func(r Result) { results <- r },
			Clock: func() unit.Micros { return micros(time.Since(start)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		x.carryOut(t.Context(), calm("a"))
		if r := <-results; r.Outcome != c.want || x.Held()["a-uid"] != c.held {
			t.Errorf("%s: %s, %v; held %v", name, r.Outcome, r.Err, x.Held())
		}
		if got := server.Object(path, "a")["metadata"].(kubetest.Object); got["deletionTimestamp"] != nil {
			t.Errorf("%s: deleted", name)
		}
		// In danger two budgets are no obstacle; a webhook's no is.
		x.carryOut(t.Context(), danger("a"))
		r := <-results
		if deleted := server.Requests("DELETE " + path); (len(deleted) == 1) != (c.held == evict.ByBudget) || len(deleted) == 1 && r.Outcome != Accepted {
			t.Errorf("%s in danger: %s, %v, %d deletions", name, r.Outcome, r.Err, len(deleted))
		}
		client.Close()
	}
}
