// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

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
	"time"
)

// maxMessage is kubelet's limit of one CRI message.
const maxMessage = 16 << 20

// client makes unary gRPC calls over a unix socket: HTTP/2 without TLS, one length-prefixed message each way, the result
// in the trailers (PROTOCOL-HTTP2 of gRPC). The full gRPC library would cost this daemon a third of its memory for two
// calls that it makes when it has lost track of a container.
type client struct{ http *http.Client }

func newClient(path string) *client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &client{http: &http.Client{Transport: &http.Transport{
		Protocols:       &protocols,
		IdleConnTimeout: 30 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// call sends one message and returns the answer's.
func (c *client) call(ctx context.Context, method string, message []byte) ([]byte, error) {
	frame := make([]byte, 5, 5+len(message)) // flag 0: not compressed; then the length
	binary.BigEndian.PutUint32(frame[1:], uint32(len(message)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+method, bytes.NewReader(append(frame, message...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage+5))
	if err != nil {
		return nil, err
	}
	if err := status(resp); err != nil {
		return nil, err
	}
	if len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:5])) != len(body)-5 {
		return nil, errors.New("answer is no single plain gRPC message")
	}
	return body[5:], nil
}

// status reads gRPC's result, which stands in the trailers, or in the header of an answer without a body.
func status(resp *http.Response) error {
	code, text := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if code == "" {
		code, text = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	switch {
	case code == "0":
		return nil
	case code == "":
		return fmt.Errorf("answer is not gRPC: HTTP %s", resp.Status)
	}
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	return fmt.Errorf("gRPC code %s: %s", code, text)
}
