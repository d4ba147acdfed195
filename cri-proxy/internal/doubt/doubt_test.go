// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package doubt

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// edge is a way over which everything stands in the specification.
type edge struct{}

// Mark implements engine.Edge.
func (edge) Mark(_ *node.View, pl plan.Plan, c *workload.Container) *protocol.Applied {
	return mark.Of(mark.By{Program: "test", Version: "1"}, pl, &c.Base, func(*plan.Setting) bool { return true })
}

// rig is an engine with the container c of an LSR pod, whose quota we take away, and a runtime's record of it.
type rig struct {
	*Updates
	*engine.Engine
	t       *testing.T
	record  workload.Resources
	away    bool
	asked   int
	looked  int
	during  func() // happens after the record was read
	sandbox engine.Sandbox
}

func newRig(t *testing.T) *rig {
	t.Helper()
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	tree := kerneltest.New(t, "6.12")
	topology, err := sys.FS(tree.Roots.Sys).Topology()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultProxy().Node
	static := engine.Static{Name: "n", Topology: topology, CPUAllocatable: 8000, Kernel: node.Kernel{Release: "6.12", Major: 6, Minor: 12, Cgroup: tree.Version}}
	for _, k := range []plan.Knob{plan.CPUQuota, plan.CPUShares, plan.CPUPeriod, plan.CPUSetCPUs, plan.CPUSetMems} {
		static.Kernel.Knobs[k].OK = true
	}
	r := &rig{t: t, record: asked(-1, 512, 1<<30)}
	r.Engine = engine.New(engine.Options{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Metrics: m, Edge: edge{}, Journal: &enginetest.Journal{},
		Views: engine.NewViews(cfg, static, nil, "test"),
	})
	ask, problems := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LSR"}, map[string]string{
		protocol.AnnotationResourceStatus: `{"cpuset":"0-1"}`,
	})
	pod := &workload.Pod{ID: "s", UID: "u", Namespace: "default", Name: "web", Cgroup: "/kubepods/podu", KubeQoS: protocol.KubeGuaranteed, Ask: ask, Problems: problems}
	r.sandbox = engine.Sandbox{ID: "s", Read: func() *workload.Pod { return pod }}
	c := &workload.Container{ID: "c", Name: "app", Cgroup: "/kubepods/podu/c", State: workload.StateCreating, Base: asked(50000, 512, 1<<30)}
	if err := r.Create(t.Context(), r.sandbox, c, func(*node.View, plan.Plan) plan.Plan { return nil }); err != nil {
		t.Fatal(err)
	}
	r.Updates = New(Options{Engine: r.Engine, Look: func() { r.looked++ }, Record: func(context.Context, string) (Read, error) {
		if r.asked++; r.away {
			return nil, errors.New("away")
		}
		record := r.record
		if r.during != nil {
			r.during()
		}
		return func(known ...*protocol.Applied) *workload.Container {
			out := &workload.Container{ID: "c", Base: record}
			mark.Rebase(&out.Base, known...)
			return out
		}, nil
	}})
	return r
}

// update begins an update of quota and shares.
func (r *rig) update(quota, shares int64) *Update {
	_, c, _ := r.Known("c")
	return r.take(r.Begin(c), workload.Resources{Quota: unit.Some(quota), Shares: unit.Some(shares)})
}

// memory begins an update of the memory limit.
func (r *rig) memory(n int64) *Update {
	_, c, _ := r.Known("c")
	return r.take(r.Begin(c), workload.Resources{MemoryLimit: unit.Some(n)})
}

// take has the engine take an update in.
func (r *rig) take(up *Update, stated workload.Resources) *Update {
	_, c, _ := r.Known("c")
	up.Over(c)
	r.Update(r.t.Context(), r.sandbox, engine.Arrival{ID: "c"}, stated, nil)
	return up
}

// want is what the engine believes, and how often the runtime has been asked so far.
func (r *rig) want(what string, quota, shares int64, times int) {
	r.t.Helper()
	_, c, _ := r.Known("c")
	if c.Base.Quota.V != quota || c.Base.Shares.V != shares || r.asked != times {
		r.t.Errorf("%s: quota %d and shares %d, asked %d times; want %d, %d and %d", what, c.Base.Quota.V, c.Base.Shares.V, r.asked, quota, shares, times)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.update(70000, 700).Done(t.Context())
	r.want("done", 70000, 700, 0)
	r.update(80000, 800).Refused(t.Context())
	r.want("refused", 70000, 700, 0)
	r.Settle(t.Context())
	if r.want("no doubt", 70000, 700, 0); len(r.byID) > 0 {
		t.Errorf("kept %v", r.byID)
	}
}

// The runtime had not done it when it was asked first, and has when it is asked again; after a while that is final. The
// quota in the record is ours all the time.
func TestLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.update(150000, 1536).Lost(t.Context())
		r.want("not done yet", 50000, 512, 1)
		if r.looked != 1 {
			t.Errorf("looked %d times whether the runtime is there", r.looked)
		}
		time.Sleep(open / 2)
		r.record = asked(-1, 1536, 1<<30)
		r.Settle(t.Context())
		r.want("done by now", 150000, 1536, 2)
		r.record = asked(-1, 512, 1<<30)
		r.Settle(t.Context())
		r.want("back again", 50000, 512, 3)
		time.Sleep(open)
		r.Settle(t.Context())
		r.Settle(t.Context())
		if r.want("final", 50000, 512, 4); len(r.byID) > 0 {
			t.Errorf("kept %v", r.byID)
		}
	})
}

