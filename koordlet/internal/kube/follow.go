// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/jsonscan"
)

// Sink takes what a Follow learns. All calls come from one goroutine; raw is valid during the call only.
type Sink interface {
	// Begin announces a complete list: what comes until End replaces all that was known. State with an error ends a list
	// that was not completed, and nothing of it counts.
	Begin()
	// Object is an object of the list, or one that is new or has changed since.
	Object(raw []byte)
	// TooLarge is the same of an object that is too large to be read; head is its beginning, with name and UID.
	TooLarge(head []byte)
	// Delete is an object that is gone, as it was last; the beginning of one that is too large.
	Delete(raw []byte)
	End()
	// State is nil while the watch stands, else why it does not.
	State(err error)
}

// Defaults of FollowOptions.
const (
	DefaultWatch    = 5 * time.Minute
	DefaultMinRetry = 200 * time.Millisecond
	// DefaultMaxRetry, with a connection that is not answered and with a server that answers no at first, lets a watch go on within ten
	// seconds of the server's return.
	DefaultMaxRetry = 4500 * time.Millisecond

	maxListItems = 4096
	// steady is how long a watch must have stood for the next failure to count as the first, whatever it told: longer than DefaultMaxRetry,
	// or a peer that tells one event and ends would be asked again at once for ever.
	steady = 5 * time.Second
	// overtime is how much longer than asked for a watch may last before we end it ourselves.
	overtime = 30 * time.Second
)

// FollowOptions say what to follow.
type FollowOptions struct {
	Resource Resource
	// Selector is a field selector: "metadata.name=node-001", "spec.nodeName=node-001". Empty is everything.
	Selector string
	// Watch is how long one watch lasts before the server ends it; each is up to twice as long, at random. Default 5 min.
	Watch time.Duration
	// MinRetry and MaxRetry space attempts. Default 200 ms and 4.5 s.
	MinRetry, MaxRetry time.Duration
}

// follower is one Follow at work.
type follower struct {
	client *Client
	o      FollowOptions
	sink   Sink
	retry  backoff
	// version is the last resource version seen; "0" lets the server answer from its cache, "" asks for the newest.
	version string
	// listed: all there was at version has been told.
	listed bool
	// missed are the watches in a row that found no API server, since the last list that succeeded.
	missed int
	// broken says that the sink knows of an error.
	broken bool
	// silent: nobody has answered last time.
	silent bool
}

