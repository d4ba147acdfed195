// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package relay is the transparent core of koord-runtime-proxy: a passive HTTP/2 interposer between a gRPC client and a gRPC server.
//
// Input: connections of a listener, a function that dials the backend, and a Handler. Output: the same bytes on the other side; only the
// messages of unary calls the Handler wants are held, shown to it and replaced.
//
// # How it stays transparent
//
// Every client connection has one backend connection, stream ids are the same on both, and frames are written as they were read: settings,
// pings, GOAWAY, priorities, frame types nobody knows yet. Header blocks are never altered, delayed or dropped, so the HPACK tables of the two
// ends stay in step without us; own decoders listen along to learn :path and grpc-status.
//
// # Flow control
//
// The credit of the real ends passes untouched until a call is intercepted. From then on two balances are kept for the connection and two for
// each intercepted stream: what the client believes it may send and what the backend still takes (flow.go). Held bytes are given back to
// the client as fresh credit; a message that grew is paid for by WINDOW_UPDATEs of the backend that are kept back; DATA waits, and only
// DATA, while the backend's credit is missing. No DATA is added to the direction server to client, so it is exact by construction.
//
// # Rejection
//
// The backend has the HEADERS of a rejected call already and may be answering. A HEADERS frame of it cannot be dropped (HPACK) and must not
// follow our own answer (RFC 9113 §5.1: frames after END_STREAM may be a connection error). So the stream is reset at the backend and an
// empty SETTINGS frame is sent behind the reset; its acknowledgement tells that whatever the backend had to say about the stream has passed.
// Only then the client gets its answer, encoded without touching the dynamic table. (A PING would do the same, but gRPC servers count pings
// and close connections which send many.) A backend that hangs therefore delays a rejection until the client's deadline; it has not seen the
// message. If the backend ends the stream by itself before the acknowledgement, its own end of the call stands.
//
// # Two backends
//
// With Config.Route the first call of a connection names its backend (route.go). One connection cannot be shared between two: each end's HPACK
// table and credit run through all calls of a connection. To hear the first call the relay says SETTINGS of its own, without values, and
// keeps their acknowledgement; that is all that is added in the direction server to client.
//
// # Where the client's direction waits
//
// Two frames may not overtake queued DATA: trailers of the client, which gRPC does not have, and the acknowledgement of SETTINGS that make the
// stream windows smaller. Until the DATA is out nothing more is read from that client. All else passes.
//
// # Where the backend's direction waits
//
// A backend that does not know a method ends the call at its HEADERS. While the Handler has the message, or the rest of it is awaited (a tenth
// of a second at most), the answer waits, and with it what comes behind, for header blocks keep their order: what the Handler does ahead of
// a call is done before the client goes on.
//
// Must not be imported: google.golang.org/grpc outside tests, net/http (memory at rest), any other room of the project.
package relay
