// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubeletopt

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust/trusttest"
	"github.com/koord-rt/koord-rt/model/topo"
)

// answer is what a kubelet 1.36 tells at /configz, cut to what is near the fields that are read.
const answer = `{"kubeletconfig":{"enableServer":true,"syncFrequency":"2s","cgroupDriver":"cgroupfs","cpuManagerPolicy":"static",` +
	`"cpuManagerPolicyOptions":{"distribute-cpus-across-numa":"true"},"cpuManagerReconcilePeriod":"10s","memoryManagerPolicy":"None",` +
	`"topologyManagerPolicy":"best-effort","topologyManagerScope":"pod","systemReserved":{"cpu":"200m","memory":"64Mi"},` +
	`"kubeReserved":{"cpu":"300m"},"reservedSystemCPUs":"0-1","maxPods":110}}`

// file is a kubeadm configuration file.
const file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n" +
	"cpuManagerPolicyOptions:\n  full-pcpus-only: true\nkubeReserved:\n  cpu: 1.5\n"

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Options{
		answer: {
			CPUPolicy: "static", CPUOptions: map[string]string{"distribute-cpus-across-numa": "true"}, ReservedCPUs: topo.CPUs(0, 1), ReservedCPU: 500,
			TopologyPolicy: "best-effort", TopologyScope: "pod",
		},
		file: {
			CPUPolicy: "static", CPUOptions: map[string]string{"full-pcpus-only": "true"}, ReservedCPU: 1500,
			TopologyPolicy: "none", TopologyScope: "container",
		},
		`{"kubeletconfig":{}}`:       {CPUPolicy: "none", TopologyPolicy: "none", TopologyScope: "container"},
		"kind: KubeletConfiguration": {CPUPolicy: "none", TopologyPolicy: "none", TopologyScope: "container"},
	} {
		got, err := Parse([]byte(text))
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%.60s: %v (-want +got):\n%s", text, err, d)
		}
	}
	for text, want := range map[string]string{
		"":                       "neither an answer",
		"[]":                     "parse the kubelet's configuration",
		`{"kind":"Status"}`:      "neither an answer",
		"\tkind: x":              "parse the kubelet's configuration",
		strings.Repeat("#", 2e6): "longer than",
		"kind: KubeletConfiguration\n" + strings.Repeat("a:\n", 1000):                                     "duplicate key",
		"kind: KubeletConfiguration\nkubeReserved: {" + manyKeys() + "}\n":                                "too large",
		`{"kubeletconfig":{"reservedSystemCPUs":"x"}}`:                                                    "reservedSystemCPUs",
		`{"kubeletconfig":{"kubeReserved":{"cpu":"-1"}}}`:                                                 "kubeReserved",
		`{"kubeletconfig":{"systemReserved":{"cpu":["1"]}}}`:                                              "not a single value",
		`{"kubeletconfig":{"cpuManagerPolicy":"` + strings.Repeat("x", 200) + `"}}`:                       "is no policy",
		`{"kubeletconfig":{"cpuManagerPolicyOptions":{"` + strings.Repeat("x", 200) + `":"true"}}}`:       "is no option",
		`{"kubeletconfig":{"cpuManagerPolicyOptions":{` + strings.Join(manyOptions(), ",") + `}}}`:        "more than 32",
		`{"kubeletconfig":{"topologyManagerScope":"` + strings.Repeat("pod", 100) + `","maxPods":"ten"}}`: "is no policy",
	} {
		if got, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %+v, %v; want an error about %s", text, got, err, want)
		}
	}
}

func manyKeys() string {
	var b strings.Builder
	for i := range 30_000 {
		b.WriteString("a" + strconv.Itoa(i) + ": 1, ")
	}
	return b.String()
}

func manyOptions() (out []string) {
	for i := range 33 {
		out = append(out, `"o`+strconv.Itoa(i)+`":"true"`)
	}
	return out
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(answer))
	f.Add([]byte(file))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := Parse(b)
		if err != nil {
			return
		}
		if o.CPUPolicy == "" || o.TopologyPolicy == "" || o.TopologyScope == "" || o.ReservedCPU < 0 || len(o.CPUOptions) > maxOptions {
			t.Fatalf("%+v", o)
		}
	})
}

