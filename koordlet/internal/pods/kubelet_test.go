// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust/trusttest"
)

// answers is a kubelet's server: TLS with its self-signed certificate, bearer tokens, GET /pods.
func answers(t testing.TB, handler http.HandlerFunc) *Kubelet {
	t.Helper()
	now := time.Now()
	pair := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/pods":
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer letmein":
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		default:
			handler(w, r)
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	for file, data := range map[string][]byte{"kubelet.crt": pair.Cert, "token": []byte("letmein")} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := trust.New(trust.Options{CAFile: dir + "/kubelet.crt", TokenFile: dir + "/token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	k := NewKubelet(s.URL+"/", c)
	k.timeout = time.Minute // what is tested here is no matter of the machine's load
	return k
}

func TestKubeletList(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/kubelet-pods.json")
	if err != nil {
		t.Fatal(err)
	}
	var body atomic.Pointer[[]byte]
	body.Store(&data)
	k := answers(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(*body.Load()) })
	first, problems, err := k.List(t.Context())
	if err != nil || len(first) != 5 || len(problems) != 4 {
		t.Fatalf("%d pods, problems %q, error %v", len(first), problems, err)
	}
	changed := bytes.Replace(data, []byte(`"containerID":"containerd://4`), []byte(`"containerID":"containerd://5`), 1)
	body.Store(&changed)
	second, problems, err := k.List(t.Context())
	if err != nil || len(second) != 5 || len(problems) != 4 {
		t.Fatalf("%d pods, problems %q, error %v", len(second), problems, err)
	}
	for i, p := range second {
		if same := p == first[i]; same != (p.Name != "web-0") {
			t.Errorf("%s: the same value %v", p.FullName(), same)
		}
	}
	if c, _ := second[1].Container("app"); c == nil || c.ID[0] != '5' {
		t.Errorf("%+v", c)
	}
	if k.Weakness() != "" {
		t.Errorf("weakness %q", k.Weakness())
	}
}

// 800 KB of '<' are more than four of JSON, and the API server takes them: the pod is told of, and the others are read.
func TestKubeletListWithOversizedPod(t *testing.T) {
	t.Parallel()
	args, err := json.Marshal(strings.Repeat("<", 800_000))
	if err != nil {
		t.Fatal(err)
	}
	large := `{"metadata":{"name":"big","namespace":"shop","uid":"x"},"spec":{"containers":[{"name":"c","args":[` + string(args) + `]}]}}`
	deep := `{"metadata":{"name":"deep","namespace":"shop","managedFields":` + strings.Repeat(`{"f:a":`, 100) + "{}" + strings.Repeat("}", 100) + `}}`
	k := answers(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"items":[%s,%s,%s,%s]}`, object("a"), large, deep, object("b"))
	})
	for range 2 {
		pods, problems, err := k.List(t.Context())
		if err != nil || len(pods) != 2 || pods[0].UID != "a" || pods[1].UID != "b" {
			t.Fatalf("%d pods, error %v", len(pods), err)
		}
		if len(problems) != 2 || !strings.Contains(problems[0], `"shop"/"big": more than`) || !strings.Contains(problems[1], `"shop"/"deep"`) {
			t.Errorf("problems %q", problems)
		}
	}
}

// The same at the API server. A pod that was known goes, and its end is learned from a beginning, too.
func TestAPISinkWithOversizedPod(t *testing.T) {
	t.Parallel()
	s := newAPISink()
	s.Begin()
	s.Object(object("a"))
	s.Object(object("b"))
	s.End()
	head := []byte(`{"metadata":{"name":"b","namespace":"shop","uid":"b","annotations":{"a":"<<`)
	s.TooLarge(head)
	if pods, problems, _, _ := s.take(); len(pods) != 1 || len(problems) != 1 || !strings.Contains(problems[0], `"shop"/"b"`) {
		t.Errorf("%d pods, problems %q", len(pods), problems)
	}
	s.Delete(head)
	if pods, problems, _, _ := s.take(); len(pods) != 1 || len(problems) != 0 {
		t.Errorf("%d pods, problems %q", len(pods), problems)
	}
}

func TestKubeletListFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"forbidden":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Forbidden", http.StatusForbidden) }, "403: RBAC does not allow"},
		"starting":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not yet", http.StatusServiceUnavailable) }, `503 Service Unavailable: "not yet"`},
		"cut":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[`)) }, "unexpected EOF"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) }, "not JSON"},
		"broken off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "ask the kubelet: "},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			piece := []byte(strings.Repeat("x", 1<<16))
			_, err := w.Write([]byte(`{"items":["`))
			for err == nil {
				_, err = w.Write(piece)
			}
		}, "JSON value too large"},
		"too many": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"items":[` + strings.Repeat("{},", maxPods) + `{}]}`))
		}, "more than 4096 items"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods, _, err := answers(t, c.handler).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || pods != nil {
				t.Errorf("%d pods, error %v, want %s", len(pods), err, c.want)
			}
		})
	}
	k := answers(t, nil)
	k.http = newClient(t, trust.Options{SkipVerify: true, Token: "wrong"})
	if _, _, err := k.List(t.Context()); err == nil || !strings.Contains(err.Error(), "401: the token") {
		t.Errorf("error %v", err)
	}
	if k.Weakness() == "" {
		t.Error("no verification, and no word of it")
	}
	if NewKubelet("http://127.0.0.1:10255", k.http).Weakness() != "the kubelet is asked without TLS" {
		t.Error("no TLS, and no word of it")
	}
}

func newClient(t testing.TB, o trust.Options) *trust.Client {
	t.Helper()
	c, err := trust.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestKeeperOverSockets: the whole way, once.
func TestKeeperOverSockets(t *testing.T) {
	t.Parallel()
	k := answers(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"items":[%s]}`, object("a")) })
	changed := make(chan *Snapshot, 1)
	keeper := New(Options{Kubelet: k, OnChange: func(s *Snapshot) { changed <- s }})
	done := make(chan error)
	ctx := t.Context()
	go func() { done <- keeper.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	if s := <-changed; len(s.Pods) != 1 || s.Pods[0].UID != "a" || keeper.Snapshot() != s {
		t.Errorf("%+v", s)
	}
}

// BenchmarkKubeletList asks for 80 pods of three containers that did not change, 10 KB each.
func BenchmarkKubeletList(b *testing.B) {
	data, err := os.ReadFile("testdata/kubelet-pods.json")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(data, []byte(`{"metadata":{"name":"web-0"`))
	web, _, _ := bytes.Cut(rest, []byte("},\n{"))
	var list bytes.Buffer
	list.WriteString(`{"kind":"PodList","items":[`)
	for i := range 80 {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, `{"metadata":{"name":"web-%d","padding":%q%s}`, i, strings.Repeat("lorem ipsum ", 600), web)
	}
	list.WriteString(`]}`)
	k := answers(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(list.Bytes()) })
	b.SetBytes(int64(list.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if pods, problems, err := k.List(b.Context()); err != nil || len(pods) != 80 {
			b.Fatal(len(pods), problems, err)
		}
	}
}
