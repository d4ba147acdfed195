// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker/dockertest"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/listen"
)

// daemon is a small dockerd: it keeps what it was sent and knows a few containers.
type daemon struct {
	path string
	srv  *http.Server

	mu         sync.Mutex
	got        []string          // "METHOD path body"
	containers map[string]string // id -> inspect reply
	hangups    chan struct{}     // one for each raw stream that ended
	release    chan struct{}     // lets /events go on
}

func newDaemon(t *testing.T, dir string) *daemon {
	t.Helper()
	d := &daemon{path: filepath.Join(dir, "d.sock"), containers: map[string]string{}, hangups: make(chan struct{}, 2000), release: make(chan struct{}, 10)}
	d.srv = dockertest.Serve(t, d.path, d)
	return d
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if inspect := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/containers/"), "/json"); strings.HasSuffix(r.URL.Path, "/json") {
		d.mu.Lock()
		defer d.mu.Unlock()
		if reply, ok := d.containers[inspect]; ok {
			fmt.Fprint(w, reply)
			return
		}
		message(w, http.StatusNotFound, "no such container")
		return
	}
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	d.got = append(d.got, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	d.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/attach"), strings.HasSuffix(r.URL.Path, "/session"):
		d.raw(w, r)
	case strings.HasSuffix(r.URL.Path, "/exec/none/start"):
		message(w, http.StatusNotFound, "no such exec")
	case strings.HasSuffix(r.URL.Path, "/events"):
		for range 2 {
			fmt.Fprintln(w, "event")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-d.release:
			case <-r.Context().Done():
				d.hangups <- struct{}{}
				return
			}
		}
	case strings.HasSuffix(r.URL.Path, "/containers/create"):
		w.Header().Set("X-Daemon", "yes")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"Id":"new1","Warnings":[]}`)
	case r.Method == http.MethodDelete || r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/update"):
		w.WriteHeader(http.StatusNoContent)
	default:
		fmt.Fprint(w, `{}`)
	}
}

// raw echoes in upper case until the client sends no more, then says so and ends.
func (d *daemon) raw(w http.ResponseWriter, r *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { d.hangups <- struct{}{} }()
	defer c.Close()
	if r.URL.Query().Has("mute") { // as a daemon that hangs
		awaitHangup(c.(*net.UnixConn))
		return
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"
	if r.Header.Get("Upgrade") != "" {
		head = "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
	}
	fmt.Fprint(c, head+"hello ")
	for buf := make([]byte, 4096); ; {
		n, err := rw.Read(buf)
		if n > 0 {
			if _, err := c.Write(bytes.ToUpper(buf[:n])); err != nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	if r.URL.Query().Has("silent") { // as an attach without input to a container that writes nothing
		awaitHangup(c.(*net.UnixConn))
		return
	}
	fmt.Fprint(c, " end")
}

func (d *daemon) requests() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.got
	d.got = nil
	return out
}

// handler is a Handler of functions that keeps what it was told.
type handler struct {
	before func(c *Call) ([]byte, error)
	after  func(ctx context.Context)

	mu    sync.Mutex
	calls []Call
	ends  []Outcome
}

func (h *handler) Before(_ context.Context, c *Call) ([]byte, error) {
	if h.before == nil {
		return nil, nil
	}
	return h.before(c)
}

func (h *handler) After(ctx context.Context, c *Call, o Outcome) {
	if h.after != nil {
		h.after(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls, h.ends = append(h.calls, *c), append(h.ends, o)
}

func (h *handler) told() ([]Call, []Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, e := h.calls, h.ends
	h.calls, h.ends = nil, nil
	return c, e
}

// rig is a proxy between a client and a daemon.
type rig struct {
	*daemon
	h      *handler
	socket string
	proxy  *Proxy
	log    *bytes.Buffer
	client *http.Client
	mu     sync.Mutex
	notes  []Note
	stop   context.CancelFunc
	served chan error
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	dir := dockertest.Dir(t)
	r := &rig{daemon: newDaemon(t, dir), h: &handler{}, socket: filepath.Join(dir, "p.sock"), log: &bytes.Buffer{}, served: make(chan error, 1)}
	o.Backend, o.Handler, o.Log = r.path, r.h, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Observe = func(n Note) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notes = append(r.notes, n)
	}
	var err error
	if r.proxy, err = New(o); err != nil {
		t.Fatal(err)
	}
	l, err := listen.Unix(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.served <- r.proxy.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.served; err != nil {
			t.Error(err)
		}
	})
	r.client = dockertest.Client(t, r.socket)
	return r
}

// do sends a request and returns status and body.
func (r *rig) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	return dockertest.Do(t, r.client, method, path, strings.NewReader(body))
}

func (r *rig) results() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, n := range r.notes {
		out = append(out, n.Verb.String()+" "+string(n.Result))
	}
	r.notes = nil
	return strings.Join(out, ",")
}

const (
	sandboxLabels = `"` + engine.LabelType + `":"podsandbox","io.kubernetes.pod.name":"web","io.kubernetes.pod.namespace":"default","io.kubernetes.pod.uid":"u1"`
	appLabels     = `"` + engine.LabelType + `":"container","` + engine.LabelSandboxID + `":"sand1","io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web","io.kubernetes.pod.namespace":"default","io.kubernetes.pod.uid":"u1"`
	parentField   = `"CgroupParent":"/kubepods/burstable/podu1"`
	secret        = "hunter2-4711"
	appBody       = `{ "Env":["PASSWORD=` + secret + `"], "Labels":{` + appLabels + `},"HostConfig":{"CpuShares":2,` + parentField + `},"Big":12345678901234567890}` + "\n"
)

// know tells the daemon of a sandbox with annotations and of a running container.
func (r *rig) know() {
	r.daemon.mu.Lock()
	defer r.daemon.mu.Unlock()
	inspect := `{"Id":%q,"State":{"Running":true,"Status":"running","Pid":%d},"Config":{"Labels":{%s}},"HostConfig":{` + parentField + `}}`
	r.containers["sand1"] = fmt.Sprintf(inspect, "sand1", 41, sandboxLabels+`,"koordinator.sh/qosClass":"LS"`)
	r.containers["app1"] = fmt.Sprintf(inspect, "app1", 42, appLabels)
	r.containers["app-name"] = r.containers["app1"]
	r.containers["new1"] = fmt.Sprintf(inspect, "new1", 43, appLabels)
	r.containers["alien"] = `{"Id":"alien","Config":{"Labels":{}}}`
}
