// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker/dockertest"
	"github.com/koord-rt/koord-rt/model/workload"
)

func TestCreateIsDecided(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.know()
	var seen Call
	r.h.before = func(c *Call) ([]byte, error) {
		seen = *c
		return []byte(strings.Replace(string(c.Create.Raw()), `"CpuShares":2`, `"CpuShares":700`, 1)), nil
	}
	status, body := r.do(t, "POST", "/v1.41/containers/create?name=k8s_app", appBody)
	if status != http.StatusCreated || body != `{"Id":"new1","Warnings":[]}` {
		t.Errorf("reply %d %s", status, body)
	}
	want := "POST /v1.41/containers/create?name=k8s_app " + strings.Replace(appBody, `"CpuShares":2`, `"CpuShares":700`, 1)
	if got := r.requests(); len(got) != 1 || got[0] != want {
		t.Errorf("the daemon got %q, want %q", got, want)
	}
	if seen.Pod.Class() != protocol.QoSLS || seen.Pod.ID != "sand1" || seen.Pod.PID != 41 || seen.Container.Base.Shares.V != 2 || seen.ID != "" || seen.Sandbox() {
		t.Errorf("Before saw %+v of %+v", seen.Container, seen.Pod)
	}
	calls, ends := r.h.told()
	if len(calls) != 1 || calls[0].ID != "new1" || calls[0].Container.State != workload.StateCreated || calls[0].Container.Base.Shares.V != 2 || calls[0].Container.Cgroup != "/kubepods/burstable/podu1/new1" ||
		ends[0] != (Outcome{Status: 201, At: ends[0].At, Changed: true}) || ends[0].At.IsZero() || !ends[0].OK() {
		t.Errorf("After saw %+v, %+v", calls, ends)
	}
	if got := r.results(); got != "create changed" {
		t.Errorf("notes %s", got)
	}
}

// Whatever is not decided reaches the daemon byte for byte.
func TestForwardedAsItCame(t *testing.T) {
	t.Parallel()
	fails := func(*Call) ([]byte, error) { return []byte("never"), errors.New("no view") }
	for name, tt := range map[string]struct {
		method, path, body string
		before             func(*Call) ([]byte, error)
		notes              string
	}{
		"unchanged":      {"POST", "/containers/create", appBody, nil, "create unchanged"},
		"error":          {"POST", "/containers/create", appBody, fails, "create error"},
		"panic":          {"POST", "/containers/create", appBody, func(*Call) ([]byte, error) { panic("at " + secret[:2]) }, "create error"},
		"foreign":        {"POST", "/containers/create", ` {"Image":"x" , "Env":["A=` + secret + `"]}`, fails, ""},
		"malformed":      {"POST", "/containers/create", `{"Env":["` + secret + `"`, fails, "create malformed"},
		"wrong type":     {"POST", "/containers/create", `{"Env":["x",4711]}`, fails, "create malformed"},
		"empty":          {"POST", "/containers/create", ``, fails, "create malformed"},
		"too large":      {"POST", "/containers/create", appBody + strings.Repeat(" ", 5000), fails, "create too-large"},
		"update foreign": {"POST", "/containers/alien/update", `{"Memory":1}`, fails, ""},
		"update nobody":  {"POST", "/v1.24/containers/nobody/update", `{"Memory":1}`, fails, ""},
		"update bad":     {"POST", "/containers/app1/update", `{"Memory":"x"}`, fails, "update malformed"},
		"start":          {"POST", "/containers/app-name/start?detachKeys=x", "", nil, "start unchanged"},
		"start with a body that the handler made": {"POST", "/containers/app1/start", "", func(*Call) ([]byte, error) { return []byte("x"), nil }, "start unchanged"},
		"remove": {"DELETE", "/v1.41/containers/app1?force=1&v=1;w", "", fails, "remove error"},
		"other":  {"POST", "/v1.41/images/load?quiet=1", strings.Repeat("x", 6<<20), fails, ""},
		"query":  {"POST", "/build?buildargs=%7B%22a%22%3A%22b%22%7D&t=a%2Fb", "tar", fails, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{MaxBody: 4000})
			r.know()
			r.h.before = tt.before
			r.do(t, tt.method, tt.path, tt.body)
			if got, want := r.requests(), tt.method+" "+tt.path+" "+tt.body; len(got) != 1 || got[0] != want {
				t.Errorf("the daemon got %.200q, want %.200q", got, want)
			}
			if got := r.results(); got != tt.notes {
				t.Errorf("notes %q, want %q", got, tt.notes)
			}
			if strings.Contains(r.log.String(), secret) || strings.Contains(r.log.String(), "4711") {
				t.Errorf("a secret is in the log: %s", r.log)
			}
		})
	}
}

func TestLifecycleIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.know()
	for _, step := range []string{"POST start", "POST restart", "POST stop", "POST kill", "POST update", "DELETE remove"} {
		method, verb, _ := strings.Cut(step, " ")
		path, body := "/containers/app-name", ""
		if verb != "remove" {
			path += "/" + verb
		}
		if verb == "update" {
			body = `{"CpuShares":9}`
		}
		r.do(t, method, path, body)
		calls, ends := r.h.told()
		if len(calls) != 1 || calls[0].Verb.String() != verb || calls[0].ID != "app1" || calls[0].Pod.FullName() != "default/web" || calls[0].Container.PID != 42 || !ends[0].OK() {
			t.Fatalf("%s: %+v, %+v", verb, calls, ends)
		}
		if calls[0].Update == nil == (verb == "update") {
			t.Errorf("%s: update %v", verb, calls[0].Update)
		}
	}
	r.do(t, "POST", "/containers/sand1/start", "")
	if calls, _ := r.h.told(); len(calls) != 1 || !calls[0].Sandbox() || calls[0].Pod.ID != "sand1" {
		t.Errorf("sandbox: %+v", calls)
	}
	delete(r.containers, "sand1")
	r.do(t, "POST", "/containers/app1/stop", "")
	if calls, _ := r.h.told(); len(calls) != 1 || len(calls[0].Pod.Problems) != 1 || calls[0].Pod.FullName() != "default/web" {
		t.Errorf("without a sandbox: %+v", calls)
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.know()
	for status, want := range map[int]int{0: 500, 409: 409} {
		r.h.before = func(*Call) ([]byte, error) { return nil, &Refusal{Status: status, Err: errors.New("closed")} }
		got, body := r.do(t, "POST", "/containers/create", appBody)
		if got != want || strings.TrimSpace(body) != `{"message":"closed"}` || r.results() != "create refused" {
			t.Errorf("%d %s", got, body)
		}
	}
	calls, _ := r.h.told()
	if got := r.requests(); len(got) != 0 || len(calls) != 0 {
		t.Errorf("the daemon got %q, After %v", got, calls)
	}
}

func TestDaemonAwayAndBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.know()
	r.do(t, "GET", "/info", "")
	if err := r.srv.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/containers/create", "/info", "/containers/app1/attach", "/containers/app1/start"} {
		if status, body := r.do(t, "POST", path, appBody); status != http.StatusBadGateway || !strings.HasPrefix(body, `{"message":"koord-runtime-proxy: the Docker daemon at `) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	calls, ends := r.h.told()
	if len(calls) != 1 || ends[0].Err == nil || ends[0].OK() {
		t.Errorf("After saw %v, %+v", calls, ends)
	}
	if calls[0].Pod.ID != "sand1" || len(calls[0].Pod.Problems) != 1 {
		t.Errorf("pod %+v", calls[0].Pod)
	}
	if got := r.results(); got != "create unchanged,create away,start error" {
		t.Errorf("notes %s", got)
	}
	dockertest.Serve(t, r.path, r.daemon)
	if status, _ := r.do(t, "POST", "/containers/create", appBody); status != http.StatusCreated {
		t.Errorf("after the daemon's return: %d", status)
	}
}

func TestStreamsAreFlushed(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://docker/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for range 2 { // the daemon sends the second when it has been told that the first has arrived
		if line, err := lines.ReadString('\n'); line != "event\n" || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		if ctx.Err() == nil && len(r.release) == 0 {
			r.release <- struct{}{}
		}
	}
	_, _ = io.Copy(io.Discard, lines) // to the end, which the release above has allowed
	cancel()
	req2, err := http.NewRequestWithContext(t.Context(), "GET", "http://docker/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp2, err := r.client.Do(req2)
	if err != nil {
		t.Fatal(err)
	}
	resp2.Body.Close() // the client goes; the daemon must see it
	<-r.hangups
}

// A client that goes in the middle of a body has asked for nothing.
func TestTruncatedBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for _, head := range []string{"Content-Length: 100\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\n", ""} {
		c, err := dockertest.Dial(r.socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST /containers/create HTTP/1.1\r\nHost: docker\r\n"+head+`{"a"`); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		// The proxy's answer, or the end of the connection, says that it is done with the request.
		if got, err := io.ReadAll(c); err != nil || len(got) > 0 && !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
			t.Errorf("%q: %q, %v", head, got, err)
		}
		c.Close()
	}
	if got := r.requests(); len(got) > 0 {
		t.Errorf("the daemon got %q", got)
	}
	if calls, _ := r.h.told(); len(calls) > 0 {
		t.Errorf("the handler saw %v", calls)
	}
}

// What follows on a request does not hold up the end, and nothing of it is left after the end.
func TestEndDuringAfter(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Grace: time.Millisecond, DecisionTimeout: time.Hour})
	r.know()
	entered := make(chan struct{})
	var ended atomic.Bool
	r.h.after = func(ctx context.Context) {
		close(entered)
		<-ctx.Done()
		ended.Store(true)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		resp, err := r.client.Post("http://docker/containers/app1/start", "", nil)
		if err == nil {
			resp.Body.Close() // it came in the last moment
		}
	}()
	<-entered
	r.stop()
	err := <-r.served
	if err != nil || !ended.Load() {
		t.Errorf("the end: %v; the work on the request has ended: %v", err, ended.Load())
	}
	r.served <- err // for the rig's own end
	<-gone
	r.h.told()
	w := httptest.NewRecorder()
	r.proxy.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/containers/app1/start", nil))
	if calls, _ := r.h.told(); w.Code != http.StatusServiceUnavailable || len(calls) > 0 {
		t.Errorf("after the end: %d %s, %d calls", w.Code, w.Body, len(calls))
	}
}

func TestNewNeedsAHandler(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{Backend: "x"}); err == nil {
		t.Error("a proxy without handler")
	}
}
