// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

// Meanwhile is called when the backend has the request, and Response waits for it; for a rejected request it is not called. A
// panic in it costs the call nothing.
func TestMeanwhile(t *testing.T) {
	t.Parallel()
	order := make(chan string, 8)
	answered := map[string]chan struct{}{"plain": make(chan struct{}), "panic": make(chan struct{})}
	h := &handler{request: func(_ context.Context, _ *relay.Call, msg []byte) relay.Verdict {
		v := relay.Verdict{Meanwhile: func() {
			<-answered[string(msg)] // only a backend that has the request answers
			time.Sleep(20 * time.Millisecond)
			order <- "meanwhile"
			if string(msg) == "panic" {
				panic("as told")
			}
		}}
		if string(msg) == "reject" {
			v.Reject = &relay.Rejection{Code: 9, Message: "no"}
		}
		return v
	}}
	l := newLab(t, h, relay.Limits{})
	for i, msg := range []string{"plain", "panic"} {
		if out, err := invoke(short(t), l.conn, "WantEcho", []byte(msg)); err != nil || string(out) != msg {
			t.Fatalf("%s: %q, %v", msg, out, err)
		}
		h.mu.Lock()
		early := len(h.results) > i
		h.mu.Unlock()
		if early {
			t.Errorf("%s: Response before the end of Meanwhile", msg)
		}
		close(answered[msg])
		h.lastResult(t, i+1)
		order <- "response"
	}
	if _, err := invoke(short(t), l.conn, "WantEcho", []byte("reject")); err == nil {
		t.Error("not rejected")
	}
	close(order)
	var got []string
	for s := range order {
		got = append(got, s)
	}
	if want := []string{"meanwhile", "response", "meanwhile", "response"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
