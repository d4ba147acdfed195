// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/sample"
)

// server is an API server that counts writes, and how often it is read.
type server struct {
	mu     sync.Mutex
	writes []time.Time
	reads  int
	last   any
	object string
	err    error
	// lost: what is written stands, and its answer does not come.
	lost error
}

func (s *server) ReplaceStatus(_ context.Context, r kube.Resource, name, manager string, status any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Group != slo.Group || name != "node-001" || manager != Manager {
		return errors.New("wrong object")
	}
	s.writes, s.last = append(s.writes, time.Now()), status
	if s.lost != nil {
		raw, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": name, "uid": "u"}, "status": status})
		s.object = string(raw)
		return errors.Join(err, s.lost)
	}
	return s.err
}

func (s *server) Get(context.Context, kube.Resource, string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return []byte(s.object), s.err
}

// read is how often it was read since the last call.
func (s *server) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.reads
	s.reads = 0
	return n
}

// since returns the writes since the last call, as seconds after start.
func (s *server) since(start time.Time) []int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []int{}
	for _, w := range s.writes {
		out = append(out, int(w.Sub(start)/time.Second))
	}
	s.writes = nil
	return out
}

func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// node001 is a node whose figures a test changes.
type node001 struct {
	mu      sync.Mutex
	cores   float64
	object  string
	policy  slo.Collect
	silent  bool
	nothing *pods.Snapshot
}

func (n *node001) set(edit func(*node001)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	edit(n)
}

func (n *node001) input() (Input, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w, at := filled(2, []figure{{sample.OfNode(), n.cores, gib}})
	return Input{Now: time.Now(), At: at, Window: w, Object: n.object, Policy: n.policy, Pods: n.nothing, Capacity: Figures{CPU: 32000}}, !n.silent
}

