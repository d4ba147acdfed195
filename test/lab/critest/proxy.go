// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// ProxyOptions of a Proxy.
type ProxyOptions struct {
	Program string         // required: path of koord-runtime-proxy, or of what takes its --config
	Dir     string         // required: a folder for it alone, made; removed by the caller
	Runtime string         // required: path of the runtime's socket
	Config  map[string]any // optional: fields of ProxyConfig, over ours
}

// Proxy is our koord-runtime-proxy in front of a CRI socket; it may be down for a while.
type Proxy struct {
	Socket string // what a kubelet connects to
	Config string // file
	RunDir string
	Hooks  string // folder of hook servers' registrations
	Log    string

	program string
	base    map[string]any // configuration
	metrics string         // socket
	daemon  *daemon        // nil while down
}

// StartProxy writes a configuration, starts the proxy and waits until it answers with the
// runtime's readiness.
func StartProxy(ctx context.Context, o ProxyOptions) (*Proxy, error) {
	at := func(name string) string { return filepath.Join(o.Dir, name) }
	p := &Proxy{
		Socket: at("proxy.sock"), Config: at("proxy.yaml"), RunDir: at("run"), Hooks: at("hookserver.d"), Log: at("proxy.log"),
		program: o.Program, metrics: at("metrics.sock"),
	}
	for _, d := range []string{p.RunDir, at("state"), p.Hooks} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("create folder of the proxy: %w", err)
		}
	}
	p.base = map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "ProxyConfig",
		"endpoint": p.Socket, "runtimeEndpoint": "unix://" + o.Runtime,
		"runDir": p.RunDir, "stateDir": at("state"), "strategyFile": at("strategy.yaml"),
		"hooks":     map[string]any{"dir": p.Hooks},
		"metrics":   map[string]any{"address": "unix:" + p.metrics},
		"reconnect": map[string]any{"min": "50ms", "max": "500ms"},
		"deadline":  "1900ms", // the longest there is: time runs on while a decision gets no CPU
	}
	if err := p.Configure(o.Config); err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Configure writes the configuration of the next Start: ours with these fields over it.
func (p *Proxy) Configure(more map[string]any) error {
	config := maps.Clone(p.base)
	maps.Copy(config, more)
	text, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode configuration of the proxy: %w", err)
	}
	if err := os.WriteFile(p.Config, text, 0o600); err != nil {
		return fmt.Errorf("write configuration of the proxy: %w", err)
	}
	return nil
}

// Start starts the proxy again after Kill, on the same files, and waits until it answers.
func (p *Proxy) Start(ctx context.Context) error {
	var err error
	if p.daemon, err = startDaemon(p.Log, p.program, "--config", p.Config); err != nil {
		return err
	}
	if err := p.daemon.waitReady(ctx, p.Socket); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// Pid of the proxy, 0 while it is down.
func (p *Proxy) Pid() int {
	if p.daemon == nil {
		return 0
	}
	return p.daemon.pid()
}

// Kill ends the proxy at once, as a crash would.
func (p *Proxy) Kill() error {
	if p.daemon == nil {
		return nil
	}
	err := p.daemon.kill()
	p.daemon = nil
	return err
}

// Metrics reads the proxy's own metrics in Prometheus' text format.
func (p *Proxy) Metrics(ctx context.Context) (string, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.metrics)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://koord-runtime-proxy/metrics", nil)
	if err != nil {
		return "", fmt.Errorf("read metrics of the proxy: %w", err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", fmt.Errorf("read metrics of the proxy: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read metrics of the proxy: %w", err)
	}
	return string(text), nil
}
