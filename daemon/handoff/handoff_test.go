// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package handoff

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

func spec(percent int64) *strategy.Spec {
	return &strategy.Spec{CPUBurstStrategy: &strategy.CPUBurstStrategy{CPUBurstPercent: ptr(percent)}}
}

func dynamic(expires time.Time) node.Dynamic {
	return node.Dynamic{
		Known: true, Expires: expires, BECPUs: topo.Range(4, 7), BESharesLSR: true, BEQuota: true,
		SharePools: []node.Pool{{Socket: 0, Node: 1, CPUs: topo.Range(0, 3)}}, SystemQoS: topo.CPUs(9), SystemQoSExclusive: true,
		Normalization: 120,
		Quotas: map[string]node.QuotaLoop{
			"uid-1": {Factors: map[string]unit.Fraction{"c1": 1.44}, Plus: 88000}, "uid-2": {Cap: 500},
		},
		MemoryHigh: map[string]node.MemoryHigh{"c2": {Bytes: 1 << 30, Reason: "the node's memory is tight"}},
		OOMScores:  map[string]node.OOMScore{"c2": {Score: 943, Reason: "near its limit"}},
		DiskLimits: map[string]node.DiskLimit{"uid-2": {Read: 1 << 20, Write: 2 << 20, Reason: "it disturbs others"}},
	}
}

func pods() map[string]node.PodSpec {
	return map[string]node.PodSpec{"uid-1": {
		Extended: map[string]protocol.ExtendedContainer{"app": {
			Limits:   protocol.ExtendedResources{BatchCPU: ptr(int64(1000)), BatchMemory: ptr(int64(1 << 30))},
			Requests: protocol.ExtendedResources{MidCPU: ptr(int64(0))},
		}},
		Containers: map[string]node.ContainerSpec{"app": {CPURequest: 500, MemoryLimit: 1 << 20, Devices: map[string]int64{"nvidia.com/gpu": 1}, Init: true}},
	}}
}

func writer(t *testing.T, run, state string) *Writer {
	t.Helper()
	w, err := NewWriter(run, state)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	run, state := t.TempDir(), t.TempDir()
	w, up := writer(t, run, state), time.Hour
	w.up = func() time.Duration { return up }
	want := Snapshot{
		Strategy: spec(500), Dynamic: dynamic(t0.Add(time.Minute)), Pods: pods(), StrategyGeneration: 1, DynamicGeneration: 2, PodsGeneration: 3,
	}
	must(t, errors.Join(w.Strategy(1, want.Strategy, t0), keep(w)))
	must(t, w.Dynamic(2, want.Dynamic, t0))
	must(t, w.Pods(3, want.Pods, t0))
	now := t0
	o := Options{RunDir: run, StateDir: state, Now: func() time.Time { return now }, Up: w.up}
	equal := cmp.Comparer(func(a, b topo.CPUSet) bool { return a.Equal(b) })
	if d := cmp.Diff(want, Read(o), equal); d != "" {
		t.Error(d)
	}
	now, up = t0.Add(time.Minute), up+time.Minute
	want.Dynamic, want.DynamicGeneration = node.Dynamic{}, 0
	if d := cmp.Diff(want, Read(o), equal); d != "" {
		t.Errorf("expired: %s", d)
	}
	// The next boot: the run directory is empty, the strategy's copy serves.
	got := Read(Options{RunDir: t.TempDir(), StateDir: state})
	if d := cmp.Diff(Snapshot{Strategy: spec(500), StrategyFromState: true, StrategyGeneration: 1}, got, equal); d != "" {
		t.Errorf("next boot: %s", d)
	}
	// Who takes the agent off the node removes the files (docs/user/install-and-run.md).
	for _, path := range []string{filepath.Join(run, PodsFile), filepath.Join(run, DynamicFile), filepath.Join(state, StrategyFile), filepath.Join(run, StrategyFile)} {
		must(t, os.Remove(path))
	}
	if d := cmp.Diff(Snapshot{}, Read(o), equal); d != "" {
		t.Errorf("removed: %s", d)
	}
}

