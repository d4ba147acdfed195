// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
)

// Bounds of one request.
const (
	requestTimeout = 10 * time.Second
	maxAnswer      = 4 << 20
)

// Bodies of PATCH.
const (
	jsonPatch = "application/json-patch+json"
	plainJSON = "application/json"
)

// Config says where the API server is and who we are there.
type Config struct {
	// Server is its URL.
	Server string
	Trust  trust.Options
	// Kubeconfig is a file that says both, all but the UserAgent; Server is empty then. It is read at the first request and again when it
	// has changed, so that one that is not there yet, or is wrong, is an error of that request and not of the program's start.
	Kubeconfig string
	// Read hears of the file when it has been read, and of each new reason why it cannot be; optional.
	Read func(err error)
	// Wrote hears of each write that was answered or given up, by its plural; optional. One that our own end cut short is none.
	Wrote func(plural string, failed bool)
}

// Client talks to one API server. Safe for concurrent use.
type Client struct {
	// fixed is the way, or file says it.
	fixed *way
	file  *fileWay
	wrote func(plural string, failed bool)
}

// New makes a client; nothing is sent or read yet.
func New(c Config) (*Client, error) {
	if c.Wrote == nil {
		c.Wrote = func(string, bool) {}
	}
	if c.Kubeconfig != "" {
		return &Client{file: newFileWay(c), wrote: c.Wrote}, nil
	}
	w, err := newWay(c.Server, c.Trust)
	if err != nil {
		return nil, err
	}
	return &Client{fixed: w, wrote: c.Wrote}, nil
}

// way is the one of a request that is sent now.
func (c *Client) way() (*way, error) {
	if c.fixed != nil {
		return c.fixed, nil
	}
	return c.file.now()
}

// Unread is why the kubeconfig, or a file that it names, could not be read when it was last needed, and since when; nil where it could, or
// there is none. What it said before, if anything, is in force.
func (c *Client) Unread() (since time.Time, err error) {
	w := c.fixed
	if w == nil {
		if w, since, err = c.file.unread(); err != nil {
			return since, fmt.Errorf("its kubeconfig is waited for: %w", err)
		}
	}
	if w == nil {
		return time.Time{}, nil
	}
	if since, err = w.http.Unread(); err != nil {
		return since, fmt.Errorf("what was read before is in force: %w", err)
	}
	return time.Time{}, nil
}

// Weakness says what the way to the server gives up, empty when nothing.
func (c *Client) Weakness() string {
	w, err := c.way()
	switch {
	case err != nil:
		return ""
	case strings.HasPrefix(w.base, "http://"):
		return "the API server is asked without TLS"
	}
	return w.http.Weakness()
}

// Close drops idle connections.
func (c *Client) Close() {
	if c.fixed != nil {
		c.fixed.http.Close()
		return
	}
	c.file.close()
}

// Resource names a collection.
type Resource struct {
	// Group is empty for the core group.
	Group, Version, Plural string
	// Namespace is empty for cluster-scoped kinds, and for all namespaces.
	Namespace string
}

// Kinds that koordlet follows.
var (
	NodeSLOs    = Resource{Group: "slo.koordinator.sh", Version: "v1alpha1", Plural: "nodeslos"}
	NodeMetrics = Resource{Group: "slo.koordinator.sh", Version: "v1alpha1", Plural: "nodemetrics"}
	Nodes       = Resource{Version: "v1", Plural: "nodes"}
	Pods        = Resource{Version: "v1", Plural: "pods"}
)

// String is "plural.group" or "plural".
func (r Resource) String() string { return strings.TrimSuffix(r.Plural+"."+r.Group, ".") }

// path is the collection's, or with more elements that of an object or subresource.
func (r Resource) path(elements ...string) string {
	parts := []string{"", "api", r.Version}
	if r.Group != "" {
		parts = []string{"", "apis", r.Group, r.Version}
	}
	if r.Namespace != "" {
		parts = append(parts, "namespaces", url.PathEscape(r.Namespace))
	}
	parts = append(parts, r.Plural)
	for _, e := range elements {
		parts = append(parts, url.PathEscape(e))
	}
	return strings.Join(parts, "/")
}

// request is one call.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// send returns the answer if it is a success; the caller closes its body.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	w, err := c.way()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	target := w.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	req.Header.Set("Accept", plainJSON)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refused(r.method+" "+r.path, resp)
}

// call sends and reads the whole answer, within the timeout of one request.
func (c *Client) call(ctx context.Context, r request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", r.method, r.path, err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("%s %s: more than %d bytes", r.method, r.path, maxAnswer)
	}
	return body, nil
}

// write makes a call that changes something, and tells of it.
func (c *Client) write(ctx context.Context, r Resource, q request) error {
	_, err := c.call(ctx, q)
	if !errors.Is(ctx.Err(), context.Canceled) {
		c.wrote(r.Plural, err != nil)
	}
	return err
}

// Get is one object as JSON.
func (c *Client) Get(ctx context.Context, r Resource, name string) ([]byte, error) {
	return c.call(ctx, request{method: http.MethodGet, path: r.path(name)})
}

// ReplaceStatus replaces the whole status of an object, whatever stands there and whatever else changes at the same
// time: a JSON patch needs no resource version and leaves nothing of the old status behind, which a merge patch would.
// manager is the field manager. A missing object is ErrNotFound: it is never created.
func (c *Client) ReplaceStatus(ctx context.Context, r Resource, name, manager string, status any) error {
	body, err := json.Marshal([]any{struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}{"add", "/status", status}})
	if err != nil {
		return fmt.Errorf("encode status of %s %s: %w", r, name, err)
	}
	return c.write(ctx, r, request{
		method: http.MethodPatch, path: r.path(name, "status"), query: url.Values{"fieldManager": {manager}}, contentType: jsonPatch, body: body,
	})
}
