// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"net"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/run"
)

// addMetrics has the program answer. An address that cannot be had ends the start, unless the run directory, in which the socket lies as a
// rule, cannot be used: then it is tried again.
func (h *Host) addMetrics(ctx context.Context, g *run.Group) error {
	l, err := metrics.Listen(ctx, h.o.Config.Metrics.Address)
	switch {
	case err != nil && h.Barred() == nil:
		return err
	case err != nil:
		h.o.Log.Error("nobody is answered, it is tried again every few seconds", "err", err)
	case l == nil: // it is off
		return nil
	}
	g.Add(run.Component{Name: "metrics", Run: func(ctx context.Context) error {
		if l == nil {
			if l = h.awaitListener(ctx, err.Error()); l == nil {
				return nil
			}
		}
		return metrics.Serve(ctx, l, h.reg, h.health, h.more.Routes...)
	}})
	return nil
}

// awaitListener tries until there is one; nil when ctx ends before. told is why there is none, as the log has it.
func (h *Host) awaitListener(ctx context.Context, told string) net.Listener {
	tick := time.NewTicker(takeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		l, err := metrics.Listen(ctx, h.o.Config.Metrics.Address)
		switch {
		case err == nil:
			return l
		case err.Error() != told:
			told = err.Error()
			h.o.Log.Error("nobody is answered", "err", err)
		}
	}
}
