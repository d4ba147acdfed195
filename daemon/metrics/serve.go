// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/koord-rt/koord-rt/daemon/atomicfile"
)

const unixPrefix = "unix:"

// Listen opens unix:PATH (0600, directory 0700 when it has to be made) or a loopback host:port; other addresses are
// refused: the endpoint has no authentication. An empty address gives nil, nil.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	switch {
	case address == "":
		return nil, nil
	case strings.HasPrefix(address, unixPrefix):
		return listenUnix(ctx, strings.TrimPrefix(strings.TrimPrefix(address, unixPrefix), "//"))
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics on %q: %w", address, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("listen for metrics on %q: want unix:PATH or a loopback address", address)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	return l, nil
}

// listenUnix binds under a temporary name, closes the socket to others and only then moves it to its place, over what an
// earlier life may have left there.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("listen for metrics on %s: there is something that is no socket", path)
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) {
		if err := atomicfile.Dir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(tmp)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", tmp)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(tmp, 0o600); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = l.Close()
		_ = os.Remove(tmp)
		return nil, fmt.Errorf("listen for metrics on %s: %w", path, err)
	}
	return &unixListener{Listener: l, path: path}, nil
}

// unixListener removes its socket when it closes.
type unixListener struct {
	net.Listener
	path string
}

// Close ends the listener.
func (u *unixListener) Close() error {
	_ = os.Remove(u.path)
	return u.Listener.Close()
}

// Route is one more thing that the endpoint answers, with a pattern of http.ServeMux: "GET /events".
type Route struct {
	Pattern string
	Handler http.Handler
}

// Serve answers /metrics (Prometheus text), /healthz and more on l until ctx ends; it closes l. health may be nil; an
// error of it makes /healthz answer 503 with the reason. Nobody has to say who he is here, so l must be a unix socket or
// on loopback, as Listen makes it.
func Serve(ctx context.Context, l net.Listener, g prometheus.Gatherer, health func() error, more ...Route) error {
	if !local(l.Addr()) {
		_ = l.Close()
		return fmt.Errorf("serve metrics on %s: neither a unix socket nor a loopback address", l.Addr())
	}
	srv := &http.Server{Handler: Handler(g, health, more...), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	})
	err := srv.Serve(l)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metrics: %w", err)
}

// local reports whether only this machine can reach an address.
func local(a net.Addr) bool {
	switch a := a.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

// Handler serves /metrics, /healthz and more.
func Handler(g prometheus.Gatherer, health func() error, more ...Route) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		families, err := g.Gather()
		if err != nil && len(families) == 0 {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		format := expfmt.NewFormat(expfmt.TypeTextPlain)
		w.Header().Set("Content-Type", string(format))
		enc := expfmt.NewEncoder(w, format)
		for _, f := range families {
			if enc.Encode(f) != nil {
				return // the reader has gone
			}
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if health != nil {
			if err := health(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	for _, r := range more {
		mux.Handle(r.Pattern, r.Handler)
	}
	return mux
}
