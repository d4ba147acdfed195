// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package exits notices containers that have ended by themselves. CRI and Docker's API tell of the ends that somebody asks
// for; the engine finds others only when a direct write fails, and with koord-nri beside the proxy it writes nothing.
//
// Inputs are the engine's containers, their cgroups and, for one whose cgroup was never seen, the runtime; output is
// engine.Stop. It may import the engine, kernel/cgroup, kernel/root and model.
package exits

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

const (
	// defaultEvery is how often the cgroups are looked at: one small read for each container.
	defaultEvery = 2 * time.Second
	// maxAsked bounds how often the runtime is asked about one container. It may take a moment until it knows of an end.
	maxAsked = 5
)

// Options of a Watch. All are required unless a comment says otherwise.
type Options struct {
	Engine *engine.Engine
	Files  cgroup.FS
	// Ended asks the runtime whether a container has ended.
	Ended func(ctx context.Context, id string) (bool, error)
	// Every is the time between two looks; 0 is 2 s.
	Every time.Duration
}

// Watch looks at the cgroups of running containers.
type Watch struct {
	o Options

	mu sync.Mutex
	// seen are the containers that had processes at the last look; asked is how often the runtime was asked about others.
	seen  map[string]bool
	asked map[string]int
}

// New makes a Watch.
func New(o Options) *Watch {
	if o.Every <= 0 {
		o.Every = defaultEvery
	}
	return &Watch{o: o, seen: map[string]bool{}, asked: map[string]int{}}
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, id := range w.Look() {
			w.ask(ctx, id)
		}
	}
}

// Look takes the containers that have ended since the last look out of the engine's sums. It returns those without
// processes that were never seen with any, as long as the runtime may know more: they have ended at once, or have their
// cgroup elsewhere.
func (w *Watch) Look() (unseen []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen, asked := make(map[string]bool, len(w.seen)), map[string]int{}
	for _, m := range w.o.Engine.Members() {
		for _, c := range m.Containers {
			n := w.asked[c.ID]
			switch {
			case w.lives(c):
				seen[c.ID] = true
			case w.seen[c.ID]:
				if !w.o.Engine.Ended(c) {
					seen[c.ID] = true // as far as was seen
				}
			case n < maxAsked:
				unseen = append(unseen, c.ID)
				fallthrough
			default:
				asked[c.ID] = n
			}
		}
	}
	w.seen, w.asked = seen, asked
	return unseen
}

// ask asks the runtime about a container whose cgroup was not found. One that does not answer is asked again.
func (w *Watch) ask(ctx context.Context, id string) {
	_, c, known := w.o.Engine.Known(id)
	if !known || c.State == workload.StateCreating {
		return // it has gone, or another life of it is about to begin
	}
	ended, err := w.o.Ended(ctx, id)
	switch {
	case err != nil:
	case ended:
		w.o.Engine.Ended(c)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[id]++
	}
}

// lives reports whether a container's cgroup has processes. What cannot be read says nothing.
func (w *Watch) lives(c *workload.Container) bool {
	dir, err := w.o.Files.ProcsDir(plan.Target{Level: plan.LevelContainer, Cgroup: c.Cgroup})
	if err != nil {
		return true
	}
	if w.o.Files.Version() == node.CgroupV2 {
		events, err := root.Read(dir + "/cgroup.events") // of the cgroups below, too
		return err != nil && !errors.Is(err, fs.ErrNotExist) || strings.Contains(events, "populated 1")
	}
	procs, err := root.Read(dir + "/cgroup.procs")
	if err != nil || procs != "" {
		return !errors.Is(err, fs.ErrNotExist)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			return true // somebody in the container has cgroups of his own
		}
	}
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}
