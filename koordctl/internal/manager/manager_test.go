// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package manager

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/unit"
)

// recorded is how koord-manager's metrics read: two nodes that lend, one whose report is too old, and one of which nothing is told.
func recorded(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func amounts(milli unit.MilliCPU, gib unit.Bytes) status.Usage {
	gib <<= 30
	return status.Usage{CPU: &milli, Memory: &gib}
}

var nodes = []Node{
	{
		Name: "node-a", Limit: amounts(60000, 100), Usage: amounts(20000, 40), ShortTerm: amounts(62000, 90), LongTerm: amounts(35000, 60),
		Batch: amounts(38000, 38), Mid: amounts(25000, 40),
	},
	{
		Name: "node-b", Limit: amounts(4500, 8), Usage: amounts(21250, 6), ShortTerm: amounts(5125, 7), LongTerm: amounts(4500, 8),
		Batch: amounts(2875, 1), Mid: amounts(0, 0), Problems: 2,
	},
	{Name: "node-c", Limit: amounts(2000, 4), ShortTerm: amounts(4000, 16), LongTerm: amounts(2000, 4)},
	{Name: "node-d", Problems: 1},
}

func TestParse(t *testing.T) {
	t.Parallel()
	p, err := parse(strings.NewReader(recorded(t)), "x")
	if err != nil || !reflect.DeepEqual(p, &Picture{From: "x", Nodes: nodes}) {
		t.Errorf("%v: %+v", err, p)
	}
	total := p.Total()
	want := Node{
		Limit: amounts(66500, 112), Usage: amounts(41250, 46), ShortTerm: amounts(71125, 113), LongTerm: amounts(41500, 72),
		Batch: amounts(40875, 39), Mid: amounts(25000, 40), Problems: 3,
	}
	if !reflect.DeepEqual(total, want) {
		t.Errorf("total %+v", total)
	}
	if p.Nodes[0].Limit.CPU == total.Limit.CPU || *p.Nodes[0].Limit.CPU != 60000 {
		t.Error("the sum is written into the first node")
	}
	for text, want := range map[string]error{
		"": errNotManager, "go_goroutines 7\n": errNotManager, "koordinator_manager_is_leader 0\n": ErrNoLeader, "{{{\n": nil,
	} {
		if _, err := parse(strings.NewReader(text), "x"); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	// What is no amount is not known; a line of a later release is passed over.
	p, err = parse(strings.NewReader("koordinator_manager_is_leader 1\n"+
		"koord_rt_manager_node_line{node=\"a\",line=\"limit\",resource=\"cpu\"} NaN\nkoord_rt_manager_node_line{node=\"a\",line=\"limit\",resource=\"memory\"} -1\n"+
		"koord_rt_manager_node_line{node=\"a\",line=\"usage\",resource=\"cpu\"} +Inf\nkoord_rt_manager_node_line{node=\"a\",line=\"new\",resource=\"cpu\"} 1\n"), "x")
	if err != nil || !reflect.DeepEqual(p.Nodes, []Node{{Name: "a"}}) {
		t.Errorf("%v: %+v", err, p)
	}
}

// apiServer is what kubectl proxy shows of the API server, in its own words: the lease, and the metrics of the pod that holds it.
func apiServer(t *testing.T, holder string) (h http.Handler, asked *[]string) {
	t.Helper()
	asked = new([]string)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path)
		switch r.URL.Path {
		case "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koordinator-manager":
			_, _ = io.WriteString(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"koordinator-manager"},`+
				`"spec":{"holderIdentity":"`+holder+`","leaseDurationSeconds":15,"leaseTransitions":3}}`)
		case "/api/v1/namespaces/koordinator-system/pods/koord-manager-6d5c-x7k2:8080/proxy/metrics":
			_, _ = io.WriteString(w, recorded(t))
		case "/elsewhere":
			http.Redirect(w, r, "/api/v1/namespaces/koordinator-system/pods/koord-manager-6d5c-x7k2:8080/proxy/metrics", http.StatusFound)
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"pods \"x\" is forbidden"}`)
		}
	}), asked
}

func TestRead(t *testing.T) {
	t.Parallel()
	h, asked := apiServer(t, "koord-manager-6d5c-x7k2_0b8f1c1e-7c7e-4b7c-9d5e-0f3a3f4b5c6d")
	tcp := httptest.NewServer(h)
	t.Cleanup(tcp.Close)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	source := func(via string) Source { return Source{Via: via, Namespace: "koordinator-system", Port: 8080} }
	for _, via := range []string{tcp.URL, tcp.URL + "/", "unix:" + socket} {
		p, err := Read(t.Context(), source(via))
		if err != nil || p.From != "koordinator-system/koord-manager-6d5c-x7k2" || !reflect.DeepEqual(p.Nodes, nodes) {
			t.Errorf("%s: %v: %+v", via, err, p)
		}
	}
	if want := []string{
		"GET /apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koordinator-manager",
		"GET /api/v1/namespaces/koordinator-system/pods/koord-manager-6d5c-x7k2:8080/proxy/metrics",
	}; !slices.Equal((*asked)[:2], want) || len(*asked) != 6 {
		t.Errorf("asked %q", *asked)
	}
	direct := Source{Metrics: tcp.URL + "/api/v1/namespaces/koordinator-system/pods/koord-manager-6d5c-x7k2:8080/proxy/metrics"}
	if p, err := Read(t.Context(), direct); err != nil || !reflect.DeepEqual(p.Nodes, nodes) {
		t.Errorf("%v: %+v", err, p)
	}
	if p, err := Read(t.Context(), Source{Metrics: "-", In: strings.NewReader(recorded(t))}); err != nil || !reflect.DeepEqual(p.Nodes, nodes) {
		t.Errorf("%v: %+v", err, p)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for says, try := range map[string]func() (*Picture, error){
		"403 Forbidden": func() (*Picture, error) {
			return Read(t.Context(), Source{Via: tcp.URL, Namespace: "other", Port: 8080})
		},
		`pods \"x\" is forbidden`: func() (*Picture, error) {
			return Read(t.Context(), Source{Via: tcp.URL, Namespace: "koordinator-system", Port: 1})
		},
		"302 Found":                 func() (*Picture, error) { return Read(t.Context(), Source{Metrics: tcp.URL + "/elsewhere"}) },
		"want http://host:port":     func() (*Picture, error) { return Read(t.Context(), source("127.0.0.1:8001")) },
		"--metrics unix:relative":   func() (*Picture, error) { return Read(t.Context(), Source{Metrics: "unix:relative"}) },
		"is kubectl proxy running,": func() (*Picture, error) { return Read(t.Context(), source("unix:"+socket+"-not")) },
		"context canceled":          func() (*Picture, error) { return Read(gone, source(tcp.URL)) },
	} {
		if _, err := try(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	for _, holder := range []string{"", "nobody", "_x"} {
		h, _ := apiServer(t, holder)
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		if _, err := Read(t.Context(), source(s.URL)); err == nil || !strings.Contains(err.Error(), "is it running?") {
			t.Errorf("holder %q: %v", holder, err)
		}
	}
}

// TestBareAddress: an address without a path is that of a koord-manager.
func TestBareAddress(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, recorded(t)) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for _, address := range []string{s.URL, s.URL + "/metrics"} {
		if p, err := Read(t.Context(), Source{Metrics: address}); err != nil || len(p.Nodes) != 4 {
			t.Errorf("%s: %v", address, err)
		}
	}
}
