// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
)

// Options of a Proxy.
type Options struct {
	Backend         string        // required: path of dockerd's socket
	Handler         Handler       // required
	Registry        Registry      // optional: what is known without asking the daemon; default nothing
	MaxBody         int64         // optional: bytes of a body that are buffered and decoded, default 4 MiB
	DecisionTimeout time.Duration // optional: limit of one Before or After with the questions to the daemon, default 2 s
	Grace           time.Duration // optional: how long Serve waits for requests under way when it ends, default 2 s
	Log             *slog.Logger  // optional: default discards
	Observe         func(Note)    // optional: called for every decoded request, concurrently
}

// Proxy forwards the Docker Engine API.
type Proxy struct {
	options Options
	backend *Backend
	reverse *httputil.ReverseProxy

	// base ends when Serve has given up what was under way.
	base context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	tunnels map[*tunnel]struct{}
	// calls are the decoded requests under way; none begins when over is set.
	calls sync.WaitGroup
	over  bool
}

// New fills in the defaults. Nothing is dialled before the first request.
func New(o Options) (*Proxy, error) {
	if o.Backend == "" || o.Handler == nil {
		return nil, errors.New("make docker proxy: backend socket and handler are needed")
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 4 << 20
	}
	if o.DecisionTimeout <= 0 {
		o.DecisionTimeout = 2 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{options: o, backend: NewBackend(o.Backend), tunnels: map[*tunnel]struct{}{}}
	p.base, p.end = context.WithCancel(context.Background())
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      p.backend.tr,
		FlushInterval:  -1, // logs and events are flushed line by line
		ModifyResponse: p.answered,
		ErrorHandler:   p.unanswered,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// Backend is the daemon behind the proxy.
func (p *Proxy) Backend() *Backend { return p.backend }

// Serve answers on l until ctx ends, then lets requests under way finish within Options.Grace and closes everything, raw
// streams included. When it returns no method of the Handler runs any more, and none will. The error is nil after ctx has
// ended.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler: p, ErrorLog: p.reverse.ErrorLog,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ended:
		case <-ctx.Done():
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.Grace)
			defer cancel()
			if s.Shutdown(grace) != nil {
				_ = s.Close() // what Shutdown could not wait for; the listener is closed already
			}
		}
		p.closeTunnels()
	})
	err := s.Serve(l)
	close(ended)
	wg.Wait()
	p.giveUp()
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve docker clients: %w", err)
}

// begin counts a decoded request; it is false when Serve has given up.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.calls.Add(1)
	}
	return !p.over
}

// giveUp ends the work on decoded requests and waits for it.
func (p *Proxy) giveUp() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.end()
	p.calls.Wait()
}

// ServeHTTP sorts requests into decoded ones, raw streams and all others.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := engine.Match(r.Method, r.URL.Path)
	if route.Verb == engine.VerbNone && (upgrades(r) || engine.Streams(r.Method, r.URL.Path)) {
		p.stream(w, r)
		return
	}
	r, release := outlastHalfClose(r)
	defer release()
	if route.Verb != engine.VerbNone {
		p.decode(w, r, route)
		return
	}
	p.pass(w, r)
}

// pass forwards a request with its body as it is. The daemon may answer while it still reads (load, build).
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1 always can
	p.reverse.ServeHTTP(w, r)
}

func upgrades(r *http.Request) bool {
	if r.Header.Get("Upgrade") == "" {
		return false
	}
	for _, v := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// rewrite leaves path, query, host and headers as the client wrote them.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker"
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v // taken out before Rewrite
		}
	}
}

// unanswered answers when the daemon does not.
func (p *Proxy) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	if ex := exchangeOf(r.Context()); ex != nil {
		p.after(ex, Outcome{Changed: ex.changed, Err: err})
	}
	p.options.Log.Warn("docker daemon does not answer", "socket", p.options.Backend, "method", r.Method, "error", err)
	w.Header().Set("Connection", "close") // its body may be unread: what follows on it would be lost
	message(w, http.StatusBadGateway, fmt.Sprintf("koord-runtime-proxy: the Docker daemon at %s does not answer: %v", p.options.Backend, err))
}

// message answers in the form that Docker clients show.
func message(w http.ResponseWriter, status int, text string) {
	body, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		body = []byte(`{}`) // not reachable: a string has a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone needs no answer
}
