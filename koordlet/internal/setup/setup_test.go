// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	policy "github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

func TestNodeName(t *testing.T) {
	t.Parallel()
	broken := errors.New("no name")
	for name, c := range map[string]struct {
		configured, env, host string
		err                   error
		want                  string
	}{
		"configured": {"a", "b", "c", nil, "a"}, "environment": {"", "b", "c", nil, "b"}, "host": {"", "", "Node-1.Example", nil, "node-1.example"},
		"nobody": {"", "", "", broken, ""},
	} {
		got, err := nodeName(c.configured, func(string) string { return c.env }, func() (string, error) { return c.host, c.err })
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// off is a configuration that reaches no server.
func off() config.Koordlet {
	cfg := config.DefaultKoordlet()
	cfg.NodeName, cfg.APIServer.Mode, cfg.Kubelet.Endpoint = "node-1", config.APIServerOff, ""
	return cfg
}

// What a configuration leaves out is not there, is said, and is no error.
func TestWithoutServers(t *testing.T) {
	t.Parallel()
	cfg := off()
	c, err := newCluster(&cfg, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	want := []status.Source{{Name: "apiserver", State: status.StateOff, Reason: "no way to an API server is configured"}}
	if d := cmp.Diff(want, c.sources()); d != "" || c.Node() != nil || c.Strategy() != nil || len(c.components()) != 0 {
		t.Errorf("%s, node %v, strategy %v", d, c.Node(), c.Strategy())
	}
	c.close()
	k, err := newPods(&cfg, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := k.State(); s.Kubelet.Configured || s.API.Configured || s.Degraded() == "" {
		t.Errorf("%+v", s)
	}
	d := &Daemon{cfg: cfg, cluster: c, pods: k}
	if p, err := d.newPredictor(); p != nil || err != nil {
		t.Errorf("prediction for nobody: %v, %v", p, err)
	}
	if tell, err := d.reports(); tell != nil || err != nil {
		t.Errorf("reports to nobody: %v, %v", tell, err)
	}
	if x, err := d.newEvictor(nil); x == nil || err != nil {
		t.Errorf("evictions are not recorded: %v", err)
	}
}

// kubeconfig is a way to a server, by its URL.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
		"clusters: [{name: k, cluster: {server: \"" + server + "\"}}]\nusers: [{name: u, user: {token: t}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// With a way to a server there are reports and a prediction, and until it answers each object says that it is not known.
func TestServerThatDoesNotAnswerYet(t *testing.T) {
	t.Parallel()
	cfg := off()
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: kubeconfig(t, "http://127.0.0.1:1")}
	cfg.StateDir = t.TempDir()
	c, err := newCluster(&cfg, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var names []string
	if weak := c.sources()[0]; weak.Reason != "the API server is asked without TLS" {
		t.Errorf("no word of a way without TLS: %+v", weak)
	}
	for _, s := range c.sources() {
		names = append(names, s.Name)
		if s.State != status.StateDegraded || s.Reason == "" {
			t.Errorf("%+v", s)
		}
	}
	if d := cmp.Diff([]string{"apiserver", "node", "nodeslo", "nodemetric"}, names); d != "" || len(c.components()) != 3 {
		t.Errorf("%s, %d components", d, len(c.components()))
	}
	if c.Node() != nil || c.Strategy() != nil || c.Asked().Report != slo.DefaultCollect().Report || c.Asked().UID != "" {
		t.Errorf("%v, %v, %+v", c.Node(), c.Strategy(), c.Asked())
	}
	k, err := newPods(&cfg, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := k.State(); s.Kubelet.Configured || !s.API.Configured {
		t.Errorf("%+v", s)
	}
	d := &Daemon{cfg: cfg, cluster: c, pods: k, log: slog.New(slog.DiscardHandler)}
	if p, err := d.newPredictor(); p == nil || err != nil {
		t.Errorf("no prediction: %v", err)
	}
	if tell, err := d.reports(); len(tell) < 3 || err != nil {
		t.Errorf("%d reports, %v", len(tell), err)
	}
	d.cfg.Predict.Enable = false
	if p, err := d.newPredictor(); p != nil || err != nil {
		t.Errorf("prediction that is off: %v, %v", p, err)
	}
}

// Requests to API server and kubelet name the agent and its version, so that an audit log tells who asked.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	asked := make(chan [2]string, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- [2]string{r.URL.Path, r.UserAgent()}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer srv.Close()
	cfg := off()
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: kubeconfig(t, srv.URL)}
	c, err := newCluster(&cfg, "v1.2", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	kubelet, err := c.kubelet(&config.Kubelet{Endpoint: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = c.node.Run(ctx) }() // ends with ctx; what it says of a 403 is another test's matter
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/pods", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := kubelet.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for seen := map[bool]bool{}; len(seen) < 2; { // of the kubelet, and of the API server
		got := <-asked
		seen[got[0] == "/pods"] = true
		if got[1] != "koordlet/v1.2" {
			t.Errorf("%s: User-Agent %q", got[0], got[1])
		}
	}
}

// TestPodsThatAreAlive: a pod runs while one of its sandboxes has a process; a cgroup that has gone, or is not known, has none.
func TestPodsThatAreAlive(t *testing.T) {
	t.Parallel()
	has := func(cgroup string) (bool, error) {
		if cgroup == "/gone" {
			return true, os.ErrNotExist
		}
		return cgroup != "/ended", nil
	}
	for cgroup, want := range map[string]bool{"": false, "/gone": false, "/ended": false, "/pod": true} {
		if got := populated([]evict.Body{{Cgroup: "/ended"}, {Cgroup: cgroup}}, has); got != want {
			t.Errorf("%q: %v", cgroup, got)
		}
	}
}

// A kubelet that is named is asked, though files that it needs are not there.
func TestWrongWays(t *testing.T) {
	t.Parallel()
	cfg := off()
	cfg.Kubelet.Endpoint, cfg.Kubelet.CertFile, cfg.Kubelet.KeyFile = "https://127.0.0.1:1", "/none.crt", "/none.key"
	c, err := newCluster(&cfg, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Kubelet.CAFile, cfg.Kubelet.TokenFile = "/none", "/none"
	k, err := newPods(&cfg, c, nil)
	if err == nil && !k.State().Kubelet.Configured {
		t.Error("the kubelet is forgotten without a word")
	}
}

// The last evictions are kept for people, without the later steps of those that have been told.
func TestNewsOfEvictions(t *testing.T) {
	t.Parallel()
	var n news
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tell := func(pod string, o evict.Outcome) {
		n.evicted(&evict.Result{Eviction: policy.Eviction{Pod: pod, Namespace: "d", Name: pod, Reason: "why"}, Outcome: o}, at)
	}
	for i := range status.MaxEvictions {
		tell(fmt.Sprint(i), evict.Refused)
	}
	tell("a", evict.Accepted)
	tell("a", evict.Gone)
	tell("b", evict.Observed)
	got := n.evictions
	if len(got) != status.MaxEvictions || got[0].UID != "2" {
		t.Errorf("%d kept, first %+v", len(got), got[0])
	}
	want := status.Eviction{Time: at, Namespace: "d", Name: "a", UID: "a", Feature: policy.Feature(0).String(), Reason: "why", Outcome: status.OutcomeEvicted}
	if d := cmp.Diff(want, got[len(got)-2]); d != "" || got[len(got)-1].Outcome != status.OutcomeObserved {
		t.Errorf("%s, last %+v", d, got[len(got)-1])
	}
}

// What the loops know survives a restart of the agent, and a file that is none is said to be.
func TestStateFile(t *testing.T) {
	t.Parallel()
	f := stateFile(filepath.Join(t.TempDir(), "state.json"))
	if s, known, err := f.read(); err != nil || known || s.TierHeld {
		t.Errorf("before the first life: %+v, %v", s, err)
	}
	want := decide.State{TierHeld: true, Sysctl: sysctl.State{}}
	if err := f.write(want); err != nil {
		t.Fatal(err)
	}
	if got, known, err := f.read(); err != nil || !known || !got.TierHeld {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(string(f), []byte(`{"tierHeld":tr`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, known, err := f.read(); err == nil || known || got.TierHeld || !strings.Contains(err.Error(), string(f)) {
		t.Errorf("half a file: %+v, %v", got, err)
	}
}