// reporting runs a Metrics in a bubble of simulated time.
func reporting(t *testing.T, test func(m *Metrics, api *server, n *node001)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api, n := &server{}, &node001{cores: 8, policy: slo.DefaultCollect(), nothing: pods.New(pods.Options{}).Snapshot()}
		m, err := NewMetrics(MetricsOptions{API: api, Node: "node-001", Input: n.input})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(DefaultCheck)
		synctest.Wait()
		test(m, api, n)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// TestQuietNodeReportsOncePerInterval: one that stands still, and one whose use goes up and down within the band of what is news.
func TestQuietNodeReportsOncePerInterval(t *testing.T) {
	t.Parallel()
	for name, wobble := range map[string]float64{"still": 0, "wobbling": 0.35} { // of 8 cores: 10 % of the larger would be news
		reporting(t, func(m *Metrics, api *server, n *node001) {
			if got := api.since(time.Now()); len(got) != 1 {
				t.Errorf("%s: %d writes at the start", name, len(got))
			}
			start := time.Now()
			for i := range 600 {
				n.set(func(n *node001) { n.cores = 8 + wobble*math.Sin(float64(i)) })
				m.Poke()
				time.Sleep(time.Second)
			}
			got := api.since(start)
			if len(got) < 9 || len(got) > 11 {
				t.Errorf("%s: writes at %v in ten minutes", name, got)
			}
			for i := 1; i < len(got); i++ {
				if gap := got[i] - got[i-1]; gap < 57 || gap > 63 { // 60 s ± 5 %
					t.Errorf("%s: writes at %v", name, got)
				}
			}
			if s := m.State(); s.News != 0 || s.Err != nil || s.Writes < 10 {
				t.Errorf("%s: %+v", name, s)
			}
		})
	}
}

// TestNodesDoNotReportInStep: each interval is another one, up to 5 % shorter or longer, so that nodes which once report together drift apart: the
// API server would have their writes in bursts.
func TestNodesDoNotReportInStep(t *testing.T) {
	t.Parallel()
	// An hour of a quiet node, as the milliseconds between two reports.
	gaps := func() (out []int64) {
		reporting(t, func(_ *Metrics, api *server, _ *node001) {
			time.Sleep(time.Hour)
			synctest.Wait()
			api.mu.Lock()
			defer api.mu.Unlock()
			for i := 1; i < len(api.writes); i++ {
				out = append(out, api.writes[i].Sub(api.writes[i-1]).Milliseconds())
			}
		})
		return out
	}
	one, other := gaps(), gaps()
	for _, node := range [][]int64{one, other} {
		if len(node) < 57 || len(node) > 63 {
			t.Errorf("%d intervals in an hour", len(node))
		}
		short, long := 0, 0
		for _, gap := range node {
			if gap < 57000 || gap > 63000 {
				t.Errorf("%d ms between two reports", gap)
			}
			if gap < 59000 {
				short++
			} else if gap > 61000 {
				long++
			}
		}
		// A third each: fewer than three of 57 come by chance once in a million runs.
		if short < 3 || long < 3 {
			t.Errorf("%d of %d intervals are a second shorter than a minute, %d longer: %v", short, len(node), long, node)
		}
	}
	if slices.Equal(one, other) {
		t.Errorf("two nodes report in step: %v", one)
	}
}

func TestNewsIsReportedEarly(t *testing.T) {
	t.Parallel()
	reporting(t, func(m *Metrics, api *server, n *node001) {
		api.since(time.Now())
		start := time.Now()
		time.Sleep(20 * time.Second)
		n.set(func(n *node001) { n.cores = 12 })
		m.Poke()
		if got := api.since(start); len(got) != 1 {
			t.Errorf("writes at %v", got)
		}
		for range 20 { // a node that never stands still
			n.set(func(n *node001) { n.cores = 20 - n.cores })
			m.Poke()
			time.Sleep(time.Second)
		}
		if got := api.since(start); len(got) > 2 {
			t.Errorf("writes at %v: more than one per %s", got, DefaultCheck)
		}
		if m.State().News == 0 {
			t.Error("no news counted")
		}
	})
}

func TestIntervalChanges(t *testing.T) {
	t.Parallel()
	reporting(t, func(m *Metrics, api *server, n *node001) {
		api.since(time.Now())
		n.set(func(n *node001) { n.policy.Report = 30 * time.Second })
		m.Poke()
		start := time.Now()
		time.Sleep(10 * time.Minute)
		if got := api.since(start); len(got) < 18 || len(got) > 22 {
			t.Errorf("%d writes in ten minutes, want 20: %v", len(got), got)
		}
	})
}

// TestAnotherObjectHasNoReport: what takes the place of a NodeMetric that was deleted is reported to as soon as it is seen, however short a
// time ago the last report was; the object that stands is not, when it is seen after the first report.
func TestAnotherObjectHasNoReport(t *testing.T) {
	t.Parallel()
	reporting(t, func(m *Metrics, api *server, n *node001) {
		sees := func(uid string) {
			n.set(func(n *node001) { n.object = uid })
			m.Poke()
		}
		start := time.Now()
		api.since(start)
		sees("first")
		time.Sleep(12 * time.Second)
		if got := api.since(start); len(got) != 0 {
			t.Errorf("writes at %v to the object that has its report", got)
		}
		for _, uid := range []string{"second", "third"} {
			sees(uid)
			if got := api.since(start); len(got) != 1 {
				t.Errorf("writes at %v to the %s object, want one at once", got, uid)
			}
			m.Poke()
			time.Sleep(3 * time.Second)
		}
		start = time.Now()
		time.Sleep(45 * time.Second) // the next report is due after 54 s at the earliest
		if got := api.since(start); len(got) != 0 {
			t.Errorf("writes at %v, and nothing has changed since the third object's report", got)
		}
		if s := m.State(); s.News != 2 {
			t.Errorf("%d reports that did not wait for their interval, want 2", s.News)
		}

		// It is away while a report is due.
		api.fail(&kube.Error{Code: 404, Named: true})
		time.Sleep(time.Minute)
		if got := api.since(start); len(got) != 1 || m.State().Failures != 1 {
			t.Errorf("attempts at %v without an object, %+v", got, m.State())
		}
		api.fail(nil)
		sees("fourth")
		if got := api.since(start); len(got) != 1 || m.State().Err != nil {
			t.Errorf("writes at %v to the fourth object, %v", got, m.State().Err)
		}

		// It cannot be written to yet.
		api.fail(&kube.Error{Code: 403})
		sees("fifth")
		api.since(start)
		api.fail(nil)
		start = time.Now()
		time.Sleep(2 * DefaultCheck)
		if got := api.since(start); len(got) != 1 {
			t.Errorf("writes at %v to the fifth object, want one that is repeated", got)
		}
	})
}

func TestReportingFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err       error
		low, high int
	}{
		"no object yet: once per interval": {&kube.Error{Code: 404, Named: true}, 9, 11},
		"no CRD yet: once per interval":    {&kube.Error{Code: 404}, 9, 11},
		"server away: rarer and rarer":     {errors.New("connection refused"), 9, 14},
		"the server asks for patience":     {&kube.Error{Code: 429, RetryAfter: time.Minute}, 9, 11},
	} {
		reporting(t, func(m *Metrics, api *server, _ *node001) {
			api.since(time.Now())
			time.Sleep(time.Minute)
			api.fail(c.err)
			api.since(time.Now())
			start := time.Now()
			time.Sleep(10 * time.Minute)
			got := api.since(start)
			if len(got) < c.low || len(got) > c.high || m.State().Err == nil {
				t.Errorf("%s: %d attempts in ten minutes: %v", name, len(got), got)
			}
			api.fail(nil)
			m.Poke() // the object was made
			if got := api.since(start); len(got) != 1 || m.State().Err != nil || m.State().Failures != 0 {
				t.Errorf("%s: writes at %v, %+v", name, got, m.State())
			}
		})
	}
	reporting(t, func(_ *Metrics, api *server, n *node001) {
		n.set(func(n *node001) { n.silent = true })
		api.since(time.Now())
		time.Sleep(5 * time.Minute)
		if got := api.since(time.Now()); len(got) != 0 {
			t.Errorf("writes though nothing is known: %v", got)
		}
	})
	if _, err := NewMetrics(MetricsOptions{}); err == nil {
		t.Error("a reporter without anything")
	}
}

