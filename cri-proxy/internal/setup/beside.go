// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// besideEvery is how often the plugin's status file is looked at: for so long both or none may write after it has come or
// gone, which the repair pass evens out.
const besideEvery = time.Second

// silence is how old the status of a plugin that works may be; it is written every five seconds. A plugin that is stuck
// has been dropped by the runtime long before.
const silence = 12 * time.Second

// beside knows whether koord-nri is connected to the runtime on this node.
type beside struct {
	runDir, proc string
	connected    atomic.Bool
	// gone is called when the plugin has gone.
	gone func()
}

func (b *beside) look() {
	now := false
	entries, err := status.ReadAll(b.runDir, b.proc)
	if err != nil {
		return // what was known holds
	}
	for i := range entries {
		e := &entries[i]
		now = now || e.Alive && e.Status.Writer == "nri" && !e.Status.ConnectedSince.IsZero() && time.Since(e.Status.Written) < silence
	}
	if b.connected.Swap(now) && !now && b.gone != nil {
		b.gone()
	}
}

// now is whether the plugin is connected at this moment.
func (b *beside) now() bool {
	b.look()
	return b.connected.Load()
}

func (b *beside) run(ctx context.Context) error {
	tick := time.NewTicker(besideEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			b.look()
		}
	}
}
