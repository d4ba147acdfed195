// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package kubetest is an API server for tests: a real HTTPS peer in the process that keeps objects, lists and watches them
// with resource versions, bookmarks, expiry and a restored backup, replaces statuses, evicts and can be made to fail. What it answers follows
// the API conventions of Kubernetes 1.36. It is imported by tests only.
package kubetest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust/trusttest"
)

// Token is the bearer token it accepts.
const Token = "koordlet-token"

// Object is a decoded JSON object.
type Object = map[string]any

// Request is one call that was received.
type Request struct {
	Method, Path, Query, ContentType string
	Body                             Object
}

// Server is one API server. Its methods are safe for concurrent use.
type Server struct {
	URL   string
	Trust trust.Options
	http  *httptest.Server

	mu sync.Mutex
	// collections by path, "/apis/slo.koordinator.sh/v1alpha1/nodeslos"; one that is not there is not served.
	collections map[string]*collection
	version     int
	oldest      int
	requests    []Request
	fail        func(r *http.Request) (code int, body string)
	down        bool
}

type collection struct {
	objects  map[string]Object
	history  []change
	watchers map[chan struct{}]struct{}
}

// change is one entry of the watch cache.
type change struct {
	version int
	kind    string
	object  Object
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	now := time.Now()
	pair := trusttest.SelfSigned(t, "127.0.0.1", now.Add(-time.Hour), now.Add(time.Hour))
	s := &Server{collections: map[string]*collection{}, version: 100, Trust: trust.Options{CA: pair.Authority, Token: Token}}
	s.http = httptest.NewUnstartedServer(s)
	s.http.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}}
	s.http.EnableHTTP2 = true
	s.http.StartTLS()
	s.URL = s.http.URL
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Serve begins to serve a collection.
func (s *Server) Serve(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections[path] == nil {
		s.collections[path] = &collection{objects: map[string]Object{}, watchers: map[chan struct{}]struct{}{}}
	}
}

// Put makes or replaces an object given as JSON; its collection is served from then on. The name is metadata.name.
func (s *Server) Put(t testing.TB, path, object string) {
	t.Helper()
	var o Object
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	s.Serve(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(s.collections[path], o)
}

// put stores an object; the mutex is held.
func (s *Server) put(c *collection, o Object) {
	name := meta(o)["name"].(string)
	kind := "ADDED"
	if _, ok := c.objects[name]; ok {
		kind = "MODIFIED"
	}
	s.version++
	meta(o)["resourceVersion"] = strconv.Itoa(s.version)
	c.objects[name] = o
	c.note(change{s.version, kind, o})
}

// note appends to the history and wakes watchers; the mutex is held.
func (c *collection) note(e change) {
	c.history = append(c.history, e)
	for w := range c.watchers {
		close(w)
		delete(c.watchers, w)
	}
}

// Delete removes an object.
func (s *Server) Delete(path, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(s.collections[path], name)
}

func (s *Server) remove(c *collection, name string) {
	o, ok := c.objects[name]
	if !ok {
		return
	}
	s.version++
	gone := clone(o)
	meta(gone)["resourceVersion"] = strconv.Itoa(s.version)
	delete(c.objects, name)
	c.note(change{s.version, "DELETED", gone})
}

// Object is a copy of an object, nil when there is none.
func (s *Server) Object(path, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[path]
	if c == nil || c.objects[name] == nil {
		return nil
	}
	return clone(c.objects[name])
}

// Bookmark tells every watcher of a collection the newest version.
func (s *Server) Bookmark(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.collections[path].note(change{s.version, "BOOKMARK", Object{"kind": "Bookmark", "metadata": Object{"resourceVersion": strconv.Itoa(s.version)}}})
}

// Compact forgets history: versions older than now are gone.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
}

// Rewind restores what was n versions ago, as etcd does from a backup: later versions are given once more, and a watch from one of them is
// silent until then.
func (s *Server) Rewind(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version -= n
	s.oldest = s.version
	for _, c := range s.collections {
		clear(c.objects)
		c.history = slices.DeleteFunc(c.history, func(e change) bool { return e.version > s.version })
		for _, e := range c.history {
			switch e.kind {
			case "ADDED", "MODIFIED":
				c.objects[meta(e.object)["name"].(string)] = e.object
			case "DELETED":
				delete(c.objects, meta(e.object)["name"].(string))
			}
		}
	}
}

// Break drops every connection, also those of watches.
func (s *Server) Break() { s.http.CloseClientConnections() }

