// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// hungEvery is how often it is looked whether the loops go on.
const hungEvery = 5 * time.Second

// watchLoops logs that the loops do not go on, which they cannot do themselves, and that they do again.
func (d *Daemon) watchLoops(ctx context.Context) error {
	tick := time.NewTicker(hungEvery)
	defer tick.Stop()
	for told := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := d.agent.Hung(d.now())
		switch {
		case err != nil && !told:
			d.log.Error("the loops hang", "err", err)
		case err == nil && told:
			d.log.Info("the loops go on")
		}
		told = err != nil
	}
}

// held is a loop that something keeps from doing all that it is for; an empty why is nothing. One that does not work anyway stays as it is.
func held(l status.Loop, why string) status.Loop {
	if why != "" && (l.State == status.StateActive || l.State == status.StateDegraded) {
		l.State, l.Err = status.StateDegraded, strings.TrimPrefix(l.Err+"; "+why, "; ")
	}
	return l
}

// halted are the loops while none of them goes on: what they decided last says nothing about now, and what learns from their samples learns nothing.
func halted(loops []status.Loop, hung error, at time.Time) []status.Loop {
	if hung == nil {
		return loops
	}
	for i := range loops {
		loops[i] = held(loops[i], hung.Error())
	}
	return append(loops, status.Loop{Name: "loops", State: status.StateDegraded, At: at, Err: hung.Error()})
}
