// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// settled is how long a connection must have stood for the next wait to start from the shortest again.
const settled = 10 * time.Second

// Connect keeps one connection to the runtime until ctx ends. The lock file, held by main, keeps a second process
// away; within this one a new connection is made only when the old one has ended in all its parts: two live connections
// of one plugin make every container creation on the node fail.
func (p *Plugin) Connect(ctx context.Context) {
	wait := p.o.Config.Reconnect.Min.Std()
	for ctx.Err() == nil {
		start := time.Now()
		err := p.connectOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > settled {
			wait = p.o.Config.Reconnect.Min.Std()
		}
		p.engine.Trouble("runtime", "connection", err)
		if !p.sleep(ctx, jittered(wait)) {
			return
		}
		wait = min(wait*2, p.o.Config.Reconnect.Max.Std())
	}
}

// jittered is d with up to a quarter taken off or added: the plugins of a rack that lost power must not all return in
// the same moment.
func jittered(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d*3/4 + rand.N(d/2+1)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// connectOnce lives through one connection.
func (p *Plugin) connectOnce(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.o.Config.Socket)
	if err != nil {
		return fmt.Errorf("connect to the NRI socket: %w", err)
	}
	watched := &watchedConn{Conn: conn, broken: make(chan struct{})}
	defer watched.Close()
	closed := make(chan struct{})
	s, err := stub.New(p,
		stub.WithPluginName(p.o.Config.PluginName), stub.WithPluginIdx(p.o.Config.PluginIndex),
		stub.WithConnection(watched),
		stub.WithOnClose(sync.OnceFunc(func() { close(closed) })),
		stub.WithLogger(stubLog{p.log}),
		// Should we be late all the same, a runtime that knows failure policies (NRI ≥ 0.12.4) goes on without our reply and
		// keeps us; older ones ignore this.
		stub.WithFailurePolicy(&api.FailurePolicy{KeepConnected: true}),
	)
	if err != nil {
		return fmt.Errorf("make the NRI stub: %w", err)
	}
	var sess session = s
	p.session.Store(&sess)
	if err := p.startStub(ctx, s, watched); err != nil {
		return err
	}
	p.engine.Joined(true)
	defer p.engine.Joined(false)
	select {
	case <-closed:
		err = errors.New("runtime closed the connection")
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Stop()
	s.Wait()
	return err
}

// startStub registers and waits for Configure. The stub waits for it without end, even when the connection has broken
// in between; a broken connection is therefore answered by a Configure of our own, which fails and ends the wait. A runtime that has not
// said a word has not registered us: the stub then ends by itself, and may not even have made what such a Configure would be told by.
func (p *Plugin) startStub(ctx context.Context, s stub.Stub, conn *watchedConn) error {
	started := make(chan error, 1)
	go func() { started <- s.Start(ctx) }()
	limit := time.NewTimer(2 * stub.DefaultRegistrationTimeout)
	defer limit.Stop()
	select {
	case err := <-started:
		return wrapStart(err)
	case <-conn.broken:
	case <-limit.C:
	case <-ctx.Done():
	}
	_ = conn.Close() // what waits for the runtime returns now
	select {
	case err := <-started:
		return abandon(s, err)
	case <-conn.broken:
	}
	if !conn.spoken.Load() {
		return abandon(s, <-started)
	}
	if c, ok := s.(interface {
		Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error)
	}); ok {
		go func() {
			_, _ = c.Configure(ctx, &api.ConfigureRequest{RuntimeName: abandonedRuntime, NRIVersion: "v0.0.0"})
		}()
	}
	return abandon(s, <-started)
}

// abandon ends a stub whose connection is of no use any more, however its start has ended.
func abandon(s stub.Stub, err error) error {
	if err == nil {
		s.Stop()
		err = errAbandoned
	}
	return wrapStart(err)
}

func wrapStart(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("register with the runtime: %w", err)
}

// watchedConn tells when reading has failed for good, and whether anything was read before.
type watchedConn struct {
	net.Conn
	spoken atomic.Bool
	once   sync.Once
	broken chan struct{}
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.spoken.Store(true)
	}
	if err != nil {
		c.once.Do(func() { close(c.broken) })
	}
	return n, err
}
