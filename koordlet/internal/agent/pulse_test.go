// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/publish"
)

// A step that does not end is told before what was handed on expires, and is worth a start anew after minutes; one that waits for its turn is
// neither, however long ago the last one was.
func TestPulse(t *testing.T) {
	t.Parallel()
	a, began := New(Options{}), time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration) (hung, dead bool) {
		err := a.Hung(began.Add(after))
		if err != nil && !strings.Contains(err.Error(), "since 2026-05-01T12:00:00Z") {
			t.Error(err)
		}
		return err != nil, a.Dead(began.Add(after)) != nil
	}
	for _, c := range []struct {
		busy       bool
		after      time.Duration
		hung, dead bool
	}{
		{false, time.Hour, false, false}, {true, 0, false, false}, {true, 30 * time.Second, false, false}, {true, 31 * time.Second, true, false},
		{true, publish.TTL, true, false}, {true, 5 * time.Minute, true, false}, {true, 5*time.Minute + 1, true, true}, {false, time.Hour, false, false},
	} {
		if a.pulse.rest(); c.busy {
			a.pulse.beat(began)
		}
		if hung, dead := at(c.after); hung != c.hung || dead != c.dead {
			t.Errorf("%+v: hung %v, dead %v", c, hung, dead)
		}
	}
}

// What was decided and could not be handed on is told beside the strategy, which could.
func TestWithheld(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	path := filepath.Join(run, handoff.DynamicFile)
	if err := os.Mkdir(path, 0o700); err != nil { // nothing can take its place
		t.Fatal(err)
	}
	spec := strategy.Default()
	a := New(Options{
		Log: slog.New(slog.DiscardHandler), Publisher: publish.New(run, "", time.Now()), Strategy: func() *strategy.Spec { return &spec },
	})
	l := &Look{Wall: time.Now()}
	a.publish(l, pods.New(pods.Options{}).Snapshot())
	if l.Withheld == nil || !strings.Contains(l.Withheld.Error(), path) || l.Unpublished != nil || !a.failed {
		t.Errorf("withheld: %v, unpublished: %v", l.Withheld, l.Unpublished)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l = &Look{Wall: time.Now()}
	if a.publish(l, pods.New(pods.Options{}).Snapshot()); l.Withheld != nil {
		t.Errorf("handed on at last, and still %v", l.Withheld)
	}
}
