// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/unit"
)

var topNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func got[T any](v T) *T { return &v }

func usage(milli unit.MilliCPU, bytes unit.Bytes) status.Usage {
	return status.Usage{CPU: &milli, Memory: &bytes}
}

const (
	mib unit.Bytes = 1 << 20
	gib unit.Bytes = 1 << 30
)

// node001 is the node of the user's documents' NodeMetric: BE 20 and LS 44 of 64 cores used.
func node001() *status.Agent {
	amounts := func(milli unit.MilliCPU, bytes unit.Bytes) status.Amounts {
		return status.Amounts{CPU: milli, Memory: bytes}
	}
	return &status.Agent{
		Sources: []status.Source{
			{Name: "pods", State: status.StateActive},
			{Name: "nodeslo", State: status.StateDegraded, Reason: "API server away for 3m; the strategy of generation 7 stays", Since: topNow.Add(-3 * time.Minute)},
		},
		Collectors: []status.Source{
			{Name: "node", State: status.StateActive},
			{Name: "cpi", State: status.StateUnsupported, Reason: "perf_event_open: permission denied"},
		},
		Loops: []status.Loop{
			{Name: "suppress", State: status.StateActive, At: topNow.Add(-time.Second), Decision: "65% of 64 CPUs - 44 (LS pods) - 0.4 (system) = -2.8: 2 CPUs 0-1"},
			{Name: "evict", State: status.StateObserve, At: topNow.Add(-2 * time.Minute), Decision: "memory 96 GiB of 128 GiB, threshold 70%"},
			{Name: "report", At: topNow.Add(-40 * time.Second), Err: "update NodeMetric node-001: 409 conflict"},
		},
		Node: status.Node{
			Name: "node-001", Capacity: amounts(64000, 128*gib), Batch: amounts(20500, 30*gib), Used: usage(64000-400, 100*gib),
			System: usage(400, 2*gib), Requests: amounts(58250, 96*gib),
			Pressure: status.Pressure{CPU: got(unit.Fraction(0.0213)), Memory: got(unit.Fraction(0)), IO: got(unit.Fraction(0.48))},
		},
		Classes: []status.Class{
			{Name: "LSE", Pods: 1, Used: usage(4000, 8*gib), Requests: amounts(4000, 8*gib)},
			{Name: "LSR", Used: usage(0, 0)},
			{Name: "LS", Pods: 40, Used: usage(40000, 62*gib), Requests: amounts(34250, 60*gib)},
			{Name: "BE", Pods: 12, Used: usage(20000, 30*gib), Requests: amounts(20000, 28*gib)},
			{Name: "SYSTEM", Used: usage(0, 0)},
			{Name: "none", Pods: 2},
		},
		Pods: []status.Pod{
			{
				Namespace: "default", Name: "spark-executor-1", UID: "u1", Class: "BE", Priority: "koord-batch", Used: usage(12500, 20*gib),
				Requests: amounts(12000, 16*gib), Limits: amounts(16000, 24*gib), Throttled: got(unit.Fraction(0.37)),
				Pressure: status.Pressure{CPU: got(unit.Fraction(0.61)), Memory: got(unit.Fraction(0.002)), IO: got(unit.Fraction(0))},
			},
			{Namespace: "web", Name: "shop-5d", UID: "u2", Class: "LS", Used: usage(3210, 700*mib), Requests: amounts(2000, gib)},
			{Namespace: "web", Name: "cart \x1b[31mred", UID: "u3", Class: "LS", Used: usage(3210, 1536*mib)},
			{Namespace: "kube-system", Name: "new", UID: "u4", Class: "none"},
		},
		PodsLeftOut: 3,
		BE: status.BE{
			Mode: "cpuset", CPUs: "0-1", Limit: got(unit.MilliCPU(2000)), Allowance: got(unit.MilliCPU(-2800)),
			Reason: "65% of 64 CPUs - 44 (LS pods) - 0.4 (system) = -2.8: 2 CPUs 0-1; CPU pressure of LS pods 2.1%, growth waits until it is calm",
			Since:  topNow.Add(-time.Second),
		},
		Evictions: []status.Eviction{
			{Time: topNow.Add(-time.Hour), Namespace: "default", Name: "spark-executor-7", Class: "BE", Feature: "BEMemoryEvict", Outcome: status.OutcomeRefused, Reason: "disruption budget spark"},
			{Time: topNow.Add(-90 * time.Second), Namespace: "default", Name: "spark-executor-9", Class: "BE", Feature: "BEMemoryEvict", Outcome: status.OutcomeEvicted, Reason: "memory 75 GiB of 100 GiB, threshold 70: release 7 GiB"},
		},
	}
}

