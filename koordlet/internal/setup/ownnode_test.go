// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/ownnode"
)

// Whether the API server holds koordlet to its node is said in the same place as what it goes without.
func TestOwnNodeSource(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	away := errors.New("connection refused")
	for name, c := range map[string]struct {
		s    ownnode.State
		want status.Source
	}{
		"at first":    {ownnode.State{}, status.Source{State: status.StateDegraded, Reason: "not asked yet"}},
		"no answer":   {ownnode.State{Err: away}, status.Source{State: status.StateDegraded, Reason: "not known: connection refused"}},
		"held":        {ownnode.State{Verdict: ownnode.Held, Since: since}, status.Source{State: status.StateActive, Since: since}},
		"held before": {ownnode.State{Verdict: ownnode.Held, Since: since, Err: away}, status.Source{State: status.StateActive, Since: since}},
		"loose":       {ownnode.State{Verdict: ownnode.Loose, Since: since}, status.Source{State: status.StateDegraded, Reason: errNotHeld.Error(), Since: since}},
	} {
		c.want.Name = "own-node"
		if d := cmp.Diff(c.want, heldTo(&c.s)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if got := ownNodeSource(nil); got != nil {
		t.Errorf("without an API server: %+v", got)
	}
	if got := ownNodeSource(ownnode.New(nil, "node-1", slog.New(slog.DiscardHandler))); len(got) != 1 || got[0].Reason != "not asked yet" {
		t.Errorf("%+v", got)
	}
}