// TestOverSockets: both statuses reach an API server, and a restart keeps the transition times.
func TestOverSockets(t *testing.T) {
	t.Parallel()
	const slos, metrics = "/apis/slo.koordinator.sh/v1alpha1/nodeslos", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
	api := kubetest.New(t)
	old := slo.At(time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC))
	status, _ := StrategyStatus(slo.NodeSLOStatus{}, &InForce{UID: "u", Generation: 1, Features: states()}, old.Time)
	api.Put(t, slos, `{"metadata":{"name":"node-001","uid":"u"},"status":`+text(t, status)+`}`)
	api.Put(t, metrics, `{"metadata":{"name":"node-001","uid":"m"},"status":{"podsMetric":[{"name":"gone"}]}}`)
	client, err := kube.New(kube.Config{Server: api.URL, Trust: api.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := NewStrategy(client, "node-001")
	s.Put(InForce{UID: "u", Generation: 2, Features: states()})
	if err := s.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got slo.NodeSLOStatus
	reread(t, api.Object(slos, "node-001")["status"], &got)
	if got.ObservedGeneration != 2 || got.Conditions[1].LastTransitionTime != old || !got.NodeMetric.UpdateTime.After(old.Time) {
		t.Errorf("%+v", got)
	}

	in := documents(t)
	m, err := NewMetrics(MetricsOptions{API: client, Node: "node-001", Input: func() (Input, bool) { return in, true }})
	if err != nil {
		t.Fatal(err)
	}
	m.look(t.Context())
	var reported slo.NodeMetricStatus
	reread(t, api.Object(metrics, "node-001")["status"], &reported)
	if d := cmp.Diff(text(t, Build(&in)), text(t, reported)); d != "" || m.State().Err != nil {
		t.Errorf("%v %s", m.State().Err, d)
	}
}

func reread(t *testing.T, from, to any) {
	t.Helper()
	raw, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}
