// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/jsonscan"
)

// ErrMalformed means that the object was received and could not be read; what it said before stays in force.
var ErrMalformed = errors.New("object cannot be read")

// Observation is what is known of one object.
type Observation[T any] struct {
	// Value is the last one that could be read; Known says that there was one. It stays when the object is deleted or the
	// server is away.
	Value T
	Known bool
	// Exists says that the object was there when the server was last in reach.
	Exists bool
	// Version is the resource version of the newest object received, readable or not.
	Version string
	// Err is why Value may not be what the server has: the watch is down ([ErrNotServed], [ErrDenied], a network error …) or
	// the object is [ErrMalformed]. Nil when in step.
	Err error
	// Since is when Err became nil or not nil.
	Since time.Time
}

// Single follows one object by name. Run is the only writer; Load is safe for concurrent use.
type Single[T any] struct {
	client   *Client
	o        FollowOptions
	name     string
	decode   func(raw []byte) (T, error)
	onChange func(Observation[T])
	now      atomic.Pointer[Observation[T]]

	// down and bad are the two reasons of Err.
	down, bad error
	// listed is what a list that is coming in has told so far; nil outside of one.
	listed *received[T]
}

// received is one object that was received, or its absence.
type received[T any] struct {
	exists  bool
	version string
	value   T
	err     error
}

// NewSingle follows the object of r called name. decode reads it; onChange, which may be nil, is called in Run's goroutine
// when anything but Version has changed, with T compared deeply. o.Resource and o.Selector are set here.
func NewSingle[T any](
	c *Client, r Resource, name string, decode func(raw []byte) (T, error), o FollowOptions, onChange func(Observation[T]),
) *Single[T] {
	o.Resource, o.Selector = r, "metadata.name="+name
	s := &Single[T]{client: c, o: o, name: name, decode: decode, onChange: onChange}
	s.down = errors.New("not asked yet")
	s.now.Store(&Observation[T]{Err: s.down})
	return s
}

// Run follows until ctx ends, and returns nil then.
func (s *Single[T]) Run(ctx context.Context) error {
	return s.client.Follow(ctx, s.o, singleSink[T]{s})
}

// Load is what is known.
func (s *Single[T]) Load() Observation[T] { return *s.now.Load() }

// Observed is Load without a copy: the same pointer until something changes. Nobody writes to it.
func (s *Single[T]) Observed() *Observation[T] { return s.now.Load() }

// change swaps the observation in and tells of it.
func (s *Single[T]) change(edit func(*Observation[T])) {
	old := s.now.Load()
	next := *old
	edit(&next)
	if next.Err = s.down; next.Err == nil {
		next.Err = s.bad
	}
	if (next.Err == nil) != (old.Err == nil) || next.Since.IsZero() {
		next.Since = time.Now()
	}
	s.now.Store(&next)
	same := next.Known == old.Known && next.Exists == old.Exists && sameText(next.Err, old.Err) && reflect.DeepEqual(next.Value, old.Value)
	if !same && s.onChange != nil {
		s.onChange(next)
	}
}

// sameText compares errors as people see them.
func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

// singleSink keeps the methods of Sink off Single.
type singleSink[T any] struct{ s *Single[T] }

func (k singleSink[T]) Begin() { k.s.listed = &received[T]{} }

func (k singleSink[T]) Object(raw []byte) { k.object(raw, k.s.decode) }

func (k singleSink[T]) TooLarge(head []byte) {
	k.object(head, func([]byte) (none T, err error) { return none, jsonscan.ErrTooLarge })
}

func (k singleSink[T]) object(raw []byte, decode func(raw []byte) (T, error)) {
	s := k.s
	if !s.mine(raw) {
		return
	}
	r := received[T]{exists: true}
	r.version, _ = versionOf(raw, "metadata")
	if r.value, r.err = decode(raw); r.err != nil {
		r.err = fmt.Errorf("%s %s: %w: %w", s.o.Resource, s.name, ErrMalformed, r.err)
	}
	if s.listed != nil {
		*s.listed = r
		return
	}
	s.accept(r)
}

func (k singleSink[T]) Delete(raw []byte) {
	if k.s.mine(raw) {
		k.s.accept(received[T]{})
	}
}

func (k singleSink[T]) End() {
	r := k.s.listed
	k.s.listed = nil
	k.s.accept(*r)
}

func (k singleSink[T]) State(err error) {
	k.s.listed, k.s.down = nil, err
	k.s.change(func(*Observation[T]) {})
}

// accept takes what was received; it proves that the server is in reach.
func (s *Single[T]) accept(r received[T]) {
	s.down, s.bad = nil, r.err
	s.change(func(o *Observation[T]) {
		o.Exists = r.exists
		if !r.exists {
			return
		}
		o.Version = r.version
		if r.err == nil {
			o.Value, o.Known = r.value, true
		}
	})
}

// mine reports that an object is the one we follow: a selector is a request, not a promise.
func (s *Single[T]) mine(raw []byte) bool {
	name, _ := jsonscan.Field(raw, "metadata", "name")
	return isText(name, s.name)
}

// isText compares a raw JSON string.
func isText(raw []byte, want string) bool {
	got, ok := jsonscan.String(raw)
	return ok && got == want
}
