// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package feed keeps an engine in step with a container runtime, over the runtime's restarts: for programs that ask it, and are not
// called by it as NRI's are.
//
// Inputs are the questions that a way to a runtime can ask (CRI, Docker); outputs are the engine's list and its connection
// state. It may import the engine, model and api; never adapt, whose clients are handed to it.
package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine"
)

const (
	// pingEvery is how often the runtime is asked whether it is there, and by koordlet for its lists; a restart is followed by a new list.
	pingEvery = 2 * time.Second
	// held is how long a connection must have stood for the next wait to start from the shortest again.
	held = 10 * time.Second
	// maxTries bounds how often in one session what could not be read of the list is asked for again.
	maxTries = 5
)

// Options of a Keeper; all are required.
type Options struct {
	Pace   config.Reconnect
	Engine *engine.Engine
	// Hello asks the runtime who it is and publishes it.
	Hello func(ctx context.Context) error
	// List takes in the runtime's pods and containers: all while nobody is served yet (first); later those that are not
	// known, while those that have vanished are forgotten. missed: part of it could not be read, and is asked for again.
	List func(ctx context.Context, first bool) (missed bool, err error)
	// Ping fails when the runtime is away.
	Ping func(ctx context.Context) error
}

// Keeper keeps a session.
type Keeper struct {
	o       Options
	synced  chan struct{}
	once    sync.Once
	serving atomic.Bool
	look    chan struct{}
}

// New makes a Keeper. Nothing is asked before Run.
func New(o Options) *Keeper {
	return &Keeper{o: o, synced: make(chan struct{}), look: make(chan struct{}, 1)}
}

// Synced is closed when the runtime's containers have been taken in for the first time.
func (k *Keeper) Synced() <-chan struct{} { return k.synced }

// Serving says that clients may come from now on: what is known must not be replaced as a whole any more.
func (k *Keeper) Serving() { k.serving.Store(true) }

// Look asks the runtime soon whether it is there: a call to it has been cut, or answered while it counts as away.
func (k *Keeper) Look() {
	select {
	case k.look <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	wait := k.o.Pace.Min.Std()
	for ctx.Err() == nil {
		start := time.Now()
		err := k.session(ctx)
		k.o.Engine.Joined(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > held {
			wait = k.o.Pace.Min.Std()
		}
		k.o.Engine.Trouble("runtime", "connection", err)
		select {
		case <-ctx.Done():
		case <-k.look: // the wait was not over, and does not grow
		case <-time.After(wait):
			wait = min(wait*2, k.o.Pace.Max.Std())
		}
	}
}

// session lives through one life of the runtime. The error says why it ended.
func (k *Keeper) session(ctx context.Context) error {
	if err := k.o.Hello(ctx); err != nil {
		return err
	}
	first := !k.serving.Load()
	missed, err := k.o.List(ctx, first)
	if err != nil {
		return err
	}
	missed = missed || first && k.serving.Load() // what clients have removed meanwhile may be in it all the same
	k.once.Do(func() { close(k.synced) })
	k.o.Engine.Joined(true)
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for tries := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-k.look:
		}
		if err := k.o.Ping(ctx); err != nil {
			return err
		}
		if !missed || tries == maxTries {
			continue
		}
		tries++
		if missed, err = k.o.List(ctx, false); err != nil {
			return err
		}
	}
}
