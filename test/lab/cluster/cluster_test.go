// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAuthoritySignsBothSides(t *testing.T) {
	t.Parallel()
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.server("api", "127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(serving.cert, serving.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.pem)
	var user *x509.Certificate
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user = r.TLS.PeerCertificates[0]
		io.WriteString(w, `{"kind":"Pod"}`)
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	srv.StartTLS()
	defer srv.Close()
	p, err := ca.client("jane", "developers", "testers")
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClient(srv.URL, ca, "", &p)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if o, err := c.Get(t.Context(), "/"); err != nil || o.Str("kind") != "Pod" {
		t.Fatalf("%v, %v", o, err)
	}
	slices.Sort(user.Subject.Organization) // a set in the certificate
	if user.Subject.CommonName != "jane" || strings.Join(user.Subject.Organization, ",") != "developers,testers" {
		t.Errorf("the server saw %v", user.Subject)
	}
}

// plain is a client of a server without TLS.
func plain(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return &Client{url: srv.URL, token: "secret", http: srv.Client(), kinds: &kinds{}}
}

func TestClientReportsRefusals(t *testing.T) {
	t.Parallel()
	c := plain(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"kind":"Status","reason":"NotFound","message":"pods \"web\" not found"}`)
	})
	_, err := c.Get(t.Context(), "/api/v1/namespaces/default/pods/web")
	if !Refused(err, "NotFound") || Refused(err, "Conflict") || !strings.Contains(err.Error(), "pods/web") {
		t.Errorf("error %v", err)
	}
	if err := c.Delete(t.Context(), "/api/v1/namespaces/default/pods/web", 0); err != nil {
		t.Errorf("delete what is absent: %v", err)
	}
}

// TestClientHears: warnings of answers and of refusals, as they were before they were quoted.
func TestClientHears(t *testing.T) {
	t.Parallel()
	c := plain(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 - "spec.a: \"x\" - is kept"`)
		w.Header().Add("Warning", `299 - "too"`)
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
		}
		io.WriteString(w, `{}`)
	})
	if _, err := c.Get(t.Context(), "/"); err != nil { // without a listener
		t.Error(err)
	}
	var heard []string
	hearing := c.Hearing(func(w string) { heard = append(heard, w) })
	if _, err := hearing.Get(t.Context(), "/"); err != nil {
		t.Error(err)
	}
	if err := hearing.Delete(t.Context(), "/", -1); err == nil {
		t.Error("a refusal is no error")
	}
	if got, want := strings.Join(heard, "|"), `spec.a: "x" - is kept|too|spec.a: "x" - is kept|too`; got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
}

func TestApplySplitsDocumentsAndFindsPaths(t *testing.T) {
	t.Parallel()
	var seen []string
	c := plain(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1":
			io.WriteString(w, `{"resources":[{"name":"pods/status","kind":"Pod","namespaced":true},{"name":"pods","kind":"Pod","namespaced":true}]}`)
		case r.URL.Path == "/apis/x.io/v1":
			io.WriteString(w, `{"resources":[{"name":"widgets","kind":"Widget","namespaced":false}]}`)
		default:
			var o Object
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				t.Error(err)
			}
			seen = append(seen, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("fieldManager"))
			json.NewEncoder(w).Encode(o)
		}
	})
	text := "# a comment\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n---\napiVersion: x.io/v1\nkind: Widget\nmetadata: {name: w}\n"
	got, err := c.Apply(t.Context(), "me", false, []byte(text))
	want := "PATCH /api/v1/namespaces/shop/pods/web me|PATCH /apis/x.io/v1/widgets/w me"
	if err != nil || len(got) != 2 || strings.Join(seen, "|") != want {
		t.Errorf("applied %d, %v: %v, want %s", len(got), err, seen, want)
	}
	if _, err := c.Apply(t.Context(), "me", false, []byte("apiVersion: v1\nkind: Poodle\n")); err == nil {
		t.Error("an unknown kind was applied")
	}
}

func TestObjectPlaces(t *testing.T) {
	t.Parallel()
	o, err := ParseObject([]byte("status: {conditions: [{type: Ready, status: 'True'}], count: 3, list: [{a: b}]}"))
	if err != nil {
		t.Fatal(err)
	}
	if o.Condition("Ready") != "True" || o.Condition("Other") != "" || o.Int("status", "count") != 3 || o.Str("status", "list", 0, "a") != "b" {
		t.Errorf("places of %v", o)
	}
	for _, steps := range [][]any{{"status", "list", 1, "a"}, {"status", "list", -1}, {"status", "count", "x"}, {"nothing", 0}, {1.5}} {
		if v := o.At(steps...); v != nil {
			t.Errorf("%v: %v", steps, v)
		}
	}
	if Object(nil).Str("a") != "" {
		t.Error("a place in nothing")
	}
}

func TestInForce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"{metadata: {generation: 4}, status: {observedGeneration: 4, conditions: [{type: Applied, status: 'True'}]}}":  true,
		"{metadata: {generation: 4}, status: {observedGeneration: 3, conditions: [{type: Applied, status: 'True'}]}}":  false,
		"{metadata: {generation: 4}, status: {observedGeneration: 5, conditions: [{type: Applied, status: 'True'}]}}":  false,
		"{metadata: {generation: 4}, status: {observedGeneration: 4, conditions: [{type: Applied, status: 'False'}]}}": false,
		"{metadata: {generation: 4}, status: {observedGeneration: 4, conditions: [{type: Ready, status: 'True'}]}}":    false,
		"{metadata: {generation: 4}}":                               false,
		"{status: {conditions: [{type: Applied, status: 'True'}]}}": false, // of no generation: not from an API server
		"{}": false,
	} {
		o, err := ParseObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.InForce(); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestProcessGroupEnds(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	// The shell ignores SIGTERM and has a child: both must go.
	p, err := startProcess(log, "/bin/sh", "-c", `trap "" TERM; sleep 1000 & echo $!; wait; sleep 1000`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = poll(ctx, "the child's number", func(context.Context) error {
		data, err := os.ReadFile(log)
		if err == nil && !strings.HasSuffix(string(data), "\n") {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.end(syscall.SIGTERM, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	child := strings.TrimSpace(tail(log, 20))
	err = poll(ctx, "the end of the group", func(context.Context) error {
		// An orphan that is dead and not reaped yet is a zombie.
		data, err := os.ReadFile(filepath.Join("/proc", child, "stat"))
		if err == nil && !strings.Contains(string(data), ") Z ") {
			return errors.New(string(data))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var none *process
	if err := none.end(syscall.SIGTERM, 0); err != nil || none.pid() != 0 {
		t.Errorf("an absent process: %v, %d", err, none.pid())
	}
}

func TestPodNetworkOfEachFolder(t *testing.T) {
	t.Parallel()
	subnet := func(state string) string {
		dir := t.TempDir()
		if err := WriteCNI(dir, state); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "10-lab.conflist"))
		if err != nil {
			t.Fatal(err)
		}
		var o Object
		if err := json.Unmarshal(data, &o); err != nil {
			t.Fatal(err)
		}
		return o.Str("plugins", 0, "ipam", "ranges", 0, 0, "subnet")
	}
	a, b := subnet("/tmp/krt1"), subnet("/tmp/krt2")
	if a == b || !strings.HasPrefix(a, "10.20") || !strings.HasSuffix(a, ".0/24") {
		t.Errorf("subnets %s and %s", a, b)
	}
}
