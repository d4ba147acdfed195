// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// TestHeard: a status counts that says it of the newest spec, which has the percentage; each instant is the first of its kind.
func TestHeard(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	object := func(percent, generation, observed int, applied string) cluster.Object {
		return cluster.Object{
			"metadata": map[string]any{"generation": float64(generation)},
			"spec":     map[string]any{"cpuBurstStrategy": map[string]any{"cpuBurstPercent": float64(percent)}},
			"status": map[string]any{
				"observedGeneration": float64(observed), "conditions": []any{map[string]any{"type": "Applied", "status": applied}},
			},
		}
	}
	h := heard{percent: 50}
	for i, c := range []struct {
		what string
		o    cluster.Object
		more bool
	}{
		{"as it was", object(25, 3, 3, "True"), true},
		{"written", object(50, 4, 3, "True"), true},
		{"not in force", object(50, 4, 4, "False"), true},
		{"in force", object(50, 4, 4, "True"), false},
	} {
		if more := h.sees(begun.Add(time.Duration(i)*time.Second), c.o); more != c.more {
			t.Errorf("%s: more to come: %t", c.what, more)
		}
	}
	if written, told := h.written.Sub(begun), h.told.Sub(begun); written != time.Second || told != 3*time.Second {
		t.Errorf("written after %s, in force after %s", written, told)
	}
	none := heard{percent: 50}
	if !none.sees(begun, cluster.Object{}) || !none.written.IsZero() {
		t.Error("an object without anything has the percentage")
	}
}

// TestBursts: the last container's value counts.
func TestBursts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(paths[0], "50000\n")
	if _, err := openBursts(paths); err == nil {
		t.Error("a file that is not there is read")
	}
	write(paths[1], "25000\n")
	b, err := openBursts(paths)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	is := func(micros int, want bool) {
		t.Helper()
		if all, err := b.all(micros); err != nil || all != want {
			t.Errorf("all have %d: %t, %v", micros, all, err)
		}
	}
	is(25000, false)
	is(50000, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.await(ctx, 50000); !errors.Is(err, context.Canceled) {
		t.Errorf("what never comes: %v", err)
	}
	write(paths[1], "50000\n")
	is(50000, true)
	begun := time.Now()
	if at, gap, err := b.await(t.Context(), 50000); err != nil || at.Before(begun) || gap < 0 {
		t.Errorf("what is there: at %s, %s after the read before, %v", at, gap, err)
	}
	write(paths[1], "max\n")
	if _, _, err := b.await(t.Context(), 50000); err == nil {
		t.Error("what is no number is read")
	}
}

// TestFollowStrategy: koord-manager takes what it is told, and the kernel's value follows from what a NodeSLO says by it.
func TestFollowStrategy(t *testing.T) {
	t.Parallel()
	parsed, problems := config.Parse(map[string]string{
		"resource-threshold-config": `{"clusterStrategy": ` + agentThreshold + `}`, burstKey: burstConfig(followHigh),
	}, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	spec, problems := parsed.NodeSLO(config.Node{Name: "node0"})
	if len(problems) > 0 || spec.CPUBurstStrategy == nil || spec.ResourceUsedThresholdWithBE == nil {
		t.Fatalf("%+v, %v", spec, problems)
	}
	if p := spec.CPUBurstStrategy.CPUBurstPercent; p == nil || *p != followHigh {
		t.Errorf("%+v", spec.CPUBurstStrategy)
	}
	if low, high := burstOf(followLow), burstOf(followHigh); low != 25_000 || high != 50_000 {
		t.Errorf("bursts of %d and %d µs", low, high)
	}
}

// TestTellFollowed: the slowest change is judged, and the kernel's median too.
func TestTellFollowed(t *testing.T) {
	t.Parallel()
	const s = time.Second
	fast, usual := followed{percent: 50, written: s / 10, kernel: s, told: 2 * s}, followed{percent: 25, written: s / 5, kernel: 3 * s, told: 4 * s}
	late, silent := usual, fast
	late.kernel, silent.told = 11*s, 12*s
	names := []string{"ConfigMap changed → in the kernel, median", "ConfigMap changed → in the kernel, max", "ConfigMap changed → NodeSLO.status says so, max"}
	for name, c := range map[string]struct {
		all  []followed
		want []string // verdicts
	}{
		"fast":   {[]followed{fast, usual, fast}, []string{"ok", "ok", "ok"}},
		"usual":  {[]followed{fast, usual, usual}, []string{"missed", "ok", "ok"}},
		"late":   {[]followed{fast, late, fast}, []string{"ok", "missed", "ok"}},
		"silent": {[]followed{fast, silent, fast}, []string{"ok", "ok", "missed"}},
	} {
		r := &report{}
		tellFollowed(r, c.all)
		got, want := map[string]string{}, map[string]string{}
		for _, f := range r.figures {
			if f.goal != "" {
				got[f.name] = f.verdict
			}
		}
		for i, figure := range names {
			want[figure] = c.want[i]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	const want = "to 25 %: NodeSLO written after 200 ms, in the kernel after 3.00 s (read 0.00 µs after the read before), status says so after 4.00 s"
	if got := usual.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFollowOptions(t *testing.T) {
	t.Parallel()
	if _, err := parse([]string{"-follow-rounds", "0"}, &bytes.Buffer{}); err == nil {
		t.Error("no round is taken")
	}
	o, err := parse([]string{"-only", "follow"}, &bytes.Buffer{})
	if err != nil || o.follow.rounds != 20 {
		t.Errorf("%+v, %v", o.follow, err)
	}
}
