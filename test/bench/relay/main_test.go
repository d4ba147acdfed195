// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Both ways of copying bring every byte in both directions, and the end of a stream.
func TestServe(t *testing.T) {
	t.Parallel()
	for name, buffer := range map[string]int{"io.Copy": 0, "buffer": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			front, back := filepath.Join(dir, "f"), filepath.Join(dir, "b")
			echo(t, back)
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: front, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- serve(ctx, l, back, buffer) }()
			want := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
			if got := roundTrip(t, front, want); !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back of %d", len(got), len(want))
			}
			cancel()
			if err := <-done; !errors.Is(err, net.ErrClosed) {
				t.Errorf("serve ended with %v", err)
			}
		})
	}
}

// echo serves a socket that sends back what it gets.
func echo(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // what is missing is seen by the test
				_ = c.Close()
			}()
		}
	}()
}

func roundTrip(t *testing.T, path string, data []byte) []byte {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = c.Write(data) // what is missing is seen by the test
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return got
}