// Follow lists and watches until ctx ends, and returns nil then: every other end is an error for the sink and begins
// anew. A list is asked for from the server's cache, and never accepted older than what was seen before unless the server has nothing as new.
func (c *Client) Follow(ctx context.Context, o FollowOptions, sink Sink) error {
	for _, d := range []struct {
		to    *time.Duration
		value time.Duration
	}{{&o.Watch, DefaultWatch}, {&o.MinRetry, DefaultMinRetry}, {&o.MaxRetry, DefaultMaxRetry}} {
		if *d.to <= 0 {
			*d.to = d.value
		}
	}
	f := &follower{client: c, o: o, sink: sink, version: "0", retry: backoff{min: o.MinRetry, max: o.MaxRetry}}
	for ctx.Err() == nil {
		var err error
		if !f.listed {
			err = f.list(ctx)
			f.listed = err == nil
		} else {
			err = f.watch(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		f.heard(err)
		switch {
		case err == nil:
			continue
		case errors.Is(err, ErrGone):
			// Nothing is wrong: we were away for too long. What is newest now is the truth.
			f.listed, f.version = false, ""
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotServed):
			f.listed = false
			f.report(err)
		case errors.Is(err, errEarly):
		default:
			f.report(err)
		}
		if !sleep(ctx, f.retry.next(err)) {
			return nil
		}
	}
	return nil
}

// errEarly is a watch that the server ended at once and without a reason; it is repeated with care.
var errEarly = errors.New("watch ended early")

// heard notes whether there was an answer. The first one after a silence is often no: a server that starts denies everything at first, and
// ends watches again as it goes on. Each of that costs a wait, and together they are not to be longer than ten seconds.
func (f *follower) heard(err error) {
	var answer *Error
	if answered := err == nil || errors.Is(err, errEarly) || errors.As(err, &answer); !answered {
		f.silent = true
	} else if f.silent {
		f.silent = false
		f.retry.ease()
	}
}

// report tells the sink of an error.
func (f *follower) report(err error) {
	f.broken = true
	f.sink.State(err)
}

// well tells the sink that the watch stands.
func (f *follower) well() {
	f.broken = false
	f.sink.State(nil)
}

// list asks for everything.
func (f *follower) list(ctx context.Context) error {
	q := url.Values{}
	if f.o.Selector != "" {
		q.Set("fieldSelector", f.o.Selector)
	}
	if f.version != "" {
		q.Set("resourceVersion", f.version)
		if f.version != "0" {
			q.Set("resourceVersionMatch", "NotOlderThan")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := f.client.send(ctx, request{method: http.MethodGet, path: f.o.Resource.path(), query: q})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	f.sink.Begin()
	metadata, err := jsonscan.List(resp.Body, maxAnswer, maxListItems, func(raw []byte, whole bool) error {
		f.object(raw, whole)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", f.o.Resource, err)
	}
	version, ok := versionOf(metadata)
	if !ok {
		return fmt.Errorf("list %s: no resource version", f.o.Resource)
	}
	f.version, f.missed = version, 0
	f.sink.End()
	f.well()
	return nil
}

// watch follows changes from the last version on, until the server ends it. nil is a regular end.
func (f *follower) watch(ctx context.Context) error {
	lasting := f.o.Watch + time.Duration(rand.Int64N(int64(f.o.Watch)))
	ctx, cancel := context.WithTimeout(ctx, lasting+overtime)
	defer cancel()
	q := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {f.version},
		"timeoutSeconds": {strconv.Itoa(max(int(lasting/time.Second), 1))},
	}
	if f.o.Selector != "" {
		q.Set("fieldSelector", f.o.Selector)
	}
	resp, err := f.client.send(ctx, request{method: http.MethodGet, path: f.o.Resource.path(), query: q})
	if err != nil {
		f.miss(err)
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	f.missed = 0
	if f.broken {
		f.well()
	}
	return f.stream(resp.Body)
}

// miss notes a watch that was refused or not answered. Behind an API server that was away etcd may have been restored from a backup, and a
// watch from a version that it has not reached again stands and misses what comes until then: only a list is refused. One watch may have
// been sent over a connection that was about to break. Behind an outage of the whole cluster that costs a list of each object that a node follows:
// three by their names, and its pods where the kubelet is away. Each may be answered from the server's cache (NotOlderThan) and comes after a wait
// drawn from 2.25 to 4.5 s, which also spreads them over that time: little beside the watches that begin anew then, and beside a node that misses what
// its cluster wants.
func (f *follower) miss(err error) {
	var answer *Error
	if errors.As(err, &answer) && answer.Code < http.StatusInternalServerError {
		f.missed = 0
		return
	}
	f.missed++
	f.listed = f.missed < 2
}

// stream reads the events of one watch to its end. nil is a regular end.
func (f *follower) stream(body io.Reader) error {
	began := time.Now()
	err := f.events(jsonscan.NewReader(body, maxAnswer))
	switch {
	case time.Since(began) > steady:
		f.retry.reset()
	case err == nil:
		return errEarly
	}
	return err
}

func (f *follower) events(r *jsonscan.Reader) error {
	for {
		raw, err := r.Value()
		switch {
		case err == nil || raw != nil:
			if err := f.event(raw, err == nil); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			return nil
		default:
			return fmt.Errorf("watch %s: %w", f.o.Resource, err)
		}
	}
}

// object passes an object on that is there.
func (f *follower) object(raw []byte, whole bool) {
	if whole {
		f.sink.Object(raw)
	} else {
		f.sink.TooLarge(raw)
	}
}

// event passes one watch event on, or the beginning of one that is too large.
func (f *follower) event(raw []byte, whole bool) error {
	field, _ := jsonscan.Field(raw, "type")
	kind, _ := jsonscan.String(field)
	object, ok := jsonscan.Field(raw, "object")
	if !ok {
		return fmt.Errorf("watch %s: an event without object", f.o.Resource)
	}
	switch kind {
	case "ADDED", "MODIFIED":
		f.object(object, whole)
	case "DELETED":
		f.sink.Delete(object)
	case "BOOKMARK":
	case "ERROR":
		e := decodeStatus(object)
		e.Request = "watch " + f.o.Resource.String()
		return e
	default:
		return fmt.Errorf("watch %s: unknown event %.40q", f.o.Resource, kind)
	}
	if version, ok := versionOf(object, "metadata"); ok {
		f.version = version
	}
	return nil
}

// versionOf is resourceVersion at a path.
func versionOf(raw []byte, path ...string) (string, bool) {
	field, ok := jsonscan.Field(raw, append(path, "resourceVersion")...)
	if !ok {
		return "", false
	}
	version, ok := jsonscan.String(field)
	return version, ok && version != ""
}
