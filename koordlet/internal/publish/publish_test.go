// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package publish_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/koordlet/internal/publish"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

var start = time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)

func cpus(t *testing.T, list string) topo.CPUSet {
	t.Helper()
	s, err := topo.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(dir string, now time.Time) handoff.Snapshot {
	return handoff.Read(handoff.Options{RunDir: dir, Now: func() time.Time { return now }})
}

// A dynamic state is written when it changes and when it would expire, and its generation grows over restarts.
func TestDynamic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := publish.New(dir, "", start)
	small, large := node.Dynamic{BECPUs: cpus(t, "0-1")}, node.Dynamic{BECPUs: cpus(t, "0-3")}
	held := large
	held.Quotas = map[string]node.QuotaLoop{"uid": {Cap: 500}}
	tight := held
	tight.MemoryHigh = map[string]node.MemoryHigh{"id": {Bytes: 1 << 30}}
	for _, step := range []struct {
		what    string
		d       node.Dynamic
		after   time.Duration
		changed bool
		gen     uint64
	}{
		{"first", small, 0, true, 1},
		{"the same a second later", small, time.Second, false, 1},
		{"the same after half of its time", small, publish.TTL / 2, false, 2},
		{"another", large, publish.TTL/2 + time.Second, true, 3},
		{"a quota beside it", held, publish.TTL/2 + time.Second, true, 4},
		{"a memory.high beside it", tight, publish.TTL/2 + time.Second, true, 5},
		{"both again", tight, publish.TTL/2 + 2*time.Second, false, 5},
		{"neither", large, publish.TTL/2 + 2*time.Second, true, 6},
		{"after the clock went back an hour", large, -time.Hour, false, 7},
	} {
		now := start.Add(step.after)
		changed, err := p.Dynamic(step.d, now)
		if err != nil {
			t.Fatal(err)
		}
		s := read(dir, now)
		if changed != step.changed || s.DynamicGeneration != step.gen || p.Generations().Dynamic != step.gen || !s.Dynamic.BECPUs.Equal(step.d.BECPUs) {
			t.Errorf("%s: changed %v, generation %d, CPUs %s", step.what, changed, s.DynamicGeneration, s.Dynamic.BECPUs)
		}
		if s.Dynamic.Expires.Sub(now) < publish.TTL/2 {
			t.Errorf("%s: holds for %s only", step.what, s.Dynamic.Expires.Sub(now))
		}
	}
	gone := handoff.Options{RunDir: dir, Up: func() time.Duration { return boottime.Now() + publish.TTL }}
	if handoff.Read(gone).Dynamic.Known {
		t.Error("a state of an agent that has gone still holds")
	}
	for _, by := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		now := start.Add(by - time.Hour)
		again := publish.New(dir, "", now)
		if changed, err := again.Dynamic(large, now); changed || err != nil || again.Generations().Dynamic != 7 {
			t.Errorf("the next life, after the clock went %s, does not know what stands there: %v, %v", by, changed, err)
		}
	}
	now := start.Add(-time.Hour)
	again := publish.New(dir, "", now)
	if changed, err := again.Dynamic(large, now); changed || err != nil {
		t.Errorf("the next life writes what stands there: %v, %v", changed, err)
	}
	if changed, err := again.Dynamic(small, now); !changed || err != nil || read(dir, now).DynamicGeneration != 8 {
		t.Errorf("the next life: %v, %v, generation %d", changed, err, read(dir, now).DynamicGeneration)
	}
}

