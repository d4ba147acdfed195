// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package logs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestNew(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l, err := New(Options{Level: "warn", Format: "json", Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	l.Info("hidden")
	l.Warn("seen", "pod", "default/web")
	if s := out.String(); strings.Contains(s, "hidden") || !strings.Contains(s, `"pod":"default/web"`) {
		t.Error(s)
	}
	for _, o := range []Options{{Level: "loud", Out: &out}, {Format: "xml", Out: &out}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := NewLimiter(LimiterOptions{Every: time.Minute, MaxKeys: 2, Now: func() time.Time { return now }})
	allow := func(scope, key string, want bool, wantHeld uint64) {
		t.Helper()
		if ok, held := l.Allow(scope, key); ok != want || held != wantHeld {
			t.Errorf("%s/%s: %v %d, want %v %d", scope, key, ok, held, want, wantHeld)
		}
	}
	allow("pod1", "a", true, 0)
	allow("pod1", "a", false, 0)
	allow("pod1", "a", false, 0)
	allow("pod1", "b", true, 0)
	now = now.Add(time.Minute)
	allow("pod1", "a", true, 2)
	// Both places are taken by pairs, one stale: it makes room for one more.
	allow("pod2", "a", true, 0)
	// Now both are fresh: all others share one message a minute, however many pods invent keys.
	passed := 0
	for i := range 10000 {
		if ok, _ := l.Allow(fmt.Sprint("pod", i+10), "x"); ok {
			passed++
		}
	}
	if passed != 1 || len(l.seen) > 2 {
		t.Errorf("%d messages passed, %d pairs kept", passed, len(l.seen))
	}
}
