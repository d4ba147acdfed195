// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Patch types of the API: https://kubernetes.io/docs/reference/using-api/api-concepts/.
const (
	MergePatch     = "application/merge-patch+json"
	StrategicPatch = "application/strategic-merge-patch+json"
	JSONPatch      = "application/json-patch+json"
	ApplyPatch     = "application/apply-patch+yaml" // JSON is YAML; the path says ?fieldManager=
)

// Client speaks JSON with the API server as one user; safe for concurrent use. Paths
// are those of the API: /api/v1/namespaces/default/pods/web.
type Client struct {
	url   string
	token string // bearer token, "" with a client certificate
	http  *http.Client
	kinds *kinds
	hear  func(warning string) // nil where nobody listens
}

// StatusError is a refusal of the API server.
type StatusError struct {
	Code    int    // HTTP status
	Reason  string // NotFound, Conflict, Forbidden, Invalid ...
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message)
}

// Refused says whether err is a refusal for that reason.
func Refused(err error, reason string) bool {
	var s *StatusError
	return errors.As(err, &s) && s.Reason == reason
}

func newClient(url string, ca *authority, token string, user *pair) (*Client, error) {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if user != nil {
		cert, err := tls.X509KeyPair(user.cert, user.key)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16}
	return &Client{url: url, token: token, http: &http.Client{Transport: transport}, kinds: &kinds{}}, nil
}

// Hearing is the same client and calls hear, before a request returns, with each warning of the answer, a refusal's too.
func (c *Client) Hearing(hear func(warning string)) *Client {
	out := *c
	out.hear = hear
	return &out
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get reads an object or a list.
func (c *Client) Get(ctx context.Context, path string) (Object, error) {
	return c.object(ctx, http.MethodGet, path, "", nil)
}

// Items reads a list's objects.
func (c *Client) Items(ctx context.Context, path string) ([]Object, error) {
	list, err := c.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	return list.Items(), nil
}

// Create posts an object to its collection.
func (c *Client) Create(ctx context.Context, path string, o any) (Object, error) {
	return c.object(ctx, http.MethodPost, path, "application/json", o)
}

// Update puts an object; with metadata.resourceVersion a conflict is refused.
func (c *Client) Update(ctx context.Context, path string, o any) (Object, error) {
	return c.object(ctx, http.MethodPut, path, "application/json", o)
}

// Patch changes an object; kind is MergePatch, StrategicPatch, JSONPatch or ApplyPatch.
func (c *Client) Patch(ctx context.Context, path, kind string, patch any) (Object, error) {
	return c.object(ctx, http.MethodPatch, path, kind, patch)
}

// Delete removes an object; a negative grace is the object's own, and a query of the path holds. An absent one is no error.
func (c *Client) Delete(ctx context.Context, path string, grace time.Duration) error {
	var options any // without a body the query says how
	if grace >= 0 {
		options = map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": int64(grace / time.Second)}
	}
	_, err := c.object(ctx, http.MethodDelete, path, "application/json", options)
	if Refused(err, "NotFound") {
		return nil
	}
	return err
}

// Text reads what is no JSON: logs, metrics, /readyz.
func (c *Client) Text(ctx context.Context, path string) (string, error) {
	data, err := c.do(ctx, http.MethodGet, path, "", nil)
	return string(data), err
}

// Event is one message of a watch.
type Event struct {
	Type   string `json:"type"` // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	Object Object `json:"object"`
}

// Watch calls see for every event of a collection until it returns false, ctx ends, or
// the server closes the stream. path has its own query, without watch=1.
func (c *Client) Watch(ctx context.Context, path string, see func(Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, withQuery(path, "watch=1"), "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var e Event
		if err := dec.Decode(&e); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("watch %s: %w", path, err)
		}
		if !see(e) {
			return nil
		}
	}
}

// Wait polls an object until ok says yes. The last state is returned in any case; an
// absent object is passed as nil.
func (c *Client) Wait(ctx context.Context, path, what string, ok func(Object) bool) (Object, error) {
	var last Object
	err := poll(ctx, what, func(ctx context.Context) error {
		o, err := c.Get(ctx, path)
		if err != nil && !Refused(err, "NotFound") {
			return err
		}
		last = o
		if !ok(o) {
			return fmt.Errorf("%s is not there yet: %s", what, o.Compact("status"))
		}
		return nil
	})
	return last, err
}

func (c *Client) object(ctx context.Context, method, path, kind string, body any) (Object, error) {
	data, err := c.do(ctx, method, path, kind, body)
	if err != nil {
		return nil, err
	}
	var o Object
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("read answer to %s %s: %w", method, path, err)
	}
	return o, nil
}

func (c *Client) do(ctx context.Context, method, path, kind string, body any) ([]byte, error) {
	resp, err := c.send(ctx, method, path, kind, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return data, nil
}

// send returns an answer of 2xx; everything else becomes a StatusError.
func (c *Client) send(ctx context.Context, method, path, kind string, body any) (*http.Response, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return nil, fmt.Errorf("encode body of %s %s: %w", method, path, err)
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if c.hear != nil {
		for _, w := range resp.Header.Values("Warning") {
			c.hear(warning(w))
		}
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, fmt.Errorf("%s %s: %w", method, path, readStatus(resp))
}

// warning is the text of a header such as 299 - "text": API servers write one into each (RFC 7234, 5.5).
func warning(header string) string {
	_, quoted, _ := strings.Cut(header, " - ")
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return header
	}
	return text
}

func readStatus(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what arrived is shown
	s := &StatusError{Code: resp.StatusCode}
	var status struct{ Reason, Message string }
	if json.Unmarshal(data, &status) == nil {
		s.Reason, s.Message = status.Reason, status.Message
	}
	if s.Message == "" {
		s.Message = string(data)
	}
	return s
}
