// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubetest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
)

const (
	pods = "/api/v1/namespaces/shop/pods"
	slos = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
)

// peer sends requests to one server.
type peer struct {
	t *testing.T
	c *trust.Client
	s *kubetest.Server
}

func newPeer(t *testing.T, s *kubetest.Server, o trust.Options) peer {
	t.Helper()
	c, err := trust.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return peer{t, c, s}
}

// open sends a request; nil when there was no answer.
func (p peer) open(method, path, kind, body string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.s.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := p.c.Do(req)
	if err != nil {
		return nil
	}
	return resp
}

// ask is one request with its whole answer; code 0 when there was none.
func (p peer) ask(method, path, kind, body string) (code int, o kubetest.Object) {
	p.t.Helper()
	resp := p.open(method, path, kind, body)
	if resp == nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, o
}

// at digs a value out of an object, "" where there is none.
func at(o kubetest.Object, keys ...string) string {
	for _, k := range keys[:len(keys)-1] {
		o, _ = o[k].(map[string]any)
	}
	text, _ := o[keys[len(keys)-1]].(string)
	return text
}

func names(o kubetest.Object) (out []string) {
	items, _ := o["items"].([]any)
	for _, i := range items {
		out = append(out, at(i.(map[string]any), "metadata", "name"))
	}
	return out
}

func TestObjects(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	p := newPeer(t, s, s.Trust)
	if code, o := p.ask("GET", slos+"/node-001", "", ""); code != 404 || at(o, "details", "name") != "" {
		t.Errorf("a collection that is not served: %d, %v", code, o)
	}
	s.Serve(slos)
	if code, o := p.ask("GET", slos+"/node-001", "", ""); code != 404 || at(o, "details", "name") != "node-001" || at(o, "reason") != "NotFound" {
		t.Errorf("no object: %d, %v", code, o)
	}
	s.Put(t, pods, `{"metadata":{"name":"b","uid":"u2"},"spec":{"nodeName":"node-001"}}`)
	s.Put(t, pods, `{"metadata":{"name":"a","uid":"u1"},"spec":{"nodeName":"node-002"}}`)
	for query, want := range map[string][]string{
		"": {"a", "b"}, "?fieldSelector=spec.nodeName%3Dnode-001": {"b"}, "?fieldSelector=metadata.name%3Da": {"a"}, "?fieldSelector=metadata.name%3Dc": nil,
	} {
		code, o := p.ask("GET", pods+query, "", "")
		if diff := cmp.Diff(want, names(o)); code != 200 || diff != "" || at(o, "metadata", "resourceVersion") != "102" {
			t.Errorf("list %q: %d, %v", query, code, o)
		}
	}
	if code, _ := p.ask("POST", pods+"?dryRun=All", "application/json", `{"metadata":{"name":"c"}}`); code != 201 || s.Object(pods, "c") != nil {
		t.Errorf("dry run: %d, %v", code, s.Object(pods, "c"))
	}
	if code, o := p.ask("POST", pods, "application/json", `{"metadata":{"name":"c"}}`); code != 201 || at(s.Object(pods, "c"), "metadata", "resourceVersion") != "103" {
		t.Errorf("create: %d, %v", code, o)
	}
	s.Delete(pods, "c")
	if code, _ := p.ask("GET", pods+"/c", "", ""); code != 404 || s.Object(pods, "c") != nil {
		t.Errorf("deleted: %d", code)
	}
}

// TestOne: what may be done to one object.
func TestOne(t *testing.T) {
	t.Parallel()
	const patch = "application/json-patch+json"
	s := kubetest.New(t)
	p := newPeer(t, s, s.Trust)
	s.Put(t, pods, `{"metadata":{"name":"a","uid":"u1"}}`)
	for _, c := range []struct {
		name, method, path, kind, body string
		code                           int
	}{
		{"a patch of the spec", "PATCH", pods + "/a/status", patch, `[{"op":"add","path":"/spec","value":{}}]`, 422},
		{"a merge patch", "PATCH", pods + "/a/status", "application/merge-patch+json", `{}`, 405},
		{"no JSON", "PATCH", pods + "/a/status", patch, `x`, 400},
		{"a status", "PATCH", pods + "/a/status", patch, `[{"op":"add","path":"/status","value":{"phase":"Running"}}]`, 200},
		{"eviction of another", "POST", pods + "/a/eviction", "application/json", `{"deleteOptions":{"preconditions":{"uid":"u2"}}}`, 409},
	} {
		if code, o := p.ask(c.method, c.path, c.kind, c.body); code != c.code {
			t.Errorf("%s: %d, %v", c.name, code, o)
		}
	}
	if o := s.Object(pods, "a"); at(o, "status", "phase") != "Running" || at(o, "metadata", "deletionTimestamp") != "" {
		t.Errorf("%v", o)
	}
	code, _ := p.ask("POST", pods+"/a/eviction", "application/json", `{"deleteOptions":{"preconditions":{"uid":"u1"}}}`)
	if o := s.Object(pods, "a"); code != 201 || at(o, "metadata", "deletionTimestamp") == "" {
		t.Errorf("eviction: %d, %v", code, o)
	}
	s.Put(t, pods, `{"metadata":{"name":"a","uid":"u3"}}`)
	if code, _ := p.ask("DELETE", pods+"/a", "application/json", `{"preconditions":{"uid":"u1"}}`); code != 409 {
		t.Errorf("deletion of another: %d", code)
	}
	if code, _ := p.ask("DELETE", pods+"/a", "", ""); code != 201 || at(s.Object(pods, "a"), "metadata", "deletionTimestamp") == "" {
		t.Errorf("deletion: %d", code)
	}
	if n := len(s.Requests("POST " + pods + "/a/eviction")); n != 2 {
		t.Errorf("%d evictions were noted", n)
	}
}

