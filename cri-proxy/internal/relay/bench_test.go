// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

// listReply is the length of a ListContainers reply with 250 containers.
const listReply = 214 << 10

// BenchmarkRelay compares a unary call with a 214 KB reply: direct, through two io.Copy, through the relay, and intercepted by it.
func BenchmarkRelay(b *testing.B) {
	back := startBackend(b, filepath.Join(shortDir(b), "b"))
	_, front := startRelay(b, relay.Config{Dial: dialUnix(back.path), Handler: &handler{}})
	in := binary.BigEndian.AppendUint32(nil, listReply)
	for _, bc := range []struct{ name, path, method string }{
		{"direct", back.path, "Make"}, {"bytes", byteRelay(b, back.path), "Make"}, {"relay", front, "Make"},
		{"small-direct", back.path, "Echo"}, {"small-bytes", byteRelay(b, back.path), "Echo"}, {"small-relay", front, "Echo"}, {"small-intercepted", front, "WantEcho"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			c := dial(b, bc.path)
			for b.Loop() {
				if _, err := invoke(context.Background(), c, bc.method, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func byteRelay(b *testing.B, backend string) string {
	path := filepath.Join(shortDir(b), "c")
	ln, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", backend)
			if err != nil {
				_ = client.Close()
				continue
			}
			pipe := func(dst, src net.Conn) {
				buf := make([]byte, 64<<10)
				// Plain read and write, not splice: what a relay in user space can do.
				_, _ = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, buf)
				_ = dst.Close()
				_ = src.Close()
			}
			go pipe(server, client)
			go pipe(client, server)
		}
	}()
	return path
}
