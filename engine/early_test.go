// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// midwife is told what the engine expects, and calls when the test says so.
type midwife struct {
	mu     sync.Mutex
	files  map[string]func() bool // by the directory
	forgot []string
}

// Expect implements engine.Births.
func (m *midwife) Expect(dir, name string, written func() bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = map[string]func() bool{}
	}
	m.files[filepath.Join(dir, name)] = written
	return nil
}

// Forget implements engine.Births.
func (m *midwife) Forget(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgot = append(m.forgot, dir)
}

func (m *midwife) expects(file string) func() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[file]
}

func (m *midwife) has(dir string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.forgot, dir)
}

// unborn is an LS container on cgroup v1 that has been created, and whose cgroup is not there yet.
type unborn struct {
	*rig
	births  *midwife
	sandbox engine.Sandbox
	dir     string // the cgroup
	cpu     string // its directory of the CPU controller
	call    func() bool
}

func newUnborn(t *testing.T, with ...func(*engine.Options)) *unborn {
	t.Helper()
	m := enginetest.New(t, "v1", "/kubepods/burstable")
	cfg := config.Default().Node
	cfg.Deadline = config.Duration(time.Minute)
	o := m.Options(t, cfg, paper(0), burst, plan.CPUBurst, plan.CPUQuota, plan.CPUPeriod)
	u := &unborn{births: &midwife{}, dir: container().Cgroup}
	o.Drift, o.Births, o.Live = time.Hour, u.births, &engine.Live{CPUDir: m.Tree.Roots.Cgroup + "/cpu"}
	for _, w := range with {
		w(&o)
	}
	u.rig = &rig{Engine: engine.New(o), tree: m.Tree, book: m.Journal}
	enginetest.Run(t, u.Engine)
	u.sandbox = u.pod(t, nil)
	must(t, u.Create(t.Context(), u.sandbox, container(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
	u.cpu = o.Live.CPUDir + u.dir
	enginetest.Eventually(t, "what is expected", func() bool {
		u.call = u.births.expects(u.cpu + "/cpu.cfs_quota_us")
		return u.call != nil
	})
	return u
}

// born makes the cgroup, as a runtime does: without a quota first.
func (u *unborn) born(t *testing.T, quota string) {
	t.Helper()
	u.tree.Mkdir(t, u.dir)
	u.tree.Set(t, u.dir, "cpu.cfs_quota_us", quota)
}

func (u *unborn) burst(t *testing.T) string {
	t.Helper()
	return u.tree.Get(t, u.dir, "cpu.cfs_burst_us")
}

func (u *unborn) start(t *testing.T) {
	t.Helper()
	must(t, u.Start(t.Context(), u.sandbox, engine.Arrival{ID: container().ID}, 0, ""))
}

// written counts the records of the burst that precede a write.
func (u *unborn) written() (n int) {
	for _, r := range u.book.Of(container().ID, "cpu.burst") {
		if len(r.Written) > 0 {
			n++
		}
	}
	return n
}

// The burst is written when the quota that holds it stands, with a record, and the start finds it there.
func TestBurstBeforeTheStart(t *testing.T) {
	t.Parallel()
	u := newUnborn(t)
	u.born(t, "-1")
	if u.call() || u.burst(t) != "0" {
		t.Fatalf("written before the quota: %q", u.burst(t))
	}
	u.born(t, "100000") // by somebody who wants less
	if u.call() || u.burst(t) != "0" {
		t.Fatalf("written for another's quota: %q", u.burst(t))
	}
	u.born(t, "200000")
	if !u.call() || u.burst(t) != "200000" || u.written() != 1 {
		t.Fatalf("the burst is %q, by %d records", u.burst(t), u.written())
	}
	u.start(t)
	if !u.births.has(u.cpu) {
		t.Error("the start has not ended what was expected")
	}
	if u.burst(t) != "200000" || u.written() != 1 {
		t.Errorf("after the start the burst is %q, by %d records", u.burst(t), u.written())
	}
	u.tree.Set(t, u.dir, "cpu.cfs_burst_us", "1") // by a hand
	if !u.call() || u.burst(t) != "1" {
		t.Errorf("a call that came after the start has written %q", u.burst(t))
	}
	enginetest.Eventually(t, "the proof", func() bool { return len(u.book.Of(container().ID, "cpu.burst")) >= 2 })
}

// opener is a kernel whose files are opened before a start, as far as they are there.
type opener struct {
	engine.Kernel
	missing atomic.Bool
	mu      sync.Mutex
	asked   []plan.Plan
	of      string // the cgroup of what is ready
	started bool   // with what was ready
}

// Ready implements engine.Starter.
func (o *opener) Ready(t plan.Target, all plan.Plan) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, all)
	if o.missing.Load() {
		return false
	}
	o.of = t.Cgroup
	return true
}

// Unready implements engine.Starter.
func (o *opener) Unready(t plan.Target) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == t.Cgroup {
		o.of = ""
	}
}

func (o *opener) ready() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of
}

// Start implements engine.Starter.
func (o *opener) Start(
	ctx context.Context, t plan.Target, todo, all plan.Plan, gen uint64,
) ([]apply.Result, []apply.Mismatch, func()) {
	o.mu.Lock()
	o.started = o.of == t.Cgroup
	o.mu.Unlock()
	return o.Apply(ctx, todo, gen), o.Verify(all), func() {}
}