// TestTimeOfDayIsSet: a dynamic state holds for the minute that it was written for, whatever time of day it is for who reads it.
func TestTimeOfDayIsSet(t *testing.T) {
	t.Parallel()
	const boot = time.Hour
	for name, c := range map[string]struct {
		written time.Duration // the time since boot by which it was written, 0 for a writer that does not stamp it
		day, up time.Duration // since then, by either clock
		left    time.Duration // 0 for expired
	}{
		"nobody sets it":                     {boot, 20 * time.Second, 20 * time.Second, 40 * time.Second},
		"two hours on":                       {boot, 2 * time.Hour, 20 * time.Second, 40 * time.Second},
		"two hours back":                     {boot, -2 * time.Hour, 20 * time.Second, 40 * time.Second},
		"two hours back, and it has expired": {boot, -2 * time.Hour, time.Minute, 0},
		"another boot":                       {boot, 20 * time.Second, time.Minute - boot, 40 * time.Second},
		"another boot, and it has expired":   {boot, time.Hour, time.Minute - boot, 0},
		"an older writer":                    {0, 20 * time.Second, boot, 40 * time.Second},
	} {
		run := t.TempDir()
		w := writer(t, run, "")
		w.up = func() time.Duration { return c.written }
		must(t, w.Dynamic(1, dynamic(t0.Add(time.Minute)), t0))
		now := t0.Add(c.day)
		got := Read(Options{RunDir: run, Now: func() time.Time { return now }, Up: func() time.Duration { return c.written + c.up }}).Dynamic
		if got.Known != (c.left > 0) || got.Known && got.Expires.Sub(now) != c.left {
			t.Errorf("%s: known %t, %s are left, want %s", name, got.Known, got.Expires.Sub(now), c.left)
		}
	}
}

// A state directory that takes nothing (a directory stands in the file's place) costs the next boot, not who reads now. The copy is owed
// until it is kept, over a restart of the writer too, and what stands there is not written again.
func TestNotKept(t *testing.T) {
	t.Parallel()
	run, state := t.TempDir(), t.TempDir()
	kept := filepath.Join(state, StrategyFile)
	w := writer(t, run, state)
	must(t, os.Mkdir(kept, 0o700))
	must(t, w.Strategy(1, spec(500), t0))
	for _, err := range []error{keep(w), keep(w), keep(writer(t, run, state))} {
		if !errors.Is(err, ErrNotKept) || !strings.Contains(err.Error(), kept) {
			t.Errorf("%v", err)
		}
	}
	if s := Read(Options{RunDir: run}); s.StrategyGeneration != 1 || *s.Strategy.CPUBurstStrategy.CPUBurstPercent != 500 {
		t.Errorf("%+v", s)
	}
	must(t, os.Remove(kept))
	must(t, keep(writer(t, run, state)))
	if s := Read(Options{RunDir: t.TempDir(), StateDir: state}); s.StrategyGeneration != 1 || *s.Strategy.CPUBurstStrategy.CPUBurstPercent != 500 {
		t.Errorf("next boot: %+v", s)
	}
	must(t, os.Remove(kept))
	must(t, errors.Join(w.Strategy(2, spec(600), t0), keep(w)))
	before, err := os.Stat(kept)
	must(t, err)
	next := writer(t, run, state)
	must(t, errors.Join(keep(next), next.Strategy(3, spec(600), t0), keep(next)))
	if after, err := os.Stat(kept); err != nil || !os.SameFile(before, after) {
		t.Errorf("what stands in the state directory was written again: %v", err)
	}
}

