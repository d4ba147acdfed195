// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package manager reads from koord-manager's metrics what it knows of the cluster's nodes: the four lines of the resource model, and what
// is lent.
//
// Input is a Source: the API server, as kubectl proxy offers it, through which the replica that leads is found and asked; or metrics
// themselves, at a URL or from a reader. It asks with GET only and holds no credentials: those are kubectl's. Output is a Picture. It
// may import api/protocol, model/unit, daemon/status and the parser of Prometheus' text format.
package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Source is where to ask.
type Source struct {
	// Via is the API server without credentials, as kubectl proxy offers it: http://127.0.0.1:8001, or unix:/path of a socket.
	Via string
	// Namespace of koord-manager, and the Port of its metrics.
	Namespace string
	Port      int
	// Metrics are koord-manager's own, where they can be reached: a URL, unix:/path of a socket, or "-" for In. They go before Via.
	Metrics string
	In      io.Reader
}

const (
	// lease is that by which the controllers of one replica work.
	lease = "koordinator-manager"
	// patience for one answer, and its largest size: 5,000 nodes are 8 MB.
	patience  = 10 * time.Second
	maxAnswer = 256 << 20
)

// Read asks once.
func Read(ctx context.Context, s Source) (*Picture, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch {
	case s.Metrics == "-":
		return parse(io.LimitReader(s.In, maxAnswer), "standard input")
	case s.Metrics != "":
		e, err := endpointOf(s.Metrics)
		if err != nil {
			return nil, fmt.Errorf("--metrics %s: %w", s.Metrics, err)
		}
		defer e.close()
		path := ""
		if e.bare() {
			path = "/metrics"
		}
		return e.picture(ctx, path, s.Metrics)
	}
	e, err := endpointOf(s.Via)
	if err != nil {
		return nil, fmt.Errorf("--via %s: %w", s.Via, err)
	}
	defer e.close()
	pod, err := e.leader(ctx, s.Namespace)
	if err != nil {
		return nil, err
	}
	path := "/api/v1/namespaces/" + url.PathEscape(s.Namespace) + "/pods/" + url.PathEscape(pod) + ":" + strconv.Itoa(s.Port) + "/proxy/metrics"
	return e.picture(ctx, path, s.Namespace+"/"+pod)
}

// endpoint is a server.
type endpoint struct {
	base   string
	client *http.Client
}

var errAddress = errors.New("want http://host:port, https://host:port or unix:/path")

func endpointOf(address string) (*endpoint, error) {
	transport := &http.Transport{}
	e := &endpoint{client: &http.Client{
		Transport: transport,
		// Who answers with another address is not who was asked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if socket, is := strings.CutPrefix(address, "unix:"); is {
		if !strings.HasPrefix(socket, "/") {
			return nil, errAddress
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
		e.base = "http://localhost"
		return e, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errAddress
	}
	e.base = strings.TrimSuffix(address, "/")
	return e, nil
}

// bare reports whether the address has no path of its own.
func (e *endpoint) bare() bool {
	u, err := url.Parse(e.base)
	return err == nil && u.Path == "" && u.RawQuery == ""
}

func (e *endpoint) close() { e.client.CloseIdleConnections() }

// get asks; the caller closes the answer.
func (e *endpoint) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", e.base+path, err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w (is kubectl proxy running, or the address another one? --via, --metrics)", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // what has come is shown
	return nil, fmt.Errorf("ask %s: %s: %s", e.base+path, resp.Status, strings.TrimSpace(string(text)))
}

// leader is the pod of the replica whose controllers work.
func (e *endpoint) leader(ctx context.Context, namespace string) (string, error) {
	body, err := e.get(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+url.PathEscape(namespace)+"/leases/"+lease)
	if err != nil {
		return "", fmt.Errorf("find the koord-manager that leads: %w", err)
	}
	defer body.Close()
	var object struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&object); err != nil {
		return "", fmt.Errorf("read the lease %s/%s: %w", namespace, lease, err)
	}
	// The name of the host, which is the pod's, and a UUID.
	holder := object.Spec.HolderIdentity
	i := strings.LastIndexByte(holder, '_')
	if i <= 0 {
		return "", fmt.Errorf("lease %s/%s: held by %q, no pod of koord-manager: is it running?", namespace, lease, holder)
	}
	return holder[:i], nil
}

// picture reads metrics.
func (e *endpoint) picture(ctx context.Context, path, from string) (*Picture, error) {
	body, err := e.get(ctx, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parse(io.LimitReader(body, maxAnswer), from)
}
