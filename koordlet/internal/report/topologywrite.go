// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
)

// Times of TopologyWriter.
const (
	// topologyReread is how often it is looked whether somebody has changed what is ours.
	topologyReread = 10 * time.Minute
	// topologySettle is how long something that keeps changing is waited for.
	topologySettle = time.Minute
)

// ObjectWriter reads, makes and changes objects; *kube.Client is one.
type ObjectWriter interface {
	Get(ctx context.Context, r kube.Resource, name string) ([]byte, error)
	Create(ctx context.Context, r kube.Resource, manager string, object any) error
	Merge(ctx context.Context, r kube.Resource, name, manager string, patch any) error
}

// TopologyOptions of NewTopology. All are required but Check.
type TopologyOptions struct {
	API ObjectWriter
	// Node is the name of our Node object, and of the NodeResourceTopology.
	Node string
	// Build is what shall be told now, called in Run's goroutine; false while it is not known.
	Build func() (Topology, bool)
	// Check is how often it is looked for changes. Default 10 s.
	Check time.Duration
}

// TopologyState says how it goes: Written is the last success, Err why the last attempt failed.
type TopologyState struct {
	Written time.Time
	Err     error
	// Writes counts successes, Reads how often the object was read.
	Writes, Reads uint64
}

// TopologyWriter keeps the node's NodeResourceTopology. A change is written when it has stood for one check, so that a pod's
// start, which changes several things, is one write; nothing is written while the object says all of it.
type TopologyWriter struct {
	o     TopologyOptions
	state atomic.Pointer[TopologyState]

	// The rest belongs to Run. told is what the object said when it was last in step, seen what the last check found, since
	// when it differs; readAt and tryAt are when the object is read again at the latest and at the earliest.
	told, seen    *Topology
	since         time.Time
	readAt, tryAt time.Time
	failures      int
}

// NewTopology makes a writer; nothing is read yet.
func NewTopology(o TopologyOptions) (*TopologyWriter, error) {
	if o.API == nil || o.Build == nil || o.Node == "" {
		return nil, errors.New("make report of topology: API, Build and Node are required")
	}
	if o.Check <= 0 {
		o.Check = DefaultCheck
	}
	w := &TopologyWriter{o: o}
	w.state.Store(&TopologyState{})
	return w, nil
}

// State is how it goes; never nil.
func (w *TopologyWriter) State() *TopologyState { return w.state.Load() }

// Run works until ctx ends, and returns nil then.
func (w *TopologyWriter) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(w.o.Check))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		w.look(ctx, time.Now())
		timer.Reset(w.o.Check)
	}
}

// look writes if something has changed and stands.
func (w *TopologyWriter) look(ctx context.Context, now time.Time) {
	fresh, ok := w.o.Build()
	if !ok {
		return
	}
	settled := w.told == nil || w.seen != nil && reflect.DeepEqual(*w.seen, fresh)
	w.seen = &fresh
	if w.told != nil && reflect.DeepEqual(*w.told, fresh) {
		w.since = time.Time{}
		if now.Before(w.readAt) {
			return
		}
	} else if w.since.IsZero() {
		w.since = now
	}
	if now.Before(w.tryAt) || !settled && now.Sub(w.since) < topologySettle {
		return
	}
	wrote, err := w.write(ctx, &fresh)
	if ctx.Err() != nil {
		return
	}
	state := *w.State()
	state.Err = err
	state.Reads++
	if wrote && err == nil {
		state.Writes, state.Written = state.Writes+1, now
	}
	w.state.Store(&state)
	if err != nil {
		w.failures++
		w.tryAt = now.Add(w.patience(err))
		w.readAt = time.Time{} // the server may have taken it, and only its answer was lost: what was told may stand there no more
		return
	}
	w.told, w.failures, w.since, w.tryAt = &fresh, 0, time.Time{}, time.Time{}
	w.readAt = now.Add(jitter(topologyReread))
}

// write brings the object into step and reports whether that took a write, which may have failed.
func (w *TopologyWriter) write(ctx context.Context, t *Topology) (bool, error) {
	raw, err := w.o.API.Get(ctx, kube.NodeResourceTopologies, w.o.Node)
	if errors.Is(err, kube.ErrNotFound) {
		return true, w.o.API.Create(ctx, kube.NodeResourceTopologies, Manager, w.object(t))
	}
	if err != nil {
		return false, err
	}
	var o topologyObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return false, fmt.Errorf("read %s %s: %w", kube.NodeResourceTopologies, w.o.Node, err)
	}
	patch, changed := t.into(&o)
	if !changed {
		return false, nil
	}
	return true, w.o.API.Merge(ctx, kube.NodeResourceTopologies, w.o.Node, Manager, patch)
}

// object is a whole one.
func (w *TopologyWriter) object(t *Topology) map[string]any {
	r := kube.NodeResourceTopologies
	object, _ := t.into(&topologyObject{})
	object["apiVersion"], object["kind"] = r.Group+"/"+r.Version, "NodeResourceTopology"
	if meta, ok := object["metadata"].(map[string]any); ok {
		meta["name"] = w.o.Node
	}
	if object["zones"] == nil {
		object["zones"] = []Zone{} // required
	}
	return object
}

// patience is the pause behind a failure: doubled each time, to ten minutes, and what the server asks for. A server that has just
// started denies everything and serves no kind of others for a moment, so that a no counts as little as a failure.
func (w *TopologyWriter) patience(err error) time.Duration {
	pause := min(w.o.Check<<min(w.failures-1, 6), topologyReread)
	var answer *kube.Error
	if errors.As(err, &answer) {
		pause = max(pause, answer.RetryAfter)
	}
	return pause - w.o.Check/2
}
