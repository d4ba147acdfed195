// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/beside"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// blank is an edge whose specification carries nothing.
type blank struct{}

// Mark implements engine.Edge.
func (blank) Mark(*node.View, plan.Plan, *workload.Container) *protocol.Applied { return nil }

// bursting is a strategy that lets containers burst to percent of their limit.
func bursting(t *testing.T, percent string) *strategy.Spec {
	t.Helper()
	spec, err := strategy.Parse([]byte("cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: " + percent + "}\n"))
	must(t, err)
	return &spec
}

// program is one of the two with an engine.
type program struct {
	*engine.Engine
	writes *enginetest.Journal
	stop   context.CancelFunc
}

// newProgram runs an engine with the machine's one pod; wrap, which may be nil, stands between it and its kernel.
func newProgram(t *testing.T, m *enginetest.Machine, wrap func(engine.Kernel) engine.Kernel) *program {
	t.Helper()
	p := &program{writes: &enginetest.Journal{}}
	o := m.Options(t, config.Default().Node, blank{}, "cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 200}\n", plan.CPUBurst)
	o.Kernel = m.Writer(t, func(o *apply.Options) { o.Journal = p.writes })
	if wrap != nil {
		o.Kernel = wrap(o.Kernel)
	}
	p.Engine = engine.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx, func(ctx context.Context) { <-ctx.Done() })
	}()
	p.stop = func() { cancel(); <-done }
	pod := &workload.Pod{
		ID: "s", UID: "u", Namespace: "default", Name: "web", KubeQoS: protocol.KubeGuaranteed, Cgroup: "/kubepods/podu", QoSCgroup: "/kubepods",
		Ask: protocol.Ask{QoS: protocol.QoSLS},
	}
	c := &workload.Container{ID: "c1", Name: "app", Cgroup: dir, State: workload.StateRunning, Base: workload.Resources{
		Shares: unit.Some(1024), Quota: unit.Some(50000), Period: unit.Some(100000),
	}}
	p.Add([]*workload.Pod{pod}, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1", Read: func(...*protocol.Applied) *workload.Container { return c }}}})
	return p
}

// direct counts the writes so far.
func (p *program) direct() (n int) {
	for _, r := range p.writes.All() {
		if r.Via == journal.ViaDirect && len(r.Written) > 0 {
			n++
		}
	}
	return n
}

// Two engines with the same pod on one kernel: as long as the first lives only it writes, whatever changes; when it has
// gone, the other one follows the next change within two seconds.
func TestTwoEngines(t *testing.T) {
	inTime(t, func(t *testing.T) {
		m := enginetest.New(t, "6.12", dir)
		for _, d := range []string{dir, "/kubepods/podu"} {
			m.Tree.Set(t, d, "cpu.max", "50000 100000")
		}
		nri := &other{dir: t.TempDir(), writer: "nri"}
		nri.come(t)
		defer nri.goes(t)
		first := newProgram(t, m, nil)
		var ward *beside.Ward
		var second *program
		second = newProgram(t, m, func(k engine.Kernel) engine.Kernel {
			ward = beside.NewWard(beside.Options{
				Kernel: k, Watch: beside.New(nri.dir, "/proc", "koordlet"), RunDir: nri.dir, Interval: engine.DefaultDrift,
				Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Lost: func() { ward.Release() }, Released: func() { second.Repair() },
				Mended:  func(results []apply.Result) { second.Mended(results) },
				Trouble: func(err error) { t.Error(err) },
			})
			return ward
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ward.Run(ctx) }()
		live := func(d time.Duration) {
			for range int(d / time.Second) {
				time.Sleep(time.Second)
				nri.still(t)
			}
			synctest.Wait()
		}
		burst := func(what, want string) {
			t.Helper()
			if got := m.Tree.Get(t, dir, "cpu.max.burst"); got != want {
				t.Errorf("%s: the burst is %s, want %s", what, got, want)
			}
		}
		live(time.Minute)
		burst("at first", "50000")
		for _, p := range []*program{first, second} {
			p.Views().SetFile(bursting(t, "50"), "test")
		}
		live(time.Minute)
		burst("a new strategy", "25000")
		if n := second.direct(); n > 0 || first.direct() == 0 {
			t.Errorf("the first wrote %d times, the second %d times", first.direct(), n)
		}
		first.stop()
		nri.goes(t)
		second.Views().SetFile(bursting(t, "30"), "test")
		live(2 * time.Second)
		burst("alone", "15000")
		if second.direct() == 0 {
			t.Error("the second has written nothing")
		}
		cancel()
		must(t, <-done)
		second.stop()
	})
}