func (o *opener) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.asked)
}

// What the proof will read is opened behind the burst, again until all of it is there, and not for a container that has been started.
func TestReadyBeforeTheStart(t *testing.T) {
	t.Parallel()
	k := &opener{}
	k.missing.Store(true)
	u := newUnborn(t, func(o *engine.Options) { k.Kernel, o.Kernel = o.Kernel, k })
	u.born(t, "-1")
	if u.call() || k.count() != 0 {
		t.Errorf("before the burst it was asked for %d times", k.count())
	}
	u.born(t, "200000")
	if u.call() || k.count() != 1 || u.burst(t) != "200000" {
		t.Errorf("files are missing: asked for %d times, and the burst is %q", k.count(), u.burst(t))
	}
	k.missing.Store(false)
	if !u.call() || k.count() != 2 || k.asked[1].Get(plan.CPUBurst) == nil {
		t.Errorf("asked for %d times: %v", k.count(), k.asked)
	}
	if k.ready() != u.dir {
		t.Errorf("ready is %q", k.ready())
	}
	must(t, u.Start(t.Context(), u.sandbox, engine.Arrival{ID: container().ID}, 0, u.dir+"-elsewhere")) // another than the creation knew
	if !u.call() || k.count() != 2 || !k.started {
		t.Errorf("after the start it was asked for %d times; it has used what was ready: %t", k.count(), k.started)
	}
	enginetest.Eventually(t, "what is ready is given back", func() bool { return k.ready() == "" })
}

// A container that ends before its start is told is not ready any more.
func TestReadyAndNotStarted(t *testing.T) {
	t.Parallel()
	k := &opener{}
	u := newUnborn(t, func(o *engine.Options) { k.Kernel, o.Kernel = o.Kernel, k })
	u.born(t, "200000")
	if !u.call() || k.ready() != u.dir {
		t.Fatalf("ready is %q", k.ready())
	}
	u.Stop(container().ID)
	enginetest.Eventually(t, "what is ready is given back", func() bool { return k.ready() == "" })
	u.start(t)
	if k.started || !u.call() || k.count() != 1 {
		t.Errorf("started with what was ready: %t; asked for %d times", k.started, k.count())
	}
}

// A container without a burst is made ready when its weight is written, which every runtime does.
func TestReadyWithoutABurst(t *testing.T) {
	t.Parallel()
	k := &opener{}
	m := enginetest.New(t, "v1", "/kubepods/burstable")
	o := m.Options(t, config.Default().Node, paper(0), "{}", plan.CPUQuota, plan.CPUPeriod)
	births := &midwife{}
	o.Births, o.Live = births, &engine.Live{CPUDir: m.Tree.Roots.Cgroup + "/cpu"}
	k.Kernel, o.Kernel = o.Kernel, k
	r := &rig{Engine: engine.New(o), tree: m.Tree, book: m.Journal}
	enginetest.Run(t, r.Engine)
	sandbox := r.pod(t, nil)
	must(t, r.Create(t.Context(), sandbox, container(), func(_ *node.View, spec plan.Plan) plan.Plan { return nil }))
	var call func() bool
	enginetest.Eventually(t, "what is expected", func() bool {
		call = births.expects(o.Live.CPUDir + container().Cgroup + "/cpu.shares")
		return call != nil
	})
	if !call() || k.count() != 1 {
		t.Errorf("asked for %d times", k.count())
	}
}

// What was decided for the creation and is not true any more is left to the start, as is a container that has been started or is gone.
func TestNoBurstByAnOlderDecision(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then func(*testing.T, *unborn)
		want string // once it has started
	}{
		"another strategy": {func(t *testing.T, u *unborn) {
			u.Views().SetFile(percent(t, 50), "test")
		}, "100000"},
		"an update": {func(t *testing.T, u *unborn) {
			arrival := engine.Arrival{ID: container().ID}
			u.Update(t.Context(), u.sandbox, arrival, workload.Resources{Quota: container().Base.Quota, Shares: container().Base.Shares}, nil)
		}, "200000"},
		"late": {func(_ *testing.T, u *unborn) { u.CreatedLate(container().ID) }, "200000"},
		"not listed": {func(t *testing.T, u *unborn) {
			u.Synchronize(nil, nil)
			enginetest.Eventually(t, "an end of what was expected", func() bool { return u.births.has(u.cpu) })
		}, ""},
		"gone with its pod": {func(t *testing.T, u *unborn) {
			u.RemovePod("s")
			enginetest.Eventually(t, "an end of what was expected", func() bool { return u.births.has(u.cpu) })
		}, ""},
		"gone": {func(t *testing.T, u *unborn) {
			u.Remove(container().ID)
			enginetest.Eventually(t, "an end of what was expected", func() bool { return u.births.has(u.cpu) })
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUnborn(t)
			u.born(t, "200000")
			c.then(t, u)
			if !u.call() || u.burst(t) != "0" {
				t.Errorf("the burst is %q", u.burst(t))
			}
			if c.want == "" {
				return
			}
			u.start(t)
			if u.burst(t) != c.want {
				t.Errorf("after the start the burst is %q, want %s", u.burst(t), c.want)
			}
		})
	}
}
