// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"context"
	"errors"
	"time"
)

// How a call that was seen ended without trailers of the backend.
var (
	// ErrReset: one of the ends reset the stream.
	ErrReset = errors.New("stream reset")
	// ErrGone: the connection of the client or of the backend ended.
	ErrGone = errors.New("connection gone")
	// ErrBlind: the connection went blind (malformed frames), the end of the call is unknown.
	ErrBlind = errors.New("connection relayed blindly")
)

// Opaque is the reason why the message of a wanted call was not shown to the Handler. The original bytes were forwarded.
type Opaque string

// The reasons.
const (
	OpaqueCompressed Opaque = "compressed"       // the gRPC compressed flag is set
	OpaqueTooLarge   Opaque = "too large"        // longer than Limits.Message, or the connection holds Limits.Held already
	OpaqueShape      Opaque = "not one message"  // none, several or a truncated one
	OpaqueTrailers   Opaque = "request trailers" // the client sent trailers, which gRPC does not know
)

// Call names one wanted call. State belongs to the Handler: it carries what Request knew to Response.
type Call struct {
	// Path is the gRPC method, "/package.Service/Method".
	Path string
	// Conn counts client connections of this server from 1; Stream is the HTTP/2 stream in it.
	Conn   uint64
	Stream uint32
	// State is only touched by the Handler.
	State any
}

// Rejection is the answer to the client in place of the backend.
type Rejection struct {
	// Code is the gRPC status code, 1..16. Message is cut to 4 KiB.
	Code    uint32
	Message string
}

// Verdict says what becomes of a request. The zero Verdict forwards it unchanged.
type Verdict struct {
	// Message replaces the request message (without the 5-byte gRPC prefix) when it is not nil.
	Message []byte
	// Reject, when not nil, ends the call; the backend never sees a message.
	Reject *Rejection
	// Meanwhile, when not nil, is called when the request has gone on, and before Response: work that the backend need not wait
	// for is done while it works. It is not called for a rejected request.
	Meanwhile func()
}

// Result is how a call ended.
type Result struct {
	// Code and Message are grpc-status and grpc-message; Code is -1 when no trailers came.
	Code    int
	Message string
	// Reply is the reply message without prefix; nil if there was none, it was compressed, or longer than Limits.Reply.
	Reply []byte
	// At is when the trailers came, zero when none did.
	At time.Time
	// Err is nil when trailers came, else ErrReset, ErrGone or ErrBlind.
	Err error
}

// Handler sees the wanted calls. The methods of one call run one after the other on one goroutine of that call; different calls are concurrent.
// A panic in a method is recovered: the original request goes on.
type Handler interface {
	// Wants says whether calls of this method path are to be seen. It is asked on the reading goroutine and must not block.
	Wants(path string) bool
	// Request gets the request message of a unary call, which it may change in place only if it returns it in the Verdict.
	// ctx ends when the client resets the stream or goes away, or with the call's grpc-timeout.
	Request(ctx context.Context, call *Call, msg []byte) Verdict
	// Opaque is called instead of Request for a message that cannot be shown.
	Opaque(call *Call, why Opaque)
	// Response is called once after Request (unless it rejected) or Opaque, after the end of the call was forwarded. ctx ends when the server
	// closes, which waits for Response.
	Response(ctx context.Context, call *Call, res Result)
}

// EventKind is what an Event tells.
type EventKind string

// The kinds.
const (
	EventDial  EventKind = "dial"  // the backend cannot be reached; the client connection was closed
	EventBlind EventKind = "blind" // a connection is relayed without looking from here on
	EventPanic EventKind = "panic" // a Handler method panicked
)

// Event is something an operator may want to know.
type Event struct {
	Kind EventKind
	Conn uint64
	// Path is set for EventPanic.
	Path string
	Err  error
}
