// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/talk"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	policy "github.com/koord-rt/koord-rt/policy/evict"
)

func TestEvictModes(t *testing.T) {
	t.Parallel()
	some := policy.Features(0).With(policy.CPUEvict).With(policy.MemoryEvict)
	for name, c := range map[string]struct {
		evict config.Evict
		want  policy.Features
		state string
	}{
		"active":  {config.Evict{Mode: config.ModeActive}, policy.All, status.StateActive},
		"observe": {config.Evict{Mode: config.ModeObserve, Features: []string{"MemoryEvict", "CPUEvict"}}, some, status.StateObserve},
		"none":    {config.Evict{Mode: config.ModeActive, Features: []string{}}, 0, status.StateActive},
		"off":     {config.Evict{Mode: config.ModeOff, Features: []string{"MemoryEvict"}}, 0, status.StateOff},
	} {
		if state, _ := evictLoopState(&c.evict, true); evictFeatures(&c.evict) != c.want || state != c.state {
			t.Errorf("%s: %v, %s", name, evictFeatures(&c.evict), state)
		}
	}
	if names := evictReasons(); len(names) != int(policy.NumFeatures) || names[0] == "" {
		t.Errorf("%v", names)
	}
	// Each name of the configuration is a feature, and the other way round.
	for _, name := range evictReasons() {
		c := config.DefaultKoordlet()
		if c.Evict.Features = []string{name}; len(c.Validate()) != 0 || evictFeatures(&c.Evict) == 0 {
			t.Errorf("%s: %v, %v", name, c.Validate(), evictFeatures(&c.Evict))
		}
	}
}

