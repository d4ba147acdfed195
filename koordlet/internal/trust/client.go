// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package trust

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Timings of connections. DefaultDeadAfter lets a watch go on elsewhere within ten seconds (seed-manifests.md M-1).
const (
	DefaultDeadAfter = 7 * time.Second

	dialTimeout  = 3 * time.Second
	shakeTimeout = 4 * time.Second
	idleConn     = 90 * time.Second
)

// Options of New. Of a pair (file, bytes) the file wins.
type Options struct {
	// CAFile, or CA, holds the trust anchors as PEM: authorities, or the server's own certificate. Neither: the system's.
	CAFile string
	CA     []byte
	// ServerName is the name that the certificate must be for. Default: the host of the URL. Anchors that hold exactly one
	// certificate that is no authority pin the server's own: then its name counts.
	ServerName string
	// SkipVerify trusts whoever answers. Shown by Weakness.
	SkipVerify bool
	// TokenFile, or Token, is a bearer token. A file that does not exist is no error while there is a client certificate.
	TokenFile string
	Token     string
	// MayLack says that a CAFile or TokenFile that this machine does not have yet counts as not named, until it is there.
	MayLack bool
	// CertFile and KeyFile, or Cert and Key, are a client certificate as PEM; one file may hold both.
	CertFile, KeyFile string
	Cert, Key         []byte
	// UserAgent of every request.
	UserAgent string
	// Proxy obeys HTTPS_PROXY and NO_PROXY, as other clients of the API server do.
	Proxy bool
	// Compressed answers are asked for; worth it across a network, not on loopback.
	Compressed bool
	// DeadAfter is how long a connection may be silent, pings included, before it counts as dead: nobody closes the
	// connections of a machine that lost its power. Default 7 s.
	DeadAfter time.Duration
	// Answered, where given, hears of each answer, whatever its status, and how long its beginning took.
	Answered func(method, path string, code int, took time.Duration)
}

// Client sends requests. Safe for concurrent use.
type Client struct {
	o Options

	mu sync.Mutex
	// state is what the files held when they could last be read.
	state *state
	// unread is why they could not be at the newest try, nil where they could, and since when.
	unread error
	since  time.Time
	closed bool
}

// state is one set of files, immutable but for its connections.
type state struct {
	stamps    stamps
	transport *http.Transport
	token     string
}

// New makes a client. Files are read at the first request, so that one that is not there yet is an error of that request
// and not of the program's start.
func New(o Options) (*Client, error) {
	if (o.CertFile == "" && len(o.Cert) == 0) != (o.KeyFile == "" && len(o.Key) == 0) {
		return nil, errors.New("a client certificate needs a key, and a key a certificate")
	}
	if o.CAFile == "" && len(o.CA) > 0 {
		if _, _, err := anchors(o.CA); err != nil {
			return nil, fmt.Errorf("read trust anchor: %w", err)
		}
	}
	if o.CertFile == "" && o.KeyFile == "" && len(o.Cert) > 0 {
		if _, err := tls.X509KeyPair(o.Cert, o.Key); err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
	}
	if o.TokenFile == "" && o.Token != "" && !isToken(o.Token) {
		return nil, errors.New("read token: not a token")
	}
	if o.DeadAfter <= 0 {
		o.DeadAfter = DefaultDeadAfter
	}
	return &Client{o: o}, nil
}

// Weakness says what the settings give up, empty when nothing.
func (c *Client) Weakness() string {
	if c.o.SkipVerify {
		return "the server's certificate is not verified"
	}
	return ""
}

// Unread is why the files could not be read when they were last needed, and since when, while what they held before is in force; nil where
// they could, or never could: then each request fails by it.
func (c *Client) Unread() (since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return time.Time{}, nil
	}
	return c.since, c.unread
}

// Do sends a request and returns the answer whatever its status; redirects are not followed, because they would take the
// token along. The caller closes the body.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	s, err := c.current(req.Context())
	if err != nil {
		return nil, err
	}
	if s.token != "" {
		if req.URL.Scheme != "https" && !loopback(req.URL) {
			return nil, fmt.Errorf("%s: a token is not sent without TLS", req.URL.Redacted())
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	if c.o.UserAgent != "" {
		req.Header.Set("User-Agent", c.o.UserAgent)
	}
	asked := time.Now()
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return nil, c.explain(req.URL, s.stamps, err)
	}
	if c.o.Answered != nil {
		c.o.Answered(req.Method, req.URL.Path, resp.StatusCode, time.Since(asked))
	}
	return resp, nil
}

// Close drops idle connections; one that is in use is dropped by ending its request. A request that comes after all leaves none.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.state != nil {
		c.state.transport.CloseIdleConnections()
		c.state = nil
	}
}

// current is the state of the files as they are now. A file that became unreadable while a good state is at hand (a
// rotation that is half done) leaves that state in force, but for the token: it expires soonest, and is read by itself.
func (c *Client) current(ctx context.Context) (*state, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if c.state != nil && c.state.stamps == now {
		c.unread = nil
		return c.state, nil
	}
	fresh, err := c.build(now)
	if err != nil && c.unread == nil {
		c.since = time.Now()
	}
	c.unread = err
	switch {
	case err == nil && c.state != nil:
		c.state.transport.CloseIdleConnections()
	case err != nil && c.state != nil:
		o := c.named(now)
		if token, err := o.readToken(len(c.state.transport.TLSClientConfig.Certificates) > 0); err == nil && token != c.state.token {
			newer := *c.state
			newer.token, newer.stamps[tokenFile] = token, now[tokenFile]
			c.state = &newer
		}
		return c.state, nil
	case err != nil:
		return nil, err
	}
	c.state = fresh
	return fresh, nil
}

// build reads the files.
func (c *Client) build(now stamps) (*state, error) {
	o := c.named(now)
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	token, err := o.readToken(len(config.Certificates) > 0)
	if err != nil {
		return nil, err
	}
	quiet, wait := c.o.DeadAfter/2, c.o.DeadAfter-c.o.DeadAfter/2
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: quiet, Interval: wait / 2, Count: 2}}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    shakeTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: wait},
		MaxIdleConnsPerHost:    2,
		DisableKeepAlives:      c.closed,
		IdleConnTimeout:        idleConn,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     !c.o.Compressed,
	}
	if c.o.Proxy {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &state{stamps: now, transport: t, token: token}, nil
}

// explain says what can be done about an error of the handshake.
func (c *Client) explain(u *url.URL, now stamps, err error) error {
	var verify *tls.CertificateVerificationError
	if !errors.As(err, &verify) {
		return err
	}
	from := c.o.CAFile
	switch {
	case from == "" && len(c.o.CA) > 0:
		from = "the configured authority"
	case from == "":
		from = "the system's authorities"
	case !now.anchored():
		from = "the system's authorities, for there is no " + from
	}
	return fmt.Errorf("verify the certificate of %s against %s: %w", u.Host, from, err)
}

// loopback says that a request does not leave the machine.
func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
