// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stopTimeout bounds all Stops of a group together.
const stopTimeout = 10 * time.Second

// Component is one part of a daemon. Every function may be nil.
type Component struct {
	Name string
	// Start makes it ready and returns; components start in order, and the ones before are stopped when one fails.
	Start func(ctx context.Context) error
	// Run works until ctx ends. Returning earlier, with or without an error, ends the group.
	Run func(ctx context.Context) error
	// Stop releases what Start took; called in reverse order after every Run has returned, with a context that bounds
	// it.
	Stop func(ctx context.Context) error
}

// Group runs components. Fill the fields and Add before Run; a group runs once.
type Group struct {
	// OnReady is called once every Start has returned (sd_notify READY); may be nil.
	OnReady func()
	// OnStopping is called when the group begins to stop; may be nil.
	OnStopping func()

	components []Component
}

// Add appends a component.
func (g *Group) Add(c Component) { g.components = append(g.components, c) }

// Run starts all, waits for the first Run to return or for ctx, waits for all, stops all, and returns every error
// joined. The end of ctx is no error; a panic in a component is one.
func (g *Group) Run(ctx context.Context) error {
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	started, err := g.start(runCtx)
	errs := []error{err}
	if err == nil {
		if g.OnReady != nil {
			g.OnReady()
		}
		stopping := sync.OnceFunc(func() {
			if g.OnStopping != nil {
				g.OnStopping()
			}
			cancel()
		})
		errs = append(errs, g.work(runCtx, stopping)...)
		stopping()
	}
	cancel()
	errs = append(errs, g.stop(context.WithoutCancel(ctx), started)...)
	return errors.Join(errs...)
}

func (g *Group) start(ctx context.Context) (started int, err error) {
	for i, c := range g.components {
		if ctx.Err() != nil {
			return i, nil
		}
		if c.Start == nil {
			continue
		}
		if err := guard("start", c.Name, func() error { return c.Start(ctx) }); err != nil {
			return i, err
		}
	}
	return len(g.components), nil
}

// work runs every Run in a goroutine of its own and returns when all have returned; it calls stopping when the first has,
// or at ctx's end.
func (g *Group) work(ctx context.Context, stopping func()) []error {
	if ctx.Err() != nil {
		return nil
	}
	type end struct {
		name string
		err  error
	}
	ends := make(chan end)
	n := 0
	for _, c := range g.components {
		if c.Run == nil {
			continue
		}
		n++
		go func() {
			ends <- end{c.Name, guard("run", c.Name, func() error { return c.Run(ctx) })}
		}()
	}
	if n == 0 {
		<-ctx.Done()
	}
	var errs []error
	done := ctx.Done()
	for n > 0 {
		var e end
		select {
		case <-done:
		case e = <-ends:
			n--
		}
		// What returns before it was asked to ends the group, and is an error whatever it says.
		asked := ctx.Err() != nil
		if e.name != "" && e.err == nil && !asked {
			e.err = fmt.Errorf("run %s: %w", e.name, ErrEarly)
		}
		done = nil
		stopping()
		if e.err != nil && !(asked && errors.Is(e.err, context.Canceled)) {
			errs = append(errs, e.err)
		}
	}
	return errs
}

// ErrEarly is what a component is reported with that returned without an error before it was told to.
var ErrEarly = errors.New("ended by itself")

func (g *Group) stop(ctx context.Context, started int) []error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var errs []error
	for _, c := range slices.Backward(g.components[:started]) {
		if c.Stop == nil {
			continue
		}
		if err := guard("stop", c.Name, func() error { return c.Stop(ctx) }); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// guard names the component in errors and turns a panic into one, so that the others are stopped in order.
func guard(verb, name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s %s: panic: %v\n%s", verb, name, p, debug.Stack())
		}
	}()
	if err := f(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, name, err)
	}
	return nil
}

// Signals derives a context that ends at SIGINT or SIGTERM. A second signal kills the process as usual.
func Signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