// Generations grow over more than a minute without an agent, after which its last dynamic state is none to who reads it.
func TestGenerationsAfterALongAbsence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, handoff.DynamicFile)
	publishes := func(cap unit.MilliCPU) uint64 {
		p := publish.New(dir, "", start)
		if _, err := p.Dynamic(node.Dynamic{Quotas: map[string]node.QuotaLoop{"uid": {Cap: cap}}}, start); err != nil {
			t.Fatal(err)
		}
		return p.Generations().Dynamic
	}
	if got := publishes(1); got != 1 {
		t.Errorf("the first is %d", got)
	}
	for i, text := range []string{
		`{"version":1,"generation":41,"writtenAt":"2026-11-22T00:00:00Z","expires":"2026-11-22T00:01:00Z","payload":{"beCPUs":"","systemQoS":""}}`,
		`{"version":2,"generation":51}`, // of another release
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := read(dir, start); s.Dynamic.Known || s.DynamicGeneration != 0 {
			t.Fatalf("it still holds: %+v", s)
		}
		if got := publishes(unit.MilliCPU(i + 2)); got != []uint64{42, 52}[i] {
			t.Errorf("after %s comes %d", text, got)
		}
	}
	if err := os.WriteFile(file, []byte(`{"generation":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := publishes(1); got != 1 {
		t.Errorf("after half a file comes %d", got)
	}
}

// Strategy and pods are written when they change, and what is not known yet replaces nothing.
func TestStrategyAndPods(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	p := publish.New(dir, state, start)
	spec := strategy.Default()
	pods := map[string]node.PodSpec{"uid": {Containers: map[string]node.ContainerSpec{"web": {CPURequest: 500}}}}
	for i, want := range []bool{true, false} {
		s, err := p.Strategy(&spec, start)
		if err != nil || s != want {
			t.Errorf("strategy %d: %v, %v", i, s, err)
		}
		c, err := p.Pods(pods, start)
		if err != nil || c != want {
			t.Errorf("pods %d: %v, %v", i, c, err)
		}
	}
	if changed, err := p.Strategy(nil, start); changed || err != nil || read(dir, start).Strategy == nil {
		t.Errorf("no strategy: %v, %v", changed, err)
	}
	pods["other"] = node.PodSpec{}
	if changed, err := p.Pods(pods, start); !changed || err != nil || len(read(dir, start).Pods) != 2 {
		t.Errorf("a new pod: %v, %v", changed, err)
	}
}

// keep asks twice: for the copy to be written, and for how that has ended.
func keep(p *publish.Publisher, now time.Time) error {
	_ = p.Keep(now)
	p.Close(now)
	return p.Keep(now)
}

// A full state directory: the readers have the strategy, once, and the copy for the next boot is tried again every ten seconds until it is
// kept.
func TestTheCopyIsOwed(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	kept := filepath.Join(state, handoff.StrategyFile)
	if err := os.Mkdir(kept, 0o700); err != nil { // nothing can take its place
		t.Fatal(err)
	}
	p := publish.New(dir, state, start)
	spec := strategy.Default()
	for i, want := range []bool{true, false} {
		if changed, err := p.Strategy(&spec, start); changed != want || err != nil || p.Generations().Strategy != 1 || read(dir, start).StrategyGeneration != 1 {
			t.Errorf("%d: changed %v, %v, generation %d", i, changed, err, p.Generations().Strategy)
		}
		if err := keep(p, start); !errors.Is(err, handoff.ErrNotKept) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	if err := keep(p, start.Add(9*time.Second)); !errors.Is(err, handoff.ErrNotKept) {
		t.Errorf("within ten seconds: %v", err)
	}
	for range 2 {
		if err := keep(p, start.Add(10*time.Second)); err != nil {
			t.Error(err)
		}
	}
	boot := handoff.Read(handoff.Options{RunDir: t.TempDir(), StateDir: state})
	if boot.Strategy == nil || boot.StrategyGeneration != 1 {
		t.Errorf("next boot: %+v", boot)
	}
}

// Who cleans the run directory does not leave the readers without strategy and pods until one of them changes.
func TestWhatVanishesComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := publish.New(dir, "", start)
	must := func(_ bool, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := strategy.Default()
	must(p.Strategy(&spec, start))
	must(p.Pods(map[string]node.PodSpec{"uid": {}}, start))
	must(p.Dynamic(node.Dynamic{}, start))
	for _, file := range []string{handoff.StrategyFile, handoff.PodsFile, handoff.DynamicFile} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	later := start.Add(publish.TTL/2 + time.Second)
	must(p.Dynamic(node.Dynamic{}, later))
	if strategy, pods := p.Again(later); strategy != nil || pods != nil {
		t.Errorf("%v, %v", strategy, pods)
	}
	if s := read(dir, later); s.Strategy == nil || s.StrategyGeneration != 1 || len(s.Pods) != 1 || s.PodsGeneration != 1 || !s.Dynamic.Known {
		t.Errorf("%+v", s)
	}
}

// What has vanished and cannot be written again is told at each call until it can, and is no failure of the dynamic state.
func TestWhatCannotComeBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := publish.New(dir, "", start)
	spec := strategy.Default()
	_, strategyErr := p.Strategy(&spec, start)
	_, podsErr := p.Pods(map[string]node.PodSpec{"uid": {}}, start)
	_, err := p.Dynamic(node.Dynamic{}, start)
	if err = errors.Join(strategyErr, podsErr, err); err != nil {
		t.Fatal(err)
	}
	if strategyErr, podsErr = p.Again(start); strategyErr != nil || podsErr != nil {
		t.Fatal(strategyErr, podsErr)
	}
	one, other := filepath.Join(dir, handoff.StrategyFile), filepath.Join(dir, handoff.PodsFile)
	for _, path := range []string{one, other} {
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil { // nothing can take its place
			t.Fatal(err)
		}
	}
	again := start.Add(publish.TTL / 2) // when the dynamic state is written again
	for i := range 3 {
		now := again.Add(time.Duration(i-1) * time.Second)
		if _, err := p.Dynamic(node.Dynamic{}, now); err != nil {
			t.Errorf("second %d: %v", i, err)
		}
		strategyErr, podsErr := p.Again(now)
		if told := i > 0; told != (strategyErr != nil && strings.Contains(strategyErr.Error(), one)) || told != (podsErr != nil && strings.Contains(podsErr.Error(), other)) {
			t.Errorf("second %d: %v, %v", i, strategyErr, podsErr)
		}
	}
	for i, path := range []string{one, other} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if strategyErr, podsErr := p.Again(again); strategyErr != nil || (podsErr != nil) != (i == 0) {
			t.Errorf("with room for %s: %v, %v", path, strategyErr, podsErr)
		}
	}
	if s := read(dir, again); s.StrategyGeneration != 1 || s.PodsGeneration != 1 {
		t.Errorf("%+v", s)
	}
}

// Each new dynamic state has every container of the node decided again, by each who reads it: however many values the loops
// change in a step, it is one write, and words that change are none.
func TestManyChangesAreOneWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := publish.New(dir, "", start)
	state := func(factor unit.Fraction, reason string) node.Dynamic {
		d := node.Dynamic{BECPUs: cpus(t, "0-3"), Quotas: map[string]node.QuotaLoop{}, MemoryHigh: map[string]node.MemoryHigh{}}
		for i := range 500 {
			uid := fmt.Sprint("pod-", i)
			d.Quotas[uid] = node.QuotaLoop{Factors: map[string]unit.Fraction{"c": factor}}
			d.MemoryHigh[uid] = node.MemoryHigh{Bytes: 1 << 30, Reason: reason}
		}
		return d
	}
	for i, step := range []struct {
		factor unit.Fraction
		reason string
		want   uint64
	}{{1.2, "a", 1}, {1.2, "b", 1}, {1.44, "b", 2}, {1.44, "c", 2}} {
		if _, err := p.Dynamic(state(step.factor, step.reason), start.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		if got := read(dir, start).DynamicGeneration; got != step.want {
			t.Errorf("step %d: generation %d, want %d", i, got, step.want)
		}
	}
}

// A quiet second costs no write and no garbage.
func TestNothingNewAllocatesNothing(t *testing.T) {
	p := publish.New(t.TempDir(), "", start)
	d := node.Dynamic{BECPUs: cpus(t, "0-3"), Quotas: map[string]node.QuotaLoop{"a": {Cap: 500}, "b": {Factors: map[string]unit.Fraction{"c": 1.2}}}}
	if _, err := p.Dynamic(d, start); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if changed, err := p.Dynamic(d, start.Add(time.Second)); changed || err != nil {
			t.Error(changed, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
