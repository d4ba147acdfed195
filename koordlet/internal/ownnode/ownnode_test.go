// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ownnode

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
)

const node = "node-001"

// server answers by the name of the object that is asked for.
type server struct {
	mu         sync.Mutex
	own, other error
	asked      []string
}

func (s *server) Try(_ context.Context, r kube.Resource, object any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _ := object.(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if r != kube.NodeResourceTopologies {
		name = r.String()
	}
	s.asked = append(s.asked, name)
	if name == node {
		return s.own
	}
	return s.other
}

// says changes what the server answers.
func (s *server) says(own, other error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own, s.other = own, other
}

// since is how often it was asked since the last call, each time for the node's own object and perhaps for the other one.
func (s *server) since() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := strings.Count(strings.Join(s.asked, " "), node)
	s.asked = nil
	return n
}

func answer(code int, message string) error { return &kube.Error{Code: code, Message: message} }

// Each pair of answers, after one by which the agent was held. Only the name makes the difference: who may not make its own object is told
// nothing by a refusal of the other one.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	policy := answer(403, "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: another node's")
	for name, c := range map[string]struct {
		own, other error
		want       Verdict
		asked      int
		unanswered bool
	}{
		"held":                         {nil, policy, Held, 2, false},
		"held, its own is there":       {answer(409, "exists"), policy, Held, 2, false},
		"held by a policy without 403": {nil, answer(422, "denied request"), Held, 2, false},
		"held by a webhook":            {nil, answer(400, "denied the request"), Held, 2, false},
		"loose":                        {nil, nil, Loose, 2, false},
		"loose, both are there":        {answer(409, "exists"), answer(409, "exists"), Loose, 2, false},
		"a token of no node":           {policy, policy, Unknown, 1, true},
		"no right":                     {answer(403, `User "koordlet" cannot create resource`), nil, Unknown, 1, true},
		"no token":                     {answer(401, "Unauthorized"), nil, Unknown, 1, true},
		"kind not served":              {answer(404, "not found"), nil, Unknown, 1, true},
		"dry runs refused":             {answer(400, "does not support dry run"), nil, Unknown, 1, true},
		"denied in between":            {nil, answer(401, "Unauthorized"), Unknown, 2, true},
		"away":                         {errors.New("connection refused"), nil, Held, 1, true},
		"away in between":              {nil, errors.New("connection refused"), Held, 2, true},
		"broken":                       {answer(500, "internal error"), nil, Held, 1, true},
		"busy":                         {answer(429, "too many requests"), nil, Held, 1, true},
		"starting":                     {answer(503, "not ready"), nil, Held, 1, true},
	} {
		var log strings.Builder
		api := &server{}
		w := New(api, node, slog.New(slog.NewTextHandler(&log, nil)))
		first := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		api.says(nil, policy)
		w.look(t.Context(), first)
		api.says(c.own, c.other)
		api.asked = nil
		w.look(t.Context(), first.Add(time.Hour))
		s := w.State()
		if s.Verdict != c.want || (s.Err != nil) != c.unanswered || len(api.asked) != c.asked || api.asked[0] != node {
			t.Errorf("%s: %+v, asked for %q", name, s, api.asked)
		}
		changed := c.want != Held
		if s.Since.Equal(first) == changed || strings.Count(log.String(), "\n") != map[bool]int{false: 1, true: 2}[changed] {
			t.Errorf("%s: since %s, log:\n%s", name, s.Since, log.String())
		}
	}
	w := New(&server{own: errors.New("connection refused")}, node, slog.New(slog.DiscardHandler))
	if *w.State() != (State{}) {
		t.Errorf("before it was asked: %+v", w.State())
	}
	w.look(t.Context(), time.Now())
	if s := w.State(); s.Verdict != Unknown || s.Err == nil {
		t.Errorf("a server that has never answered: %+v", s)
	}
}

// It asks soon and ever less often while it is not held, so that a policy that is applied is noticed, and once an hour when it is.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &server{}
		w := New(api, node, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		is := func(what string, want Verdict, low, high int) {
			t.Helper()
			synctest.Wait()
			if n := api.since(); n < low || n > high || w.State().Verdict != want {
				t.Errorf("%s: asked %d times, want %d to %d: %+v", what, n, low, high, w.State())
			}
		}
		time.Sleep(25 * time.Second)
		is("at first, and soon again", Loose, 2, 2)
		time.Sleep(time.Hour)
		is("an hour without a policy", Loose, 6, 9)
		time.Sleep(10 * time.Hour)
		is("ten more", Loose, 8, 12)
		api.says(nil, answer(403, "denied request"))
		time.Sleep(every + every/10)
		is("a policy", Held, 1, 2)
		time.Sleep(10 * time.Hour)
		is("ten hours with it", Held, 9, 11)
		api.says(nil, nil)
		time.Sleep(every + every/10)
		is("without it again", Loose, 5, 10)
		api.says(&kube.Error{Code: 429, RetryAfter: 10 * every}, nil)
		time.Sleep(every + every/10)
		api.since()
		time.Sleep(8 * every)
		is("the server asks for patience", Loose, 0, 0)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// Over sockets nothing is stored by a question.
func TestOverSockets(t *testing.T) {
	t.Parallel()
	const path = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
	api := kubetest.New(t)
	api.Serve(path)
	client, err := kube.New(kube.Config{Server: api.URL, Trust: api.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w := New(client, node, slog.New(slog.DiscardHandler))
	w.look(t.Context(), time.Now())
	if s := w.State(); s.Verdict != Loose || s.Err != nil {
		t.Errorf("%+v", s)
	}
	for _, name := range []string{node, Elsewhere} {
		if o := api.Object(path, name); o != nil {
			t.Errorf("%s is stored: %v", name, o)
		}
	}
	asked := api.Requests("")
	for _, r := range asked {
		if r.Method != "POST" || r.Path != path || r.Query != "dryRun=All" || r.Body["kind"] != "NodeResourceTopology" {
			t.Errorf("%+v", r)
		}
	}
	if len(asked) != 2 {
		t.Errorf("%d questions", len(asked))
	}
}
