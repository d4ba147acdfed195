// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// blank is an edge whose specification carries nothing.
type blank struct{}

// Mark implements engine.Edge.
func (blank) Mark(*node.View, plan.Plan, *workload.Container) *protocol.Applied { return nil }

// machine is a fake node with one run directory, on which programs live and end.
type machine struct {
	tree *kerneltest.Tree
	cfg  config.Node
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{tree: kerneltest.New(t, "6.12", "/kubepods/burstable", "/kubepods/podone", "/kubepods/podtwo"), cfg: config.Default().Node}
	mounts := filepath.Join(m.tree.Roots.Proc, "self", "mountinfo")
	if err := errors.Join(os.MkdirAll(filepath.Dir(mounts), 0o755), os.WriteFile(mounts, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r := m.tree.Roots
	m.cfg.RunDir, m.cfg.StateDir, m.cfg.StrategyFile, m.cfg.Metrics.Address = t.TempDir(), t.TempDir(), "", ""
	m.cfg.Host.CgroupRoot, m.cfg.Host.Proc, m.cfg.Host.Sys, m.cfg.Host.Resctrl, m.cfg.Host.Dev = r.Cgroup, r.Proc, r.Sys, r.Resctrl, r.Dev
	return m
}

// program is one writer of the run directory.
type program struct {
	*engine.Engine
	stop func()
}

// start runs a program whose writes go to the fake kernel. A strategy that is nil protects nothing.
func (m *machine) start(t *testing.T, writer string, spec *strategy.Spec) *program {
	t.Helper()
	// The ledger of the kernel that stands in for the host's own lies in the same run directory.
	l, err := ledger.Open(m.cfg.RunDir, writer+"-kernel", ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fs, err := cgroup.Open(m.tree.Roots, m.tree.Version, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err != nil {
		t.Fatal(err)
	}
	a, err := apply.New(apply.Options{FS: fs, Roots: m.tree.Roots, Journal: l, Writer: m.tree})
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(t.Context(), Options{
		Config: m.cfg, Writer: writer, Name: writer, Program: writer + " test", Strategy: spec, Edge: blank{},
		Kernel: func(engine.Kernel) engine.Kernel { return a }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- errors.Join(h.Run(ctx, func(ctx context.Context) { <-ctx.Done() }), l.Close()) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	enginetest.Eventually(t, "status of "+writer, func() bool {
		entries, err := status.ReadAll(m.cfg.RunDir, "/proc")
		for i := range entries {
			if e := &entries[i]; e.Writer == writer {
				if e.Up <= 0 || e.Up > boottime.Now() {
					t.Errorf("%s: stamped %s after boot", writer, e.Up)
				}
				return err == nil
			}
		}
		return false
	})
	return &program{h.Engine, stop}
}

// guaranteed is a pod that protects half of a GiB.
func guaranteed(name string) *workload.Pod {
	return &workload.Pod{
		ID: "sandbox-" + name, UID: name, Namespace: "default", Name: name, KubeQoS: protocol.KubeGuaranteed,
		Cgroup: "/kubepods/pod" + name, QoSCgroup: "/kubepods", Base: workload.Resources{MemoryLimit: unit.Some(1 << 30)},
	}
}

const half = 1 << 29

// stands waits for memory.min of the root of all pods.
func (m *machine) stands(t *testing.T, want int64) {
	t.Helper()
	enginetest.Eventually(t, fmt.Sprintf("memory.min of %d", want), func() bool {
		return m.tree.Get(t, "/kubepods", "memory.min") == fmt.Sprint(want)
	})
}

// fell lists the writes of nothing to that file since the last look.
func (m *machine) fell() (out []string) {
	for _, w := range m.tree.Log() {
		if w == "/kubepods/memory.min=0" {
			out = append(out, w)
		}
	}
	return out
}

func protecting(t *testing.T) *strategy.Spec {
	t.Helper()
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {lsrClass: {memoryQOS: {enable: true, minLimitPercent: 50}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return &spec
}

// Of two programs with the same pods one leaves: the sum never falls, the other keeps it, follows its pods, and takes it
// back when it leaves too. In both orders.
func TestTheSurvivorKeepsTheSums(t *testing.T) {
	t.Parallel()
	for _, order := range [][2]string{{"nri", "cri"}, {"cri", "nri"}} {
		t.Run(order[0]+" first", func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			first, second := m.start(t, order[0], protecting(t)), m.start(t, order[1], protecting(t))
			one, two := guaranteed("one"), guaranteed("two")
			for _, p := range []*program{first, second} {
				p.Synchronize([]*workload.Pod{one}, nil)
			}
			m.stands(t, half)
			first.stop()
			// The survivor's passes agree with what stands, and go on from there.
			second.Synchronize([]*workload.Pod{one, two}, nil)
			m.stands(t, 2*half)
			second.Synchronize([]*workload.Pod{two}, nil)
			m.stands(t, half)
			if w := m.fell(); len(w) > 0 {
				t.Errorf("the sum fell to nothing: %q", w)
			}
			second.stop()
			m.stands(t, 0)
		})
	}
}

// A program that comes back finds its pods protected, and leaves them so until the runtime has told it of them.
func TestARestartBesideAnotherLeavesNoGap(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	stays, goes := m.start(t, "cri", protecting(t)), m.start(t, "nri", protecting(t))
	pods := []*workload.Pod{guaranteed("one")}
	stays.Synchronize(pods, nil)
	goes.Synchronize(pods, nil)
	m.stands(t, half)
	goes.stop()
	again := m.start(t, "nri", protecting(t))
	again.Repair()
	again.Synchronize(pods, nil)
	again.Synchronize(append(pods, guaranteed("two")), nil)
	m.stands(t, 2*half)
	if w := m.fell(); len(w) > 0 {
		t.Errorf("the sum fell to nothing: %q", w)
	}
}

// The last to leave takes back what another has written and left to it, although it has protected nothing itself.
func TestTheLastTakesEverythingBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	last, first := m.start(t, "cri", nil), m.start(t, "nri", protecting(t))
	first.Synchronize([]*workload.Pod{guaranteed("one")}, nil)
	m.stands(t, half)
	first.stop()
	if got := m.tree.Get(t, "/kubepods", "memory.min"); got != fmt.Sprint(half) {
		t.Errorf("memory.min is %s when the first has left", got)
	}
	last.stop()
	m.stands(t, 0)
}

// Programs that leave at the same moment do not leave it to each other, and one that was killed is nobody to leave it to.
func TestNobodyIsLeft(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a, b := m.start(t, "cri", protecting(t)), m.start(t, "nri", protecting(t))
	pods := []*workload.Pod{guaranteed("one")}
	a.Synchronize(pods, nil)
	b.Synchronize(pods, nil)
	m.stands(t, half)
	var wg sync.WaitGroup
	wg.Go(a.stop)
	wg.Go(b.stop)
	wg.Wait()
	m.stands(t, 0)

	// What kill -9 leaves: a status and a pid in a lock that the kernel has given back.
	if err := os.WriteFile(filepath.Join(m.cfg.RunDir, "cri.lock"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	alone := m.start(t, "nri", protecting(t))
	alone.Synchronize(pods, nil)
	m.stands(t, half)
	alone.stop()
	m.stands(t, 0)
}
