// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"context"
	"io"
	"net"
)

// maxBefore bounds what is read of a connection before its first call names the backend.
const maxBefore = maxHeaderBlock + 64<<10

// framePriority, with SETTINGS and WINDOW_UPDATE, is all that a client sends before its first call when nobody asks it for more.
const framePriority = 0x2

// route finds the backend of a connection: it returns what was read of it so far and the function that dials. An error is the client's end.
//
// gRPC clients say nothing but their own settings before they have the server's, so the relay begins with SETTINGS that change nothing (RFC
// 9113 §6.5.2: the initial values hold). The backend's own come later, as its frames always do; the client's acknowledgement of ours stays
// here (upSide.settings).
func (s *Server) route(client net.Conn) (first []byte, dial func(context.Context) (net.Conn, error), err error) {
	if _, err := client.Write(appendSettings(nil)); err != nil {
		return nil, nil, err
	}
	first, path, err := readFirst(client)
	if err != nil {
		return nil, nil, err
	}
	if dial = s.cfg.Route(path); dial == nil {
		dial = s.cfg.Dial
	}
	return first, dial, nil
}

// readFirst reads up to the end of the first call's header block, or of whatever else comes first; path is empty then. What is not HTTP/2 is
// for the backend to refuse.
func readFirst(client io.Reader) (first []byte, path string, err error) {
	more := func(n int) ([]byte, error) {
		at := len(first)
		first = append(first, make([]byte, n)...)
		got, err := io.ReadFull(client, first[at:])
		first = first[:at+got]
		return first[at:], err
	}
	for range preface {
		if _, err := more(1); err != nil {
			return first, "", err
		}
		if n := len(first); first[n-1] != preface[n-1] {
			return first, "", nil
		}
	}
	headers := newHeaderReader()
	for len(first) < maxBefore {
		head, err := more(headerLen)
		if err != nil {
			return first, "", err
		}
		h := parseFrameHeader(head)
		switch h.kind {
		case frameHeaders, frameContinuation, frameSettings, frameWindowUpdate, framePriority:
		default:
			return first, "", nil
		}
		if h.length > maxHeaderBlock {
			return first, "", nil
		}
		payload, err := more(h.length)
		if err != nil {
			return first, "", err
		}
		if h.kind != frameHeaders && h.kind != frameContinuation {
			continue
		}
		if done, err := headers.read(h, payload); err != nil || done {
			return first, headers.fields.path, nil
		}
	}
	return first, "", nil
}

// begun is a connection of which something was read already.
type begun struct {
	net.Conn
	rest []byte
}

// Read implements io.Reader.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