// Down makes the server drop every request without an answer, or lets it answer again.
func (s *Server) Down(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.Break()
	}
}

// Fail answers requests for which f gives a code other than 0; nil ends that.
func (s *Server) Fail(f func(r *http.Request) (code int, body string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Requests are those received so far whose method and path begin so: "PATCH /apis/slo".
func (s *Server) Requests(prefix string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for _, r := range s.requests {
		if strings.HasPrefix(r.Method+" "+r.Path, prefix) {
			out = append(out, r)
		}
	}
	return out
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body Object
	var patch []Object
	if r.ContentLength > 0 {
		var raw json.RawMessage
		if json.NewDecoder(r.Body).Decode(&raw) != nil {
			refuse(w, http.StatusBadRequest, "BadRequest", "not JSON", "")
			return
		}
		if json.Unmarshal(raw, &body) != nil && json.Unmarshal(raw, &patch) != nil {
			refuse(w, http.StatusBadRequest, "BadRequest", "neither object nor list", "")
			return
		}
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type"), body})
	down, fail := s.down, s.fail
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized", "")
		return
	}
	if fail != nil {
		if code, text := fail(r); code != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text))
			return
		}
	}
	s.route(w, r, body, patch)
}

// route finds the collection and the object.
func (s *Server) route(w http.ResponseWriter, r *http.Request, body Object, patch []Object) {
	path, name, sub := r.URL.Path, "", ""
	s.mu.Lock()
	c := s.collections[path]
	for range 2 {
		if c != nil {
			break
		}
		i := strings.LastIndexByte(path, '/')
		if i <= 0 {
			break
		}
		sub, name, path = name, path[i+1:], path[:i]
		c = s.collections[path]
	}
	s.mu.Unlock()
	switch {
	case c == nil:
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource", "")
	case name == "" && r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, c)
	case name == "" && r.Method == http.MethodGet:
		s.list(w, r, c)
	case name == "" && r.Method == http.MethodPost:
		s.mu.Lock()
		defer s.mu.Unlock()
		if known, _ := meta(body)["name"].(string); c.objects[known] != nil {
			refuse(w, http.StatusConflict, "AlreadyExists", fmt.Sprintf("%q already exists", known), known)
			return
		}
		if r.URL.Query().Get("dryRun") == "" {
			s.put(c, body)
		}
		answer(w, http.StatusCreated, body)
	default:
		s.one(w, r, c, name, sub, body, patch)
	}
}

// one answers a request for one object.
func (s *Server) one(w http.ResponseWriter, r *http.Request, c *collection, name, sub string, body Object, patch []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := c.objects[name]
	switch {
	case o == nil:
		refuse(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%q not found", name), name)
	case r.Method == http.MethodGet:
		answer(w, http.StatusOK, o)
	case r.Method == http.MethodPatch && sub == "status" && r.Header.Get("Content-Type") == "application/json-patch+json":
		if len(patch) != 1 || patch[0]["op"] != "add" || patch[0]["path"] != "/status" {
			refuse(w, http.StatusUnprocessableEntity, "Invalid", "only add /status is known here", name)
			return
		}
		next := clone(o)
		next["status"] = patch[0]["value"]
		s.put(c, next)
		answer(w, http.StatusOK, next)
	case r.Method == http.MethodPatch && sub == "" && r.Header.Get("Content-Type") == "application/merge-patch+json":
		if version := meta(body)["resourceVersion"]; version != nil && version != meta(o)["resourceVersion"] {
			refuse(w, http.StatusConflict, "Conflict", "the object has been modified", name)
			return
		}
		next := merged(o, body)
		s.put(c, next)
		answer(w, http.StatusOK, next)
	case r.Method == http.MethodPost && sub == "eviction":
		s.leave(w, c, o, body["deleteOptions"])
	case r.Method == http.MethodDelete:
		s.leave(w, c, o, map[string]any(body))
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "not here", name)
	}
}

// leave marks a pod as being deleted if the precondition holds. Nobody ends it: tests do, with Delete.
func (s *Server) leave(w http.ResponseWriter, c *collection, o Object, options any) {
	m, _ := options.(map[string]any)
	wanted, _ := m["preconditions"].(map[string]any)
	if uid := wanted["uid"]; uid != nil && uid != meta(o)["uid"] {
		refuse(w, http.StatusConflict, "Conflict", "the UID in the precondition does not match", meta(o)["name"].(string))
		return
	}
	next := clone(o)
	meta(next)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	s.put(c, next)
	answer(w, http.StatusCreated, Object{"kind": "Status", "status": "Success"})
}