// machine has two sockets of two cores with two threads each; threads of a core are four CPUs apart.
func machine() *topo.Topology {
	var cpus []topo.CPU
	for id := range 8 {
		cpus = append(cpus, topo.CPU{ID: id, Core: id % 4, Socket: id % 4 / 2, Node: id % 4 / 2})
	}
	return topo.New(cpus, topo.CPUs(0, 1))
}

func TestStaticReserved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{CPUPolicy: PolicyStatic, ReservedCPU: 500}, "0"},
		{Options{CPUPolicy: PolicyStatic, ReservedCPU: 1500}, "0,4"},
		{Options{CPUPolicy: PolicyStatic, ReservedCPU: 3000}, "0-1,4"},
		{Options{CPUPolicy: PolicyStatic, ReservedCPU: 100000}, "0-7"},
		{Options{CPUPolicy: PolicyStatic, ReservedCPU: 500, ReservedCPUs: topo.CPUs(6, 7, 99)}, "6-7"},
		{Options{CPUPolicy: PolicyStatic}, ""},
		{Options{CPUPolicy: PolicyNone, ReservedCPU: 500, ReservedCPUs: topo.CPUs(6)}, ""},
	} {
		if got := c.o.StaticReserved(machine()).String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.o, got, c.want)
		}
	}
	if got := (&Options{CPUPolicy: PolicyStatic, ReservedCPU: 500}).StaticReserved(nil); !got.Empty() {
		t.Errorf("of an unknown machine: %s", got)
	}
}

// kubelet is one that answers as code says: TLS with its self-signed certificate, bearer tokens.
func kubelet(t *testing.T, code *atomic.Int32) (*httptest.Server, *trust.Client) {
	t.Helper()
	now := time.Now()
	pair := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/configz" || r.Method != http.MethodGet:
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer letmein":
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		default:
			w.WriteHeader(int(code.Load()))
			_, _ = w.Write([]byte(answer))
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}}
	s.StartTLS()
	t.Cleanup(s.Close)
	c, err := trust.New(trust.Options{CA: pair.Cert, Token: "letmein"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

// The kubelet's own word counts, and holds while it is away; its file stands in where it refuses, and it is said so.
func TestReaderDegrades(t *testing.T) {
	t.Parallel()
	var code atomic.Int32
	code.Store(http.StatusForbidden)
	s, client := kubelet(t, &code)
	path := filepath.Join(t.TempDir(), "config.yaml")
	r := NewReader(s.URL+"/", client, path)
	if r.State() != nil {
		t.Error("known before the first look")
	}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	look := func() *State {
		st := r.look(t.Context(), now)
		r.state.Store(st)
		return st
	}
	said := func(what string, st *State, policy string, words ...string) {
		t.Helper()
		if st.Options.TopologyPolicy != policy || st.Known != (policy != "") || (st.Err == nil) != (len(words) == 0) {
			t.Errorf("%s: %+v", what, st)
		}
		for _, w := range words {
			if st.Err != nil && !strings.Contains(st.Err.Error(), w) {
				t.Errorf("%s: %v does not say %q", what, st.Err, w)
			}
		}
	}
	said("refused, no file", look(), "", "403", "nodes/configz", "config.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	said("refused", look(), "none", "403", "nodes/configz", "config.yaml", "flags may overrule")
	code.Store(http.StatusOK)
	said("answers", look(), "best-effort")
	code.Store(http.StatusServiceUnavailable)
	said("away", look(), "best-effort", "503", "last answer holds")
	code.Store(http.StatusForbidden)
	said("refused again", look(), "none", "403")
	said("no way", NewReader("", nil, path).look(t.Context(), now), "none", "no way to the kubelet")
	said("nothing", NewReader("", nil, "").look(t.Context(), now), "", "no way to the kubelet")
}

func TestReaderRuns(t *testing.T) {
	t.Parallel()
	var code atomic.Int32
	code.Store(http.StatusOK)
	s, client := kubelet(t, &code)
	r := NewReader(s.URL, client, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); r.State() == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was read")
		}
	}
	if st := r.State(); !st.Known || st.Err != nil || st.Options.CPUPolicy != PolicyStatic {
		t.Errorf("%+v", st)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
