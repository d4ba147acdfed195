// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/beside"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/root"
)

// besideOthers leaves the engine's writes to koord-nri or koord-runtime-proxy while one of them covers the containers. What
// is the agent's own (host.Apply, memory.reclaim) does not go by the engine.
func (d *Daemon) besideOthers(o *host.Options) {
	watch := beside.New(d.cfg.RunDir, d.cfg.Host.Proc, Writer)
	o.Kernel = func(k engine.Kernel) engine.Kernel {
		boot, _ := root.Roots{Proc: d.cfg.Host.Proc}.BootID() // without one the host's start fails by itself
		d.ward = beside.NewWard(beside.Options{
			Kernel: tellingKernel{k, d.wrote}, Watch: watch, RunDir: d.cfg.RunDir, Interval: d.lookEvery(), Boot: boot, Log: d.log,
			Lost: d.lost, Released: func() { d.host.Engine.Repair() }, Mended: d.mended,
			Trouble: func(err error) { d.host.Engine.Trouble("ledger", "writer that goes first", err) },
		})
		return d.ward
	}
	o.Beside = func() bool { return d.ward.Holding() }
}

// lookEvery is the interval of the looks at what is left to others: the engine's, in which it says anew what it wants, and no less than
// the default of those who go first, which would be taken for idle else.
func (d *Daemon) lookEvery() time.Duration {
	return max(d.cfg.DriftInterval.Std(), engine.DefaultDrift)
}

// lost has the runtime's lists and the ledgers read as at a start: updates of containers went by way of who has gone.
func (d *Daemon) lost() {
	d.host.Relearn()
	d.afresh.Store(true)
	d.keeper.Look()
}

// mended tells what those who go first had left lying.
func (d *Daemon) mended(results []apply.Result) {
	if n := d.host.Engine.Mended(results); n > 0 {
		d.log.Warn("wrote what the writer that goes first has left", "settings", n)
	}
}
