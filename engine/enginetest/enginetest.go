// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package enginetest builds what an engine stands on in tests: a fake machine with the one writer of its kernel, what a
// probe finds there, and a journal in memory; and runs the engine.
//
// Inputs are the name of a kernel as kernel/kerneltest knows it and what the test wants otherwise. It is imported by tests of
// the engine and of the programs around it only, and imports what the engine may import, and the engine.
package enginetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/probe"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Journal keeps records in memory.
type Journal struct {
	mu   sync.Mutex
	list []journal.Record
}

// Append implements journal.Journal.
func (j *Journal) Append(records ...journal.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, records...)
	return nil
}

// All are the records so far.
func (j *Journal) All() []journal.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.list)
}

// Of are those of one knob of a container.
func (j *Journal) Of(container, knob string) (out []journal.Record) {
	for _, r := range j.All() {
		if r.Target.Container == container && r.Knob == knob {
			out = append(out, r)
		}
	}
	return out
}

// Machine is a fake machine.
type Machine struct {
	Tree    *kerneltest.Tree
	Files   cgroup.FS
	Journal *Journal
}

// New builds a machine with a kernel and cgroups of kerneltest.New.
func New(t testing.TB, kernel string, cgroups ...string) *Machine {
	t.Helper()
	m := &Machine{Tree: kerneltest.New(t, kernel, cgroups...), Journal: &Journal{}}
	var err error
	m.Files, err = cgroup.Open(m.Tree.Roots, m.Tree.Version, cgroup.Options{Weight: unit.Quadratic})
	must(t, err)
	return m
}

// Writer is the one writer of the machine's kernel. change, which may be nil, gives it more than cgroups.
func (m *Machine) Writer(t testing.TB, change func(*apply.Options)) *apply.Applier {
	t.Helper()
	o := apply.Options{FS: m.Files, Roots: m.Tree.Roots, Journal: m.Journal, Writer: m.Tree}
	if change != nil {
		change(&o)
	}
	a, err := apply.New(o)
	must(t, err)
	return a
}

// Static is what a probe finds: of the knobs, those that the kernel has a file for.
func (m *Machine) Static(t testing.TB, knobs ...plan.Knob) engine.Static {
	t.Helper()
	topology, err := sys.FS(m.Tree.Roots.Sys).Topology()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(m.Tree.Roots.Proc, "sys/kernel/osrelease"))
	must(t, err)
	release := strings.TrimSpace(string(text))
	major, minor, err := probe.ParseRelease(release)
	must(t, err)
	s := engine.Static{
		Name: "node-1", Topology: topology, Weight: unit.Quadratic, CPUAllocatable: 8000, MemCapacity: 16 << 30, MemAllocatable: 16 << 30,
		Kernel: node.Kernel{Release: release, Major: major, Minor: minor, Cgroup: m.Tree.Version},
	}
	for _, k := range knobs {
		s.Kernel.Knobs[k].OK = m.Files.IsFile(k)
	}
	return s
}

// Options are those of an engine that writes to the machine and logs to the test. text is a strategy, knobs are as in
// Static.
func (m *Machine) Options(t testing.TB, cfg config.Node, edge engine.Edge, text string, knobs ...plan.Knob) engine.Options {
	t.Helper()
	spec, err := strategy.Parse([]byte(text))
	must(t, err)
	counters, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	must(t, err)
	return engine.Options{
		Config: cfg, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: counters, Edge: edge, Journal: m.Journal,
		Kernel: m.Writer(t, nil), Views: engine.NewViews(cfg, m.Static(t, knobs...), &spec, "test"),
	}
}

// Run runs an engine that no runtime is connected to until the test ends.
func Run(t testing.TB, g *engine.Engine) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Run(ctx, func(ctx context.Context) { <-ctx.Done() })
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// Eventually returns when ok does. Engines work in the background, in their own time; a minute is enough for all of it on a
// loaded machine.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		<-tick.C
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
