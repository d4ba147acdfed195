// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command relay passes bytes between two unix sockets and looks at none: what a call costs through it is the price of a
// process in between, which any proxy pays.
//
// Input are a socket to serve, the socket behind it and a nice value; output are the bytes. Only the benchmarks run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/koord-rt/koord-rt/daemon/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("relay", flag.ContinueOnError)
	listen := f.String("listen", "", "socket to serve")
	backend := f.String("backend", "", "socket behind it")
	nice := f.Int("nice", 0, "nice value")
	buffer := f.Int("buffer", 0, "bytes of the buffers; 0 leaves the way of copying to io.Copy, which here is splice(2)")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *nice != 0 {
		if err := run.Prioritise(*nice); err != nil {
			return err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: *listen, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return serve(ctx, l, *backend, *buffer)
}

// serve passes on connections until ctx ends.
func serve(ctx context.Context, l *net.UnixListener, backend string, buffer int) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // Accept then says so
	for {
		client, err := l.AcceptUnix()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		server, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: backend, Net: "unix"})
		if err != nil {
			_ = client.Close() // the client sees that nobody is there
			continue
		}
		go join(client, server, buffer)
	}
}

// join passes both directions and closes when both have ended.
func join(client, server *net.UnixConn, buffer int) {
	var wg sync.WaitGroup
	wg.Go(func() { pass(server, client, buffer) })
	wg.Go(func() { pass(client, server, buffer) })
	wg.Wait()
	_, _ = client.Close(), server.Close()
}

// pass copies one direction to its end, of which the other may know nothing yet; an error ends both.
func pass(to, from *net.UnixConn, buffer int) {
	var err error
	if buffer == 0 {
		_, err = io.Copy(to, from)
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, buffer))
	}
	if err == nil {
		_ = to.CloseWrite()
		return
	}
	_, _ = to.Close(), from.Close()
}
