// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
)

// log is a Sink that remembers what it is told.
type log struct {
	lines chan string
}

func (l *log) add(s string) { l.lines <- s }

func (l *log) Begin()            { l.add("begin") }
func (l *log) Object(raw []byte) { l.add("object " + name(raw)) }
func (l *log) TooLarge(b []byte) { l.add("too large " + name(b)) }
func (l *log) Delete(raw []byte) { l.add("delete " + name(raw)) }
func (l *log) End()              { l.add("end") }
func (l *log) State(err error) {
	switch {
	case err == nil:
		l.add("well")
	case errors.Is(err, kube.ErrNotServed):
		l.add("not served")
	case errors.Is(err, kube.ErrDenied):
		l.add("denied")
	default:
		l.add("broken")
	}
}

func name(raw []byte) string {
	_, rest, _ := strings.Cut(string(raw), `"name":"`)
	n, _, _ := strings.Cut(rest, `"`)
	return n
}

// expect reads lines until those wanted have come in this order; others may stand between them. A state that repeats
// itself while a server is away does.
func (l *log) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for len(want) > 0 {
		select {
		case line := <-l.lines:
			if line == want[0] {
				want = want[1:]
			}
			got = append(got, line)
		case <-deadline.C:
			t.Fatalf("told %q, and not %q", got, want)
		}
	}
}

// follow starts a Follow that ends with the test.
func follow(t *testing.T, c *kube.Client, o kube.FollowOptions) *log {
	t.Helper()
	l := &log{lines: make(chan string, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	o.MinRetry, o.MaxRetry = time.Millisecond, 20*time.Millisecond
	go func() { done <- c.Follow(ctx, o, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("follow: %v", err)
		}
	})
	return l
}

func TestFollow(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	l := follow(t, client(t, s), kube.FollowOptions{Resource: kube.Pods, Selector: "spec.nodeName=node-001"})
	l.expect(t, "not served")
	put := func(name, node string) {
		t.Helper()
		s.Put(t, "/api/v1/pods", `{"metadata":{"name":"`+name+`"},"spec":{"nodeName":"`+node+`"}}`)
	}
	put("b", "node-001")
	put("x", "node-002")
	l.expect(t, "begin", "object b", "end", "well")
	put("c", "node-001")
	l.expect(t, "object c")
	s.Delete("/api/v1/pods", "b")
	l.expect(t, "delete b")

	t.Log("a broken connection is resumed where it was")
	lists := len(s.Requests("GET /api/v1/pods"))
	s.Break()
	l.expect(t, "broken", "well")
	put("d", "node-001")
	l.expect(t, "object d")
	for _, r := range s.Requests("GET /api/v1/pods")[lists:] {
		if !strings.Contains(r.Query, "watch=1") || !strings.Contains(r.Query, "allowWatchBookmarks=true") {
			t.Errorf("listed again: %s", r.Query)
		}
	}

	t.Log("history that is gone is listed anew, without an error")
	s.Down(true)
	l.expect(t, "broken")
	put("e", "node-001")
	s.Bookmark("/api/v1/pods")
	s.Compact()
	s.Down(false)
	l.expect(t, "begin", "object c", "object d", "object e", "end", "well")

	t.Log("a bookmark keeps the version young")
	s.Bookmark("/api/v1/pods")
	put("f", "node-001")
	l.expect(t, "object f")

	t.Log("denied, and allowed again")
	s.Fail(func(*http.Request) (int, string) { return 403, kubetest.Status(403, "Forbidden", "no", "") })
	s.Break()
	l.expect(t, "broken", "denied")
	s.Fail(nil)
	l.expect(t, "well")
}

func TestFollowListsWhatItMay(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Put(t, nodes, `{"metadata":{"name":"node-001"}}`)
	l := follow(t, client(t, s), kube.FollowOptions{Resource: kube.Nodes, Selector: "metadata.name=node-001"})
	l.expect(t, "well")
	s.Compact()
	s.Put(t, nodes, `{"metadata":{"name":"node-002"}}`)
	s.Compact()
	s.Break()
	l.expect(t, "begin", "end")
	var lists []string
	for _, r := range s.Requests("GET " + nodes) {
		if !strings.Contains(r.Query, "watch=1") {
			lists = append(lists, r.Query)
		}
	}
	// From the cache first; behind an expired version whatever is newest.
	want := []string{"fieldSelector=metadata.name%3Dnode-001&resourceVersion=0", "fieldSelector=metadata.name%3Dnode-001"}
	if !slices.Equal(slices.Compact(lists), want) {
		t.Errorf("lists %q", lists)
	}
}

// A backup restored while nobody answered has given up the newest versions, and gives them once more: a watch that goes on where it was
// stands and misses what they bring. What is lost with it is told as gone, too.
func TestFollowSeesWhatARestoredBackupBrings(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	for _, n := range []string{"a", "b", "c"} {
		s.Put(t, nodes, `{"metadata":{"name":"node-`+n+`"}}`)
	}
	l := follow(t, client(t, s), kube.FollowOptions{Resource: kube.Nodes})
	l.expect(t, "begin", "object node-c", "end", "well")
	s.Down(true)
	l.expect(t, "broken", "broken", "broken") // the watch, and who asked again
	s.Rewind(2)
	lists := len(s.Requests("GET " + nodes))
	s.Down(false)
	l.expect(t, "begin", "object node-a", "end", "well")
	s.Put(t, nodes, `{"metadata":{"name":"node-d"}}`)
	l.expect(t, "object node-d")
	var asked []string
	for _, r := range s.Requests("GET " + nodes)[lists:] {
		asked = append(asked, r.Query)
	}
	want := []string{"resourceVersion=103&resourceVersionMatch=NotOlderThan", "", "watch"}
	for i, q := range slices.Compact(asked) {
		if i >= len(want) || q != want[i] && !(want[i] == "watch" && strings.Contains(q, "resourceVersion=101&")) {
			t.Errorf("asked %q", asked)
		}
	}
}

// Where lists are answered and watches are not, as behind a proxy that has no way for the latter, two watches cost a list, and not each of them.
func TestFollowWhereWatchesFail(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Put(t, nodes, `{"metadata":{"name":"node-001"}}`)
	s.Fail(func(r *http.Request) (int, string) {
		if r.URL.Query().Get("watch") != "" {
			return http.StatusServiceUnavailable, ""
		}
		return 0, ""
	})
	l := follow(t, client(t, s), kube.FollowOptions{Resource: kube.Nodes})
	l.expect(t, "well", "broken", "broken", "well", "broken", "broken", "well", "broken", "broken", "well")
	var asked strings.Builder
	for _, r := range s.Requests("GET " + nodes) {
		if strings.Contains(r.Query, "watch=1") {
			asked.WriteString("w")
		} else {
			asked.WriteString("l")
		}
	}
	if !strings.HasPrefix(asked.String(), "lwwlwwlwwl") {
		t.Errorf("lists and watches: %s", &asked)
	}
}

func TestFollowSurvivesNonsense(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Put(t, nodes, `{"metadata":{"name":"node-001"}}`)
	bodies := make(chan string, 10)
	s.Fail(func(r *http.Request) (int, string) {
		select {
		case body := <-bodies:
			return 200, body
		default:
			return 0, ""
		}
	})
	for _, b := range []string{
		"", "{", "<html>", `{"items":[]}`, `{"metadata":{"resourceVersion":5},"items":[]}`, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"half"}}`,
		`{"metadata":{"resourceVersion":"100"},"items":[]}`, // a good list, then events that are none
		`{"type":"PARTY","object":{}}`, `{"type":"ADDED"}`, `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`,
	} {
		bodies <- b
	}
	l := follow(t, client(t, s), kube.FollowOptions{Resource: kube.Nodes})
	l.expect(t, "broken", "broken", "broken", "broken", "broken", "begin", "object half", "broken", "begin", "end", "well", "broken", "broken",
		"begin", "object node-001", "end", "well")
}

// An object that is too large does not hide the others: neither in a list nor in a watch, where its end is told, too.
func TestFollowReadsPastWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	// The encoder writes each of these as six bytes, as the API server does.
	large := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"nodeName":"n","args":["` + strings.Repeat("<", 1<<20) + `"]}}`
	}
	const pods = "/api/v1/pods"
	s.Put(t, pods, large("a"))
	s.Put(t, pods, `{"metadata":{"name":"b"}}`)
	l := follow(t, client(t, s), kube.FollowOptions{Resource: kube.Pods})
	l.expect(t, "begin", "too large a", "object b", "end", "well")
	s.Put(t, pods, large("c"))
	s.Put(t, pods, `{"metadata":{"name":"d"}}`)
	l.expect(t, "too large c", "object d")
	s.Delete(pods, "c")
	l.expect(t, "delete c")
	for _, r := range s.Requests("GET " + pods)[2:] {
		t.Errorf("asked again: %s", r.Query)
	}
}

