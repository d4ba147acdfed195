// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"time"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
)

// A run directory that cannot be used takes from the agent what it writes and what it remembers. It measures, decides and tells all the
// same, and goes on as after a start when the directory can be used. Without its lock another koordlet may be here: what would count twice
// then (evictions, what is handed on, what is told to the cluster) it leaves.

// usable is called once it can: the ledgers have been read, what the loops knew before has not where that was not possible at the start. It
// reaches them before anything is written.
func (d *Daemon) usable(begin func()) {
	if d.unread {
		if past, known, _ := d.known(); known {
			d.later <- past
		}
	}
	begin()
	d.afresh.Store(true)
	d.keeper.Look()
}

// keeps keeps the state only where it is ours to keep: before, there may be that of an earlier life, or another process.
func (d *Daemon) keeps(write func(decide.State) error) func(decide.State) error {
	return func(s decide.State) error {
		if err := d.host.Barred(); err != nil {
			return err
		}
		return write(s)
	}
}

// keepAudit keeps the audit, and reads it where it could not be opened at the start.
func (d *Daemon) keepAudit(ctx context.Context) error {
	if err := d.audit.Closed(); err != nil {
		d.log.Warn("events are not kept, it is tried again every few seconds", "err", err)
	}
	return d.audit.Run(ctx, func() {
		d.log.Info("events are kept now")
		if boot, err := (root.Roots{Proc: d.cfg.Host.Proc}).BootID(); err == nil { // as it was at the start
			d.recall(boot)
		}
	})
}

// recall takes up the evictions of an earlier life.
func (d *Daemon) recall(boot string) {
	if lost := d.news.recall(d.audit, time.Now(), boottime.Now(), boot); lost != nil {
		d.log.Warn("what was evicted before is not known", "err", lost)
	}
}

// barredLoops tell what cannot be kept, and what does not happen for that; nothing while all is well.
func barredLoops(barred, alone, audit error, wall time.Time) (out []status.Loop) {
	if barred != nil {
		l := status.Loop{
			Name: "write", State: status.StateDegraded, At: wall, Err: barred.Error(),
			Decision: "nothing is written to the kernel, since it could not be recorded and undone; tried again every few seconds",
		}
		if alone != nil {
			l.Decision = "nobody is evicted and nothing reported or handed on, since another koordlet may be here; " + l.Decision
		}
		out = append(out, l)
	}
	if audit != nil {
		out = append(out, status.Loop{
			Name: "audit", State: status.StateDegraded, At: wall, Err: audit.Error(),
			Decision: "events are not kept, all else goes on; tried again every few seconds",
		})
	}
	return out
}