// The status of a NodeSLO says what evictions do, and what they do without.
func TestEvictionState(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		strategy   string
		evict      func(*config.Evict)
		noPressure bool
		state      string
		detail     string
	}{
		"not enabled": {`{}`, nil, false, "off", "resourceUsedThresholdWithBE is not enabled"},
		"default":     {`{"enable":true}`, nil, true, "active", "BEMemoryEvict"},
		"more":        {`{"enable":true,"cpuEvictThresholdPercent":90,"evictEnabledPriorityThreshold":5999}`, nil, false, "active", "BEMemoryEvict, MemoryEvict, CPUEvict"},
		"a gate": {
			`{"enable":true,"cpuEvictThresholdPercent":90,"evictEnabledPriorityThreshold":5999}`, func(e *config.Evict) { e.Features = []string{"CPUEvict"} },
			false, "active", "CPUEvict; switched off on the node: BEMemoryEvict, MemoryEvict",
		},
		"all gates": {`{"enable":true}`, func(e *config.Evict) { e.Features = []string{} }, false, "off", "switched off on the node: BEMemoryEvict"},
		"off":       {`{"enable":true}`, func(e *config.Evict) { e.Mode = config.ModeOff }, false, "off", "evict.mode is off on the node"},
		"observe":   {`{"enable":true}`, func(e *config.Evict) { e.Mode = config.ModeObserve }, false, "observe", "BEMemoryEvict"},
		"named without a threshold": {
			`{"enable":true}`, func(e *config.Evict) { e.Features = []string{"BEMemoryEvict", "MemoryEvict", "CPUEvict"} }, false, "active",
			"BEMemoryEvict; MemoryEvict is on, but no threshold is set: evictEnabledPriorityThreshold of resourceUsedThresholdWithBE " +
				"(key resource-threshold-config of ConfigMap slo-controller-config); CPUEvict is on, but no threshold is set: cpuEvictThresholdPercent and " +
				"evictEnabledPriorityThreshold of resourceUsedThresholdWithBE (key resource-threshold-config of ConfigMap slo-controller-config)",
		},
		"the only one, without a threshold": {
			`{"enable":true,"evictEnabledPriorityThreshold":5999}`, func(e *config.Evict) { e.Features = []string{"CPUEvict"} }, false, "off",
			"switched off on the node: BEMemoryEvict, MemoryEvict; CPUEvict is on, but no threshold is set: cpuEvictThresholdPercent of " +
				"resourceUsedThresholdWithBE (key resource-threshold-config of ConfigMap slo-controller-config)",
		},
		"M5": {`{"enable":true,"cpuEvictPSIThresholdPercent":85}`, nil, false, "active", "BEMemoryEvict, BECPUEvict"},
		"M5 on v1": {
			`{"enable":true,"cpuEvictPSIThresholdPercent":85}`, nil, true, "degraded",
			"BEMemoryEvict, BECPUEvict; the kernel tells no CPU pressure of BE, its satisfaction stands in",
		},
	} {
		o, err := slo.DecodeNodeSLO([]byte(`{"metadata":{"name":"n"},"spec":{"resourceUsedThresholdWithBE":` + tc.strategy + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		full, c := strategy.Effective(o.Spec), config.DefaultKoordlet().Evict
		if tc.evict != nil {
			tc.evict(&c)
		}
		want := node.FeatureState{Feature: "eviction", State: tc.state, Detail: tc.detail}
		if d := cmp.Diff(want, evictionState(&c, full.Threshold(), tc.noPressure)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// What metrics count: an eviction once, and none that the API server knows nothing of.
func TestEvictionsAreCounted(t *testing.T) {
	t.Parallel()
	away := errors.New("no API server")
	for _, c := range []struct {
		outcome evict.Outcome
		err     error
		want    metrics.Eviction
		counts  bool
	}{
		{evict.Accepted, nil, metrics.EvictionDone, true}, {evict.Stopped, nil, 0, false}, {evict.Stopped, away, metrics.EvictionDone, true},
		{evict.Refused, away, metrics.EvictionRefused, true}, {evict.Failed, away, metrics.EvictionFailed, true}, {evict.Missing, away, 0, false},
		{evict.Observed, nil, metrics.EvictionObserved, true}, {evict.Gone, nil, 0, false}, {evict.Overdue, nil, 0, false}, {evict.Dropped, nil, 0, false},
	} {
		got, counts := counted(&evict.Result{Outcome: c.outcome, Err: c.err})
		if counts != c.counts || counts && got != c.want {
			t.Errorf("%s, %v: %v, %v", c.outcome, c.err, got, counts)
		}
		var n news
		n.evicted(&evict.Result{Outcome: c.outcome, Err: c.err}, time.Time{})
		if len(n.evictions) == 1 != c.counts {
			t.Errorf("%s, %v: people see %v", c.outcome, c.err, n.evictions)
		}
	}
}

// An agent that starts again counts what the one before has evicted, also after the clock was set.
func TestEvictionsOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	dir, begun := t.TempDir(), time.Now()
	open := func() *talk.Audit {
		a, err := talk.OpenAudit(dir, "koordlet", "this boot")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	audit, before := open(), &news{}
	for i, r := range []evict.Result{
		{Outcome: evict.Accepted}, {Outcome: evict.Accepted}, {Outcome: evict.Gone}, {Outcome: evict.Stopped}, {Outcome: evict.Refused, Err: errors.New("budget")},
		{Outcome: evict.Stopped, Err: errors.New("no API server")}, {Outcome: evict.Observed},
	} {
		at := begun.Add(time.Duration(i) * 10 * time.Minute)
		r.Pod = fmt.Sprint("uid-", i)
		before.evicted(&r, at)
		if err := audit.Note(at, evictionEvent(&r)); err != nil {
			t.Fatal(err)
		}
	}
	if err := audit.Close(); err != nil {
		t.Fatal(err)
	}
	const boot = 10 * time.Hour
	stamp(t, filepath.Join(dir, "audit", "ledger", "koordlet.jsonl"), func(i int) time.Duration { return boot + time.Duration(i)*10*time.Minute })
	now := begun.Add(65 * time.Minute)
	audit = open()
	defer audit.Close()
	if was := before.lastHour(now); was != 2 {
		t.Errorf("before a restart %d evictions are of the last hour, want 2", was)
	}
	for _, by := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour} {
		now, after := now.Add(by), news{}
		for range 2 { // as at the start, and again once the audit can be written
			if err := after.recall(audit, now, boot+65*time.Minute, "this boot"); err != nil {
				t.Fatal(err)
			}
		}
		if is, later := after.lastHour(now), after.lastHour(now.Add(30*time.Minute)); is != 2 || later != 1 {
			t.Errorf("after a restart, the clock went %s: %d evictions are of the last hour, and half an hour later %d, want 2 and 1", by, is, later)
		}
	}
}

// stamp gives the records of a ledger times since boot: those that it has are of now.
func stamp(t *testing.T, path string, up func(i int) time.Duration) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	has := regexp.MustCompile(`"up":\d+`)
	var out []byte
	i := 0
	for line := range bytes.Lines(data) {
		out = append(out, has.ReplaceAll(line, fmt.Appendf(nil, `"up":%d`, up(i)))...)
		i++
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The cluster is told of pods that were evicted in the last hour, not of those that were to be.
func TestEvictionsOfTheLastHour(t *testing.T) {
	t.Parallel()
	var n news
	begun := time.Now()
	for i, outcome := range []evict.Outcome{evict.Accepted, evict.Refused, evict.Failed, evict.Observed, evict.Accepted, evict.Gone, evict.Stopped} {
		n.evicted(&evict.Result{Outcome: outcome, Err: errors.New("no API server")}, begun.Add(time.Duration(i)*time.Minute))
	}
	for at, want := range map[time.Duration]int{7 * time.Minute: 3, time.Hour: 3, 61 * time.Minute: 2, 65 * time.Minute: 1, 67 * time.Minute: 0} {
		if got := n.lastHour(begun.Add(at)); got != want {
			t.Errorf("after %s: %d, want %d", at, got, want)
		}
	}
	for range 2 * maxGone {
		n.evicted(&evict.Result{Outcome: evict.Accepted}, begun)
	}
	if got := len(n.gone); got > maxGone+1 {
		t.Errorf("%d are kept", got)
	}
}

// The newest samples are what a release is measured by; an old one says nothing.
func TestUses(t *testing.T) {
	t.Parallel()
	d := &Daemon{cfg: off(), window: window.New(window.Options{})}
	at := t.TempDir()
	d.cfg.Host.Proc = at
	now := boot()
	d.window.Append([]sample.Sample{
		{Subject: sample.OfPod("old"), Metric: sample.MemoryUsage, Value: 5, At: now - unit.Minute},
		{Subject: sample.OfPod("a"), Metric: sample.MemoryUsage, Value: 3 << 30, At: now},
		{Subject: sample.OfPod("a"), Metric: sample.CPUUsage, Value: 1.5, At: now},
		{Subject: sample.OfNode(), Metric: sample.MemoryUsage, Value: 100 << 30, At: now},
	})
	got := d.uses("a")
	if got.Memory != unit.Got[unit.Bytes](3<<30) || got.CPU != unit.Got[unit.MilliCPU](1500) || got.NodeMemory.V != 100<<30 || got.NodeCPU.OK {
		t.Errorf("%+v", got)
	}
	if got = d.uses("old"); got.Memory.OK {
		t.Errorf("%+v", got)
	}
	// The machine's memory as it is now, and what CPUs keep of what has been freed is free.
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("meminfo", "MemTotal: 4194304 kB\nMemFree: 1 kB\nMemAvailable: 1048576 kB\nCached: 1 kB\n")
	put("zoneinfo", "Node 0, zone Normal\n  pagesets\n    cpu: 0\n count: 1000\n    cpu: 1\n count: 24\n")
	if got, want := d.uses("a").NodeMemory, unit.Bytes(3<<30-1024*os.Getpagesize()); got != unit.Got(want) {
		t.Errorf("the node uses %+v, want %d", got, want)
	}
}

// Where the collector says that it has all, pressure is known; where it has little or nothing, it may not be.
func TestNoPressure(t *testing.T) {
	t.Parallel()
	for support, want := range map[string]bool{collect.StateActive: false, collect.StateDegraded: true, collect.StateUnsupported: true} {
		if noPressure([]collect.State{{Collector: "psi", Support: collect.StateActive}, {Collector: collect.ClassPressure, Support: support}}) != want {
			t.Error(support)
		}
	}
	if !noPressure(nil) {
		t.Error("nobody measures it")
	}
}

// A step that decides nothing is told as well: who waits for his turn is not needed any more.
func TestNothingToDoIsTold(t *testing.T) {
	t.Parallel()
	x, err := evict.New(evict.Options{Pods: pods.New(pods.Options{}).Snapshot, Clock: boot})
	if err != nil {
		t.Fatal(err)
	}
	v := victims{x}
	v.Evict(&policy.Output{Evictions: []policy.Eviction{{Pod: "a", RespectBudget: true}}, Decisions: []policy.Decision{{Rest: policy.Needed}}})
	if leaving, held := v.Leaving(); len(leaving) != 1 || held["a"] != policy.ByTurn {
		t.Errorf("leaving %v, held %v", leaving, held)
	}
	v.Evict(&policy.Output{})
	if leaving, held := v.Leaving(); len(leaving) != 0 || len(held) != 0 {
		t.Errorf("nothing is to be done: leaving %v, held %v", leaving, held)
	}
}

// The executor stops what the runtime has by CRI, and asks the pod's cgroup whether anything is left.
func TestHandsOfTheNode(t *testing.T) {
	t.Parallel()
	tree := kerneltest.New(t, "6.12", "/kubepods/besteffort/poda")
	tree.Set(t, "/kubepods/besteffort/poda", "cgroup.events", "populated 1")
	d := &Daemon{cfg: off()}
	d.cfg.Host.CgroupRoot = tree.Roots.Cgroup
	h, err := d.newHands(node.CgroupV2)
	if err != nil {
		t.Fatal(err)
	}
	if yes, err := h.Populated("/kubepods/besteffort/poda"); !yes || err != nil {
		t.Errorf("%v, %v", yes, err)
	}
}
