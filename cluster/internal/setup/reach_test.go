// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/koord-rt/koord-rt/test/lab"
)

// apiServer has a scripted API server; what a handler breaks off is nobody's error.
func apiServer(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// processAt is a koord-manager of one role at that API server.
func processAt(t *testing.T, url, role string) *process {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return &process{
		o: Options{
			Roles: []string{role}, Controllers: []string{"noderesource"}, Elect: true,
			Namespace: "koordinator-system", ConfigNamespace: "koordinator-system", ConfigName: "slo-controller-config",
		},
		rest: &rest.Config{Host: url}, scheme: scheme, log: slog.New(slog.DiscardHandler), again: time.Millisecond,
		leader: prometheus.NewGauge(prometheus.GaugeOpts{Name: "leads"}),
	}
}

// discovered answers what kinds there are; false for any other question, and for those of Koordinator's kinds if there are none yet.
func discovered(w http.ResponseWriter, path string, defined bool) bool {
	text := map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","groups":[{"name":"slo.koordinator.sh","versions":[{"groupVersion":"slo.koordinator.sh/v1alpha1","version":"v1alpha1"}],
			"preferredVersion":{"groupVersion":"slo.koordinator.sh/v1alpha1","version":"v1alpha1"}}]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod"},{"name":"nodes","kind":"Node"},
			{"name":"configmaps","namespaced":true,"kind":"ConfigMap"}]}`,
		"/apis/slo.koordinator.sh/v1alpha1": `{"kind":"APIResourceList","groupVersion":"slo.koordinator.sh/v1alpha1","resources":[
			{"name":"nodemetrics","kind":"NodeMetric"},{"name":"nodeslos","kind":"NodeSLO"}]}`,
	}[path]
	if text == "" || !defined && strings.Contains(path, "slo.koordinator.sh") {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
	return true
}

// An API server that is away, not ready, has not read its roles yet, or ends in the middle of an answer is waited for; something that
// is no API server is not.
func TestServingWaitsForTheAPIServer(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	p := processAt(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // the connection is gone in the middle
		case 3:
			w.WriteHeader(http.StatusForbidden)
		case 4:
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"kind":`))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			_, _ = w.Write([]byte("what is an API?"))
		}
	}), RoleWebhook)
	mgr, err := p.serving(t.Context())
	if mgr != nil || err == nil || asked.Load() != 5 {
		t.Errorf("%v, %v after %d questions; want an error after 5", mgr, err, asked.Load())
	}
}

func TestServingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := processAt(t, "http://127.0.0.1:1", RoleSLO)
	p.again = time.Hour
	if mgr, err := p.serving(ctx); mgr != nil || err != nil {
		t.Errorf("%v, %v; want neither", mgr, err)
	}
}

// probe asks a probe until it answers.
func probe(t *testing.T, url string) int {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close() // only the status is of interest
			return resp.StatusCode
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A manager that waits is alive and not ready, and leaves its address to the one that it becomes.
func TestProbesBeforeTheAPIServer(t *testing.T) {
	t.Parallel()
	var there atomic.Bool
	p := processAt(t, apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !there.Load() || !discovered(w, r.URL.Path, true) {
			w.WriteHeader(http.StatusForbidden)
		}
	}), RoleSLO)
	address, err := lab.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	p.o.Health = address
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		mgr, err := p.serving(ctx)
		if err == nil && mgr != nil {
			err = mgr.Start(ctx)
		}
		ended <- err
	}()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if got := probe(t, "http://"+p.o.Health+path); got != want {
			t.Errorf("%s while it waits: %d, want %d", path, got, want)
		}
	}
	there.Store(true)
	for end := time.Now().Add(60 * time.Second); probe(t, "http://"+p.o.Health+"/readyz") != http.StatusOK; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready with an API server that answers")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestProbesNeedAnAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := processAt(t, "http://127.0.0.1:1", RoleSLO)
	p.o.Health = l.Addr().String()
	if mgr, err := p.serving(t.Context()); mgr != nil || err == nil || !strings.Contains(err.Error(), "listen for probes") {
		t.Errorf("%v, %v at an address that is taken", mgr, err)
	}
}

// Controllers whose kinds or rights are not there yet stand for election again, and nobody else notices. They end when they are told to,
// though they still wait for what they may not read.
func TestControllersOutliveRefusals(t *testing.T) {
	t.Parallel()
	var kinds atomic.Int32
	pods := make(chan struct{}, 1)
	p := processAt(t, apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		defined := !strings.Contains(r.URL.Path, "slo.koordinator.sh") || kinds.Add(1) > 2
		switch {
		case discovered(w, r.URL.Path, defined):
		case !defined:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
		if r.URL.Path == "/api/v1/pods" {
			select {
			case pods <- struct{}{}:
			default:
			}
		}
	}), RoleSLO)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.controllers(ctx) }()
	select {
	case <-pods:
	case err := <-ended:
		t.Fatalf("the controllers have ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatalf("the controllers do not go on once their kinds are there; asked %d times", kinds.Load())
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Error("controllers without rights do not end")
	}
}