// A machine that lost its power closes no connection: pings find that out, and the watch goes on over another one.
func TestFollowLeavesADeadConnection(t *testing.T) {
	t.Parallel()
	s := kubetest.New(t)
	s.Put(t, nodes, `{"metadata":{"name":"node-001"}}`)
	relay := newRelay(t, strings.TrimPrefix(s.URL, "https://"))
	s.Trust.DeadAfter = 500 * time.Millisecond
	c, err := kube.New(kube.Config{Server: "https://" + relay.address, Trust: s.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := follow(t, c, kube.FollowOptions{Resource: kube.Nodes})
	l.expect(t, "begin", "end", "well")
	s.Put(t, nodes, `{"metadata":{"name":"node-002"}}`)
	l.expect(t, "object node-002")
	relay.freeze()
	s.Put(t, nodes, `{"metadata":{"name":"node-003"}}`)
	l.expect(t, "broken", "well", "object node-003")
}

// relay passes bytes between a client and a server, until it freezes: what is connected then stays connected, and mute.
type relay struct {
	address string
	mu      sync.Mutex
	frozen  chan struct{}
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: listener.Addr().String(), frozen: make(chan struct{})}
	var group sync.WaitGroup
	var conns []net.Conn
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				return
			}
			r.mu.Lock()
			frozen := r.frozen
			conns = append(conns, client, server)
			r.mu.Unlock()
			group.Go(func() { pipe(client, server, frozen) })
			group.Go(func() { pipe(server, client, frozen) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		group.Wait()
	})
	return r
}

// freeze mutes the connections that there are; later ones work.
func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.frozen)
	r.frozen = make(chan struct{})
}

// pipe copies until frozen, and swallows everything from then on.
func pipe(from, to net.Conn, frozen <-chan struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-frozen:
			continue
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