// event is "KIND name version".
func event(o kubetest.Object) string {
	object, _ := o["object"].(map[string]any)
	return strings.Join([]string{at(o, "type"), at(object, "metadata", "name"), at(object, "metadata", "resourceVersion")}, " ")
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	p := newPeer(t, s, s.Trust)
	watch := func(query string) *http.Response {
		resp := p.open("GET", slos+"?watch=1&"+query, "", "")
		if resp == nil {
			t.Fatal("no answer")
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	s.Put(t, slos, `{"metadata":{"name":"a"}}`)
	live := json.NewDecoder(watch("resourceVersion=101&timeoutSeconds=600").Body)
	s.Put(t, slos, `{"metadata":{"name":"b"}}`)
	s.Put(t, slos, `{"metadata":{"name":"a","labels":{"x":"y"}}}`)
	s.Delete(slos, "b")
	s.Bookmark(slos)
	want := []string{"ADDED b 102", "MODIFIED a 103", "DELETED b 104", "BOOKMARK  105"}
	for _, w := range want {
		var o kubetest.Object
		if err := live.Decode(&o); err != nil || event(o) != w {
			t.Errorf("%q, %v; want %s", event(o), err, w)
		}
	}
	var behind []string
	for past := json.NewDecoder(watch("resourceVersion=102&timeoutSeconds=0&fieldSelector=metadata.name%3Da").Body); ; {
		var o kubetest.Object
		if err := past.Decode(&o); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		behind = append(behind, event(o))
	}
	if diff := cmp.Diff([]string{want[1], want[3]}, behind); diff != "" {
		t.Error(diff)
	}
	s.Compact()
	for version, code := range map[int]int{104: 410, 105: 200} {
		if resp := watch("timeoutSeconds=0&resourceVersion=" + strconv.Itoa(version)); resp.StatusCode != code {
			t.Errorf("from %d: %s", version, resp.Status)
		}
	}
	s.Break()
	var o kubetest.Object
	if err := live.Decode(&o); err == nil {
		t.Errorf("a broken watch goes on: %v", o)
	}
}

// TestRewind: what came after the backup is undone, a later version is refused to a list and silent as a watch.
func TestRewind(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	p := newPeer(t, s, s.Trust)
	s.Put(t, slos, `{"metadata":{"name":"a"}}`)
	s.Put(t, slos, `{"metadata":{"name":"b"}}`)
	s.Delete(slos, "a")
	s.Bookmark(slos)
	s.Put(t, slos, `{"metadata":{"name":"b","labels":{"x":"y"}}}`)
	s.Put(t, slos, `{"metadata":{"name":"c"}}`)
	s.Rewind(2)
	code, o := p.ask("GET", slos+"?resourceVersion=104&resourceVersionMatch=NotOlderThan", "", "")
	if diff := cmp.Diff([]string{"b"}, names(o)); code != 200 || diff != "" || at(o, "metadata", "resourceVersion") != "104" {
		t.Errorf("%d, %v", code, o)
	}
	if b := s.Object(slos, "b"); at(b, "metadata", "resourceVersion") != "102" {
		t.Errorf("%v", b)
	}
	if code, o := p.ask("GET", slos+"?resourceVersion=105&resourceVersionMatch=NotOlderThan", "", ""); code != 504 || at(o, "reason") != "Timeout" {
		t.Errorf("a list from the future: %d, %v", code, o)
	}
	if code, _ := p.ask("GET", slos+"?watch=1&resourceVersion=103", "", ""); code != 410 {
		t.Errorf("a watch from before the backup: %d", code)
	}
	resp := p.open("GET", slos+"?watch=1&resourceVersion=105&timeoutSeconds=600", "", "")
	if resp == nil {
		t.Fatal("no answer")
	}
	defer resp.Body.Close()
	s.Put(t, slos, `{"metadata":{"name":"d"}}`)
	s.Put(t, slos, `{"metadata":{"name":"e"}}`)
	var first kubetest.Object
	if err := json.NewDecoder(resp.Body).Decode(&first); err != nil || event(first) != "ADDED e 106" {
		t.Errorf("a watch from the future: %q, %v", event(first), err)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Serve(pods)
	p := newPeer(t, s, s.Trust)
	code := func(p peer) int {
		code, _ := p.ask("GET", pods, "", "")
		return code
	}
	if got := code(newPeer(t, s, trust.Options{CA: s.Trust.CA, Token: "another"})); got != 401 {
		t.Errorf("another token: %d", got)
	}
	if got := code(newPeer(t, s, trust.Options{CA: kubetest.New(t).Trust.CA, Token: kubetest.Token})); got != 0 {
		t.Errorf("another authority: %d", got)
	}
	s.Fail(func(r *http.Request) (int, string) {
		if r.URL.Path == slos {
			return 0, ""
		}
		return 429, kubetest.Status(429, "TooManyRequests", "later", "x", "DisruptionBudget")
	})
	got, o := p.ask("GET", pods, "", "")
	details, _ := o["details"].(map[string]any)
	want := kubetest.Object{"name": "x", "causes": []any{map[string]any{"reason": "DisruptionBudget"}}}
	if diff := cmp.Diff(want, details); got != 429 || diff != "" || at(o, "message") != "later" {
		t.Errorf("%d, %v\n%s", got, o, diff)
	}
	if got, _ := p.ask("GET", slos, "", ""); got != 404 {
		t.Errorf("a request that is let pass: %d", got)
	}
	s.Fail(nil)
	for _, down := range []bool{true, false} {
		s.Down(down)
		if got := code(p); (got == 0) != down || !down && got != 200 {
			t.Errorf("down %v: %d", down, got)
		}
	}
}