// Every prefix of a file is half written: the last good content stays and a problem is reported.
func TestHalfWrittenKeepsTheLastGood(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	w := writer(t, run, "")
	must(t, w.Strategy(1, spec(500), t0))
	p := newParts(Options{RunDir: run})
	p.refresh(true)
	path := filepath.Join(run, StrategyFile)
	must(t, w.Strategy(2, spec(600), t0))
	whole, err := os.ReadFile(path)
	must(t, err)
	for cut := range len(whole) - 2 {
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		p.refresh(true)
		s := p.snapshot(t0)
		if len(s.Problems) != 1 || *s.Strategy.CPUBurstStrategy.CPUBurstPercent != 500 || s.StrategyGeneration != 1 {
			t.Fatalf("cut at %d: %+v", cut, s)
		}
	}
	must(t, os.WriteFile(path, whole, 0o600))
	if !p.refresh(true) || len(p.snapshot(t0).Problems) != 0 || p.snapshot(t0).StrategyGeneration != 2 {
		t.Errorf("whole again: %+v", p.snapshot(t0))
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"no version":    `{"payload":{}}`,
		"other version": `{"version":2,"payload":{}}`,
		"no payload":    `{"version":1}`,
		"null":          `{"version":1,"payload":null}`,
		"wrong type":    `{"version":1,"payload":[]}`,
		"absurd cpus":   `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"beCPUs":"0-4294967295"}}`,
		"no expires":    `{"version":1,"payload":{"beCPUs":"0"}}`,
		"negative":      `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"normalization":-1}}`,
		"small factor":  `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"quotas":{"u":{"factors":{"c":0.5}}}}}`,
		"large factor":  `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"quotas":{"u":{"factors":{"c":1e300}}}}}`,
		"negative plus": `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"quotas":{"u":{"plus":-1}}}}`,
		"large plus":    `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"quotas":{"u":{"plus":9223372036854775807}}}}`,
		"negative cap":  `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"quotas":{"u":{"cap":-1}}}}`,
		"no high":       `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"memoryHigh":{"c":{"bytes":0}}}}`,
		"low score":     `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"oomScores":{"c":{"score":-1001}}}}`,
		"high score":    `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"oomScores":{"c":{"score":1001}}}}`,
		"long reason": `{"version":1,"expires":"2026-05-01T12:00:00Z","payload":{"memoryHigh":{"c":{"bytes":1,"reason":"` +
			strings.Repeat("x", maxReason+1) + `"}}}}`,
	} {
		if _, _, err := parseDynamic([]byte(content)); err == nil {
			t.Errorf("dynamic: %s accepted", name)
		}
	}
	if _, _, err := parsePods([]byte(`{"version":1,"payload":{"u":{"containers":{"c":{"cpuLimit":-1}}}}}`)); err == nil {
		t.Error("pods: negative limit accepted")
	}
	run := t.TempDir()
	must(t, os.Mkdir(filepath.Join(run, PodsFile), 0o700))
	f, err := os.Create(filepath.Join(run, StrategyFile))
	must(t, err)
	must(t, f.Truncate(MaxBytes+1))
	must(t, f.Close())
	s := Read(Options{RunDir: run})
	if len(s.Problems) != 2 || !strings.Contains(s.Problems[0].Reason, "longer than") || !strings.Contains(s.Problems[1].Reason, "regular") {
		t.Errorf("%+v", s.Problems)
	}
	if err := writer(t, t.TempDir(), "").Dynamic(1, node.Dynamic{}, t0); err == nil {
		t.Error("dynamic state without expires published")
	}
}

// watch runs a watcher and returns its changes.
func watch(t *testing.T, o Options) (*Watcher, <-chan Snapshot) {
	t.Helper()
	w := NewWatcher(o)
	return w, follow(t, w)
}

// follow runs a watcher.
func follow(t *testing.T, w *Watcher) <-chan Snapshot {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan Snapshot, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx, func(s Snapshot) { changes <- s }); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return changes
}

func await(t *testing.T, changes <-chan Snapshot, what string, good func(Snapshot) bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		select {
		case s := <-changes:
			if good(s) {
				return
			}
		case <-deadline:
			t.Fatalf("never saw: %s", what)
		}
	}
}

