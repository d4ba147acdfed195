// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// told is an event that was sent.
type told struct{ uid, reason string }

// sent is what became of one.
type sent struct {
	event kube.Event
	err   error
}

// event keeps a word about a pod for tell; the same one is not repeated for a while.
func (x *Executor) event(e evict.Eviction, reason string, warning bool) {
	key := told{e.Pod, reason}
	if _, ok := x.told[key]; ok || len(x.events) == maxEvents || x.o.API == nil {
		return
	}
	x.told[key] = x.o.Clock()
	uid := e.Pod
	if pod, ok := x.o.Pods().Pod(e.Pod); ok {
		uid = pod.APIUID
	}
	x.events = append(x.events, kube.Event{
		Regarding: kube.Object{APIVersion: "v1", Kind: "Pod", Namespace: e.Namespace, Name: e.Name, UID: uid},
		Warning:   warning, Reason: reason, Action: "Evict", Note: e.Reason, At: time.Now(),
	})
}

// tell begins to send the next event, beside everything else: no eviction waits for one, however slow the server is.
func (x *Executor) tell(ctx context.Context) {
	if x.telling || len(x.events) == 0 || ctx.Err() != nil {
		return
	}
	e := x.events[0]
	x.events, x.telling = x.events[1:], true
	x.beside.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		r := sent{e, x.o.API.Record(bounded, x.o.Node, e)}
		select {
		case x.sent <- r:
		case <-ctx.Done():
		}
	})
}

// wasSent takes what became of an event. One that cannot be sent is dropped, for the result has been reported, and so are those behind it where the server
// is away or would say no to them too. That is said once until something can be sent again.
func (x *Executor) wasSent(r sent) {
	x.telling = false
	switch {
	case errors.Is(r.err, context.Canceled): // our own end
		return
	case r.err == nil, errors.Is(r.err, kube.ErrConflict):
		x.mute = false
		return
	}
	dropped := 1
	if !ofEvent(r.err) {
		dropped += len(x.events)
		x.events = nil
	}
	if !x.mute {
		x.o.Log.Warn("events about evictions are not recorded", "dropped", dropped,
			"err", fmt.Errorf("pod %s/%s: %w", r.event.Regarding.Namespace, r.event.Regarding.Name, r.err))
	}
	x.mute = true
}

// ofEvent reports an answer that is about one event alone, as where its namespace ends or may have no more of them; not where the server has no time or
// does not know us.
func ofEvent(err error) bool {
	var answer *kube.Error
	return errors.As(err, &answer) && answer.Code < http.StatusInternalServerError &&
		answer.Code != http.StatusTooManyRequests && answer.Code != http.StatusUnauthorized
}