// While the runtime is away nothing is settled, however long; then its record counts.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.away = true
		r.update(150000, 1536).Lost(t.Context())
		time.Sleep(100 * open)
		r.Settle(t.Context())
		r.want("nothing is known", 150000, 1536, 2)
		r.away = false
		r.Settle(t.Context())
		r.want("not done", 50000, 512, 3)
		r.Settle(t.Context())
		r.want("settled", 50000, 512, 3)
	})
}

// An update that is under way or has been answered since tells more than a record that is older; neither one that is refused nor one that is
// done ends the doubt before it.
func TestNextUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.away = true
	r.update(150000, 1536).Lost(t.Context())
	r.away = false
	next := r.update(60000, 600)
	r.Settle(t.Context())
	r.want("under way", 60000, 600, 1)
	next.Refused(t.Context())
	r.want("refused: the doubt before", 50000, 512, 2)
	next = r.update(90000, 900)
	r.record = asked(-1, 900, 1<<30)
	next.Done(t.Context())
	r.want("done", 90000, 900, 3)
	r.during = func() {
		r.during = nil
		next := r.update(100000, 1024)
		r.record = asked(-1, 1024, 1<<30)
		next.Done(t.Context())
	}
	r.Settle(t.Context())
	r.want("done during a question", 100000, 1024, 5)
	r.update(110000, 1100).Lost(t.Context())
	r.Stop("c")
	r.Remove("c")
	r.Settle(t.Context())
	if len(r.byID) > 0 {
		t.Errorf("kept %v of a container that is gone", r.byID)
	}
}

// What an update without an answer named is in doubt, also when one of something else has been done since.
func TestDoneSince(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.away = true
	r.memory(1 << 31).Lost(t.Context())
	r.away = false
	next := r.update(60000, 600)
	r.record = asked(-1, 600, 1<<30)
	next.Done(t.Context())
	if _, c, _ := r.Known("c"); c.Base.MemoryLimit.V != 1<<30 || c.Base.Shares.V != 600 {
		t.Errorf("memory %v and shares %v", c.Base.MemoryLimit, c.Base.Shares)
	}
}

// Of two updates that are under way together neither the order in which they began nor that of their answers says what the container has: the
// runtime does, once.
func TestTogether(t *testing.T) {
	t.Parallel()
	both := func(r *rig) (first, second *Update) { return r.update(60000, 600), r.update(70000, 700) }
	// The second one had been asked about for a shorter time, and was taken in first.
	overtaken := func(r *rig) (first, second *Update) {
		_, c, _ := r.Known("c")
		first, second = r.Begin(c), r.Begin(c)
		r.take(second, workload.Resources{Quota: unit.Some(int64(70000)), Shares: unit.Some(int64(700))})
		r.take(first, workload.Resources{Quota: unit.Some(int64(60000)), Shares: unit.Some(int64(600))})
		return first, second
	}
	for name, c := range map[string]struct {
		begin          func(*rig) (first, second *Update)
		answer         func(ctx context.Context, first, second *Update)
		shares, memory int64 // of the record
	}{
		"the second is done, the first refused": {
			both, func(ctx context.Context, first, second *Update) { second.Done(ctx); first.Refused(ctx) }, 700, 1 << 30,
		},
		"the first is refused, the second done": {
			both, func(ctx context.Context, first, second *Update) { first.Refused(ctx); second.Done(ctx) }, 700, 1 << 30,
		},
		"the first is refused, the second done with something else": {
			func(r *rig) (*Update, *Update) { return r.update(60000, 600), r.memory(1 << 31) },
			func(ctx context.Context, first, second *Update) { first.Refused(ctx); second.Done(ctx) }, 512, 1 << 31,
		},
		"both refused": {
			both, func(ctx context.Context, first, second *Update) { first.Refused(ctx); second.Refused(ctx) }, 512, 1 << 30,
		},
		"both refused, the second first": {
			both, func(ctx context.Context, first, second *Update) { second.Refused(ctx); first.Refused(ctx) }, 512, 1 << 30,
		},
		"the first is overtaken and done, the second refused": {
			overtaken, func(ctx context.Context, first, second *Update) { first.Done(ctx); second.Refused(ctx) }, 600, 1 << 30,
		},
		"the second is refused, the first overtaken and done": {
			overtaken, func(ctx context.Context, first, second *Update) { second.Refused(ctx); first.Done(ctx) }, 600, 1 << 30,
		},
		"both done, by the runtime the first one last": {
			both, func(ctx context.Context, first, second *Update) { second.Done(ctx); first.Done(ctx) }, 600, 1 << 30,
		},
		"both done, by the runtime the second one last": {
			overtaken, func(ctx context.Context, first, second *Update) { first.Done(ctx); second.Done(ctx) }, 700, 1 << 30,
		},
		"the second is lost and was done, the first refused": {
			both, func(ctx context.Context, first, second *Update) { second.Lost(ctx); first.Refused(ctx) }, 700, 1 << 30,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.record = asked(-1, c.shares, c.memory)
			first, second := c.begin(r)
			c.answer(t.Context(), first, second)
			_, now, _ := r.Known("c")
			if now.Base.Shares.V != c.shares || now.Base.MemoryLimit.V != c.memory || r.asked != 1 {
				t.Errorf("shares %v and memory %v, asked %d times; want %d, %d and once", now.Base.Shares, now.Base.MemoryLimit, r.asked, c.shares, c.memory)
			}
			// In the record stands our quota. What was asked below it goes with the rest of one state, and a mixture of two does not tell.
			quota := map[int64]int64{512: 50000, 600: 60000, 700: 70000}[c.shares]
			if c.memory == 1<<30 && now.Base.Quota.V != quota {
				t.Errorf("quota %v, want %d", now.Base.Quota, quota)
			}
		})
	}
}