// topHost has koordlet's status file; a process that lives is this test's own.
func topHost(t *testing.T, alive bool) string {
	t.Helper()
	return topHostOf(t, alive, node001())
}

func topHostOf(t *testing.T, alive bool, agent *status.Agent) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "run/koord-rt"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := status.Status{
		Program: "koordlet", ProgramVersion: "koordlet v0.3.0 (abc)", Start: topNow.Add(-76 * time.Hour), Written: topNow.Add(-2 * time.Second),
		Agent: agent,
	}
	if err := status.Write(filepath.Join(dir, "run/koord-rt"), "koordlet", s); err != nil {
		t.Fatal(err)
	}
	if alive {
		if err := os.Symlink("/proc", filepath.Join(dir, "proc")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func runTop(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command(&env{out: &out, err: &out, version: run.Version{Program: "koordctl"}, now: func() time.Time { return topNow }})
	cmd.SetArgs(append([]string{"top", "--host-root", dir}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTop(t *testing.T) {
	t.Parallel()
	dir := topHost(t, true)
	for name, args := range map[string][]string{
		"top": nil, "top-node": {"node"}, "top-qos": {"qos"}, "top-pods": {"pods", "-n", "3"},
		"top-pods-class": {"pods", "--class", "ls", "--sort", "memory"}, "top-json": {"-o", "json"}, "top-pods-json": {"pods", "-n", "1", "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := runTop(t, dir, args...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, out)
			if strings.Contains(out, "\x1b") {
				t.Error("a pod's name reaches the terminal unchanged")
			}
		})
	}
	out, err := runTop(t, topHost(t, false), "qos")
	if err != nil || !strings.Contains(out, "koordlet v0.3.0 (abc) is NOT RUNNING since 2026-05-01T11:59:58Z") {
		t.Errorf("dead: %v\n%s", err, out)
	}
}

// A node without pods says so, and why none are known.
func TestTopWithoutPods(t *testing.T) {
	t.Parallel()
	why := "neither kubelet nor API server is configured"
	for want, source := range map[string]status.Source{
		"\nno pods\n": {Name: "pods", State: status.StateActive}, "\nno pods are known: " + why + "\n": {Name: "pods", State: status.StateOff, Reason: why},
	} {
		out, err := runTop(t, topHostOf(t, true, &status.Agent{Sources: []status.Source{source}}), "pods")
		if err != nil || !strings.HasSuffix(out, want) {
			t.Errorf("%v, want %q at the end of:\n%s", err, want, out)
		}
	}
}

func TestTopWithoutAgentAndBadFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runDir := filepath.Join(dir, "run/koord-rt")
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := status.Write(runDir, "nri", status.Status{}); err != nil {
		t.Fatal(err)
	}
	if _, err := runTop(t, dir); !errors.Is(err, errNoAgent) {
		t.Errorf("without an agent: %v", err)
	}
	if err := os.WriteFile(filepath.Join(runDir, "status-koordlet.json"), []byte(`{"version":9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runTop(t, dir); !errors.Is(err, errNoAgent) || !strings.Contains(err.Error(), "format version 9") {
		t.Errorf("with a file of another release: %v", err)
	}
	for _, args := range [][]string{{"nodes"}, {"pods", "--sort", "io"}, {"pods", "-n", "-1"}, {"-w", "--interval", "1ms"}, {"node", "qos"}} {
		if out, err := runTop(t, topHost(t, true), args...); err == nil {
			t.Errorf("%v accepted:\n%s", args, out)
		}
	}
}

// TestTopJSONListsAll: what a program reads is cut by -n only, and says by how much, as the table does.
func TestTopJSONListsAll(t *testing.T) {
	t.Parallel()
	a := node001()
	for i := len(a.Pods); i < 60; i++ {
		a.Pods = append(a.Pods, status.Pod{Namespace: "more", Name: fmt.Sprint("p", i), Class: "BE"})
	}
	dir := topHostOf(t, true, a)
	for _, c := range []struct {
		args           []string
		listed, cut    int
		first, inTable string
	}{
		{nil, 60, 0, "spark-executor-1", "20 of 60 pods; -n 0 lists all"},
		{[]string{"-n", "0"}, 60, 0, "spark-executor-1", ""},
		{[]string{"-n", "20"}, 20, 40, "spark-executor-1", "20 of 60 pods; -n 0 lists all"},
		{[]string{"--class", "LS", "--sort", "memory", "--rows", "1"}, 1, 1, "cart \x1b[31mred", "1 of 2 pods; -n 0 lists all"},
	} {
		var got struct {
			Pods          []status.Pod `json:"pods"`
			PodsNotListed int          `json:"podsNotListed"`
			PodsLeftOut   int          `json:"podsLeftOut"`
		}
		out, err := runTop(t, dir, append([]string{"pods", "-o", "json"}, c.args...)...)
		if err == nil {
			err = json.Unmarshal([]byte(out), &got)
		}
		if err != nil || len(got.Pods) != c.listed || got.Pods[0].Name != c.first || got.PodsNotListed != c.cut || got.PodsLeftOut != 3 {
			t.Errorf("%v: %d pods, %d not listed, %d left out, %v", c.args, len(got.Pods), got.PodsNotListed, got.PodsLeftOut, err)
		}
		if out, err = runTop(t, dir, append([]string{"pods"}, c.args...)...); err != nil || !strings.Contains(out, c.inTable) ||
			strings.Contains(out, "lists all") != (c.inTable != "") {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
}

func TestTopJSONIsOneLineEachInWatch(t *testing.T) {
	t.Parallel()
	dir := topHost(t, true)
	synctest.Test(t, func(t *testing.T) { watchJSON(t, dir) })
}

func watchJSON(t *testing.T, dir string) {
	ctx, cancel := context.WithCancel(t.Context())
	lines := 0
	out := writerFunc(func(b []byte) (int, error) {
		var v struct {
			Alive bool         `json:"alive"`
			Pods  []status.Pod `json:"pods"`
		}
		if err := json.Unmarshal(b, &v); err != nil || !v.Alive || len(v.Pods) != 4 {
			t.Errorf("%v in %q", err, b)
		}
		if lines++; lines == 2 {
			cancel()
		}
		return len(b), nil
	})
	cmd := command(&env{out: out, err: out})
	cmd.SetArgs([]string{"top", "pods", "-o", "json", "-w", "--interval", "500ms", "--host-root", dir})
	if err := cmd.ExecuteContext(ctx); err != nil || lines != 2 {
		t.Errorf("%d lines: %v", lines, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWatchDrawsInPlaceAndLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		e := &env{out: &out, screen: func() screen { return screen{width: 8, height: 3} }}
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		start := time.Now()
		err := e.watch(ctx, 2*time.Second, func() (string, error) {
			switch n++; n {
			case 2:
				return "", errors.New("gone")
			case 3:
				cancel()
			}
			return fmt.Sprintf("%d\nlonger than the screen\nthree\nfour\n", n), nil
		})
		if err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		want := enter +
			home + "1" + clearLine + "\r\nlonger …" + clearLine + "\r\n…" + clearLine + clearRest +
			home + "koordct…" + clearLine + clearRest +
			home + "3" + clearLine + "\r\nlonger …" + clearLine + "\r\n…" + clearLine + clearRest +
			leave
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// Without a terminal there are no sequences, and what cannot be drawn at all is an error.
func TestWatchElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		e := &env{out: &out}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := e.watch(ctx, 2*time.Second, func() (string, error) { return "a\n", nil }); err != nil || out.String() != "a\na\n" {
			t.Errorf("%q %v", out.String(), err)
		}
		if err := e.watch(ctx, time.Second, func() (string, error) { return "", errNoAgent }); !errors.Is(err, errNoAgent) {
			t.Errorf("first picture: %v", err)
		}
	})
}

func TestFigures(t *testing.T) {
	t.Parallel()
	f := func(v float64) *unit.Fraction { return got(unit.Fraction(v)) }
	for want, have := range map[string]string{
		"····": bar(nil, 4), "░░░░": bar(f(0), 4), "▏░░░": bar(f(0.0001), 4), "██░░": bar(f(0.5), 4), "██▌░": bar(f(0.62), 4), "████": bar(f(7), 4),
		"-": cpuText(nil), "0": cpuText(got(unit.MilliCPU(0))), "0.05": cpuText(got(unit.MilliCPU(50))), "12.5": cpuText(got(unit.MilliCPU(12540))),
		"64": cpuText(got(unit.MilliCPU(64000))), "-2.80": cpuText(got(unit.MilliCPU(-2800))),
		"999 B": memoryText(got(unit.Bytes(999))), "1 MiB": memoryText(got(mib)), "1.5 GiB": memoryText(got(1536 * mib)), "100 GiB": memoryText(got(100 * gib)),
		"0 %": percent(f(0)), "0.1 %": percent(f(0.001)), "9.9 %": percent(f(0.0994)), "10 %": percent(f(0.0996)), "100 %": percent(f(1)),
		"0s": span(-time.Hour), "59s": span(59 * time.Second), "2m": span(2 * time.Minute), "3h12m": span(3*time.Hour + 12*time.Minute), "3d4h": span(76 * time.Hour),
	} {
		if want != have {
			t.Errorf("%q instead of %q", have, want)
		}
	}
}