func TestWatcherFollows(t *testing.T) {
	t.Parallel()
	run := filepath.Join(t.TempDir(), "koord-rt")
	w, changes := watch(t, Options{RunDir: run, Poll: 50 * time.Millisecond})
	pub := writer(t, run, "")
	must(t, pub.Strategy(1, spec(500), t0))
	await(t, changes, "strategy", func(s Snapshot) bool { return s.StrategyGeneration == 1 })
	must(t, pub.Pods(1, pods(), t0))
	await(t, changes, "pods", func(s Snapshot) bool { return len(s.Pods) == 1 })
	must(t, os.WriteFile(filepath.Join(run, PodsFile), []byte("{"), 0o600))
	await(t, changes, "problem", func(s Snapshot) bool { return len(s.Problems) == 1 && len(s.Pods) == 1 })
	must(t, pub.Dynamic(1, dynamic(time.Now().Add(time.Hour)), time.Now()))
	await(t, changes, "dynamic", func(s Snapshot) bool { return s.Dynamic.Known })
	must(t, pub.Dynamic(2, dynamic(time.Now().Add(50*time.Millisecond)), time.Now()))
	await(t, changes, "expiry", func(s Snapshot) bool { return !s.Dynamic.Known })
	if w.Snapshot().StrategyGeneration != 1 {
		t.Error("Snapshot is not the last one")
	}
	// The directory is removed and made again, as by a package upgrade.
	must(t, os.RemoveAll(run))
	await(t, changes, "withdrawal", func(s Snapshot) bool { return s.Strategy == nil })
	must(t, writer(t, run, "").Strategy(9, spec(700), t0))
	await(t, changes, "strategy in the new directory", func(s Snapshot) bool { return s.StrategyGeneration == 9 })
}

// Where the kernel gives no more watches the files are looked at instead, and it is told; when it gives one again, that is over.
func TestWatcherWithoutInotify(t *testing.T) {
	if !kerneltest.InUserNamespace(t) {
		return
	}
	run := filepath.Join(t.TempDir(), "koord-rt")
	kerneltest.Limit(t, "max_inotify_instances", 0)
	_, changes := watch(t, Options{RunDir: run})
	await(t, changes, "why nobody tells", func(s Snapshot) bool {
		return len(s.Problems) == 1 && s.Problems[0].File == run && strings.Contains(s.Problems[0].Reason, "max_user_instances")
	})
	pub := writer(t, run, "")
	must(t, pub.Strategy(1, spec(500), t0))
	await(t, changes, "strategy", func(s Snapshot) bool { return s.StrategyGeneration == 1 && len(s.Problems) == 1 })
	kerneltest.Limit(t, "max_inotify_instances", 128)
	await(t, changes, "the end of it", func(s Snapshot) bool { return len(s.Problems) == 0 })
	must(t, pub.Strategy(2, spec(600), t0))
	await(t, changes, "the next strategy", func(s Snapshot) bool { return s.StrategyGeneration == 2 })
}

func FuzzParse(f *testing.F) {
	run := f.TempDir()
	w, err := NewWriter(run, "")
	if err != nil {
		f.Fatal(err)
	}
	for _, err := range []error{w.Strategy(1, spec(5), t0), w.Dynamic(1, dynamic(t0), t0), w.Pods(1, pods(), t0)} {
		if err != nil {
			f.Fatal(err)
		}
	}
	for _, name := range []string{StrategyFile, DynamicFile, PodsFile} {
		b, err := os.ReadFile(filepath.Join(run, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, _, err := parseStrategy(b); (s == nil) != (err != nil) {
			t.Fatalf("strategy %v with error %v", s, err)
		}
		d, _, err := parseDynamic(b)
		if d.Known != (err == nil) || d.Normalization < 0 {
			t.Fatalf("dynamic %+v with error %v", d, err)
		}
		for uid, q := range d.Quotas {
			if q.Plus < 0 || q.Cap < 0 {
				t.Fatalf("quota of %q: %+v", uid, q)
			}
			for id, f := range q.Factors {
				if !(f >= 1) || f > maxFactor {
					t.Fatalf("factor of %q: %v", id, f)
				}
			}
		}
		for uid, l := range d.DiskLimits {
			if l.Read <= 0 || l.Write <= 0 {
				t.Fatalf("disk limit of %q: %+v", uid, l)
			}
		}
		for id, o := range d.OOMScores {
			if o.Score < -1000 || o.Score > 1000 {
				t.Fatalf("oom_score_adj of %q: %+v", id, o)
			}
		}
		for id, h := range d.MemoryHigh {
			if h.Bytes <= 0 {
				t.Fatalf("memory.high of %q: %+v", id, h)
			}
		}
		if p, _, err := parsePods(b); (p == nil) != (err != nil) {
			t.Fatalf("pods %v with error %v", p, err)
		}
	})
}
