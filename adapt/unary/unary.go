// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package unary makes unary gRPC calls with the standard library alone: HTTP/2 without TLS, one length-prefixed message
// each way, the result in the trailers (PROTOCOL-HTTP2 of gRPC).
//
// Input is an address, a method name and a protobuf message's bytes; output is the answer's bytes or a [Status]. The full
// gRPC library would cost a daemon a third of its memory for a handful of calls. It imports the standard library only and
// knows no message.
package unary

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// prefix is the length of what stands before a message: a flag (0: not compressed) and four bytes of length.
const prefix = 5

// Codes of a Status that callers tell apart (gRPC's status codes).
const (
	CodeDeadlineExceeded = 4
	CodeNotFound         = 5
	CodeUnimplemented    = 12
)

// ErrTooLarge is wrapped when a message or an answer is longer than the client's limit.
var ErrTooLarge = errors.New("message too large")

var errFrame = errors.New("answer is no single plain gRPC message")

// Status is the error that a server answered.
type Status struct {
	// Code is a gRPC status code, never 0.
	Code int
	// Message is the server's text.
	Message string
}

// Error names code and text.
func (s *Status) Error() string { return fmt.Sprintf("gRPC code %d: %s", s.Code, s.Message) }

// Client calls one server. It connects at the first call and again whenever the connection is gone. Its methods may be
// used from several goroutines.
type Client struct {
	http  *http.Client
	limit int
}

// New makes a client of the server at address: a path where network is "unix", host:port where it is "tcp". limit bounds
// both messages and answers, in bytes; grpc-go's own default is 4 MiB.
func New(network, address string, limit int) *Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &Client{limit: limit, http: &http.Client{Transport: &http.Transport{
		Protocols:          &protocols,
		DisableCompression: true,
		IdleConnTimeout:    30 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}}
}

// Close lets go of connections that no call uses; a call in flight ends as it would have.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call sends one message to a method ("/package.Service/Method") and returns the answer's bytes. The context's deadline
// travels with the call. The error is a [*Status] when the server answered one.
func (c *Client) Call(ctx context.Context, method string, message []byte) ([]byte, error) {
	if len(message) > c.limit {
		return nil, fmt.Errorf("%w: %d bytes to send, at most %d", ErrTooLarge, len(message), c.limit)
	}
	frame := make([]byte, prefix, prefix+len(message))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(message)))
	frame = append(frame, message...)
	resp, unsent, err := c.send(ctx, method, frame)
	if unsent && errors.Is(err, syscall.EPIPE) { // a connection whose server has gone, which nobody has noticed: another one may be there
		resp, _, err = c.send(ctx, method, frame)
	}
	if err != nil {
		return nil, late(ctx, err)
	}
	defer resp.Body.Close()
	body, err := c.answer(resp)
	return body, late(ctx, err)
}

// send makes one request. unsent: it has failed, and nothing of the message has left us.
func (c *Client) send(ctx context.Context, method string, frame []byte) (resp *http.Response, unsent bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+method, http.NoBody)
	if err != nil {
		return nil, false, fmt.Errorf("make the request: %w", err)
	}
	var begun atomic.Bool
	req.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(&noted{bytes.NewReader(frame), &begun}), nil
	}
	req.Body, _ = req.GetBody()
	req.ContentLength = int64(len(frame))
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", timeout(time.Until(deadline)))
	}
	if resp, err = c.http.Do(req); err == nil {
		return resp, false, nil
	}
	// The URL in the error names our placeholder host, which helps nobody.
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return nil, !begun.Load(), err
}

// noted is a body that notes that somebody has begun to send it.
type noted struct {
	io.Reader
	begun *atomic.Bool
}

func (n *noted) Read(p []byte) (int, error) {
	n.begun.Store(true)
	return n.Reader.Read(p)
}

// late marks the error of a call whose time is up: a server keeps the same deadline and may reset the stream a moment
// before our own timer ends, which would read as a broken connection.
func late(ctx context.Context, err error) error {
	const moment = 10 * time.Millisecond
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var refused *Status
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < moment && !errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// answer reads the message, if there is one, then the result.
func (c *Client) answer(resp *http.Response) ([]byte, error) {
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/grpc") {
		return nil, fmt.Errorf("answer is not gRPC: HTTP %s", resp.Status)
	}
	body, err := c.message(resp.Body)
	status := result(resp)
	var refused *Status
	if err != nil && errors.As(status, &refused) {
		return nil, refused // a refusal comes without a message
	}
	if err != nil {
		return nil, err
	}
	if status != nil {
		return nil, status
	}
	return body, nil
}

// message reads exactly one message up to the end of the body; the trailers are known only after that.
func (c *Client) message(from io.Reader) ([]byte, error) {
	var head [prefix]byte
	if _, err := io.ReadFull(from, head[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errFrame
	} else if err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	switch {
	case head[0] != 0:
		return nil, errFrame
	case n > int64(c.limit):
		return nil, fmt.Errorf("%w: answer of %d bytes, at most %d", ErrTooLarge, n, c.limit)
	}
	// One byte more than announced would be a second message.
	body, err := io.ReadAll(io.LimitReader(from, n+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != n {
		return nil, errFrame
	}
	return body, nil
}

// result reads gRPC's status, which stands in the trailers, or in the header of an answer without a body.
func result(resp *http.Response) error {
	code, text := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if code == "" {
		code, text = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	if code == "" {
		return errors.New("answer is not gRPC: no status")
	}
	n, err := strconv.Atoi(code)
	switch {
	case err != nil:
		return fmt.Errorf("answer is not gRPC: status %.20q", code)
	case n == 0:
		return nil
	}
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	const longest = 1024
	return &Status{Code: n, Message: text[:min(len(text), longest)]}
}

// timeout renders a duration for the header grpc-timeout: at most eight digits and a unit.
func timeout(d time.Duration) string {
	const most = 99999999
	switch d = max(d, 0); {
	case d.Microseconds() <= most:
		return strconv.FormatInt(d.Microseconds(), 10) + "u"
	case d.Milliseconds() <= most:
		return strconv.FormatInt(d.Milliseconds(), 10) + "m"
	default:
		return strconv.FormatInt(min(int64(d/time.Second), most), 10) + "S"
	}
}
