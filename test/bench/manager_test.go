// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// A report is a status of NodeMetric without an unknown field; usage follows the factor, but not what the system uses.
func TestReportOf(t *testing.T) {
	t.Parallel()
	o := managerOptions{nodes: 10, reported: 30}
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	read := func(factor float64) slov1alpha1.NodeMetricStatus {
		t.Helper()
		var patch []struct {
			Op, Path string
			Value    json.RawMessage
		}
		var out slov1alpha1.NodeMetricStatus
		if err := json.Unmarshal(reportOf(3, o, factor, now), &patch); err != nil || len(patch) != 1 || patch[0].Path != "/status" {
			t.Fatalf("%v, %v", patch, err)
		}
		d := json.NewDecoder(bytes.NewReader(patch[0].Value))
		d.DisallowUnknownFields()
		if err := d.Decode(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, z := read(1), read(1.5)
	// 18 LS pods of 400m, 12 BE pods of 500m, 1 CPU beside them.
	if got := a.NodeMetric.NodeUsage.Resources.Cpu().MilliValue(); got != 14200 || len(a.PodsMetric) != 30 || !a.UpdateTime.Time.Equal(now) {
		t.Errorf("node uses %d, %d pods at %s", got, len(a.PodsMetric), a.UpdateTime)
	}
	if got := z.NodeMetric.NodeUsage.Resources.Cpu().MilliValue(); got != 1000+13200*3/2 || !z.NodeMetric.SystemUsage.Resources.Cpu().Equal(*a.NodeMetric.SystemUsage.Resources.Cpu()) {
		t.Errorf("half as much again is %d", got)
	}
	// The pods of a report are those that there are.
	if pod := simulatedPod(3+10*7, o.nodes); a.PodsMetric[7].Name != pod.Str("metadata", "name") || string(a.PodsMetric[7].QoS) != pod.Str("metadata", "labels", "koordinator.sh/qosClass") {
		t.Errorf("%+v is not %s", a.PodsMetric[7], pod.Compact("metadata"))
	}
}

// A node's pods are of both classes.
func TestSimulatedPods(t *testing.T) {
	t.Parallel()
	classes := map[string]int{}
	for i := range 100 {
		if pod := simulatedPod(i, 10); pod.Str("spec", "nodeName") == nodeName(4) {
			classes[pod.Str("metadata", "labels", "koordinator.sh/qosClass")]++
		}
	}
	if classes["LS"] != 6 || classes["BE"] != 4 {
		t.Errorf("%v", classes)
	}
	if _, problems := config.Parse(map[string]string{"resource-threshold-config": spreadConfig(55)}, nil); len(problems) > 0 {
		t.Error(problems)
	}
}

// What is sent to the webhooks has no node and a label by which one profile selects it.
func TestReviewOf(t *testing.T) {
	t.Parallel()
	text, err := reviewOf(9)
	if err != nil {
		t.Fatal(err)
	}
	o, err := cluster.ParseObject(text)
	if err != nil || o.Str("request", "object", "metadata", "name") != "hook-9" || o.At("request", "object", "spec", "nodeName") != nil ||
		o.Str("request", "object", "metadata", "labels", "bench") != "7" {
		t.Errorf("%s, %v", o.Compact("request"), err)
	}
	var a answer
	for text, ok := range map[string]bool{
		`{"response":{"allowed":true,"patch":"YmF0Y2gtY3B1"}}`: true, `{"response":{"allowed":true}}`: false,
		`{"response":{"allowed":false,"patch":"YmF0Y2gtY3B1"}}`: false, `{"response":{"allowed":true,"patch":"YmF0Y2gtY3B1","warnings":["x"]}}`: false,
	} {
		a = answer{}
		if err := json.Unmarshal([]byte(text), &a); err != nil || (a.right(true) == nil) != ok {
			t.Errorf("%s: %v, %v", text, err, a.right(true))
		}
	}
}

func TestEachEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	w := &world{}
	var done atomic.Int64
	if err := w.each(t.Context(), fillers, 1000, func(context.Context, int) error { done.Add(1); return nil }); err != nil || done.Load() != 1000 {
		t.Errorf("%d, %v", done.Load(), err)
	}
	done.Store(0)
	broken := errors.New("broken")
	err := w.each(t.Context(), fillers, 1_000_000, func(_ context.Context, i int) error {
		done.Add(1)
		if i == 5 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || done.Load() == 1_000_000 {
		t.Errorf("%v after %d", err, done.Load())
	}
}

func TestReviewsCountsEveryPod(t *testing.T) {
	t.Parallel()
	o := managerOptions{hooks: 50, hookRate: 100_000}
	got, err := o.reviews(t.Context(), func(_ context.Context, i int) (out [len(hookPaths)]float64, err error) {
		out[1] = float64(i)
		return out, nil
	})
	if err != nil || len(got[0]) != 50 || got[1].sorted().quantile(1) != 49 {
		t.Errorf("%v, %v", got, err)
	}
	_, err = o.reviews(t.Context(), func(_ context.Context, i int) (out [len(hookPaths)]float64, err error) {
		if i == 7 {
			err = errors.New("refused")
		}
		return out, err
	})
	if err == nil || !strings.Contains(err.Error(), "1 of 50 pods failed") {
		t.Error(err)
	}
}

// Goals are judged by the worst of our legs; with a shorter updateTimeThresholdSeconds the goal of writes moves along.
func TestTellManagers(t *testing.T) {
	t.Parallel()
	good := term{name: wayOurs, length: time.Hour, reports: 60_000, spread: 20 * time.Second}
	good.cores, good.writes, good.memory = 0.5, 5000, resident{rss: 300 << 10, peak: 400 << 10}
	bad := good
	bad.cores, bad.writes, bad.memory.peak, bad.spread = 1.2, 15_000, 600<<10, 31*time.Second
	theirs := bad
	theirs.name = wayUpstream
	verdicts := func(o managerOptions, legs ...term) map[string]string {
		r := &report{}
		o.every = time.Minute
		tellManagers(r, o, legs)
		out := map[string]string{}
		for _, f := range r.figures {
			if f.verdict != "" {
				out[f.name] = f.verdict
			}
		}
		return out
	}
	names := []string{"CPU of a core, ours", "memory, ours", "API writes per node and hour, its lease apart, ours", "NodeSLO of every node after a change, ours"}
	normal := managerOptions{after: defaultAfter, nodes: goalNodes, pods: goalPods}
	for _, name := range names {
		if got := verdicts(normal, good, theirs, good)[name]; got != "ok" {
			t.Errorf("good: %s is %q", name, got)
		}
		if got := verdicts(normal, good, theirs, bad)[name]; got != "missed" {
			t.Errorf("one bad: %s is %q", name, got)
		}
	}
	if got := verdicts(managerOptions{after: time.Minute, nodes: goalNodes, pods: goalPods}, bad)[names[2]]; got != "ok" {
		t.Errorf("3 writes an hour where each may come after a minute: %q", got)
	}
	if n := len(verdicts(normal, theirs)); n != 0 {
		t.Errorf("upstream is judged %d times", n)
	}
	if n := len(verdicts(managerOptions{after: defaultAfter, nodes: goalNodes - 1, pods: goalPods}, good)); n != 0 {
		t.Errorf("%d goals are met by a cluster that is too small", n)
	}
	good.kinds = []string{"1 patch nodes/status", "600 update leases"}
	if n := good.aboutNodes(); n != 4400 {
		t.Errorf("%d writes beside the lease", n)
	}
	good.kinds = nil
	if good.perReport() != 0.03 || good.perMinute() != 1000 || good.perNodeHour(5000) != 1 {
		t.Errorf("%v %v %v", good.perReport(), good.perMinute(), good.perNodeHour(5000))
	}
}

func TestManagerOptions(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-nodes", "0"}, {"-manager-legs", "ours,theirs"}, {"-wobble", "1"}, {"-update-after", "0s"}, {"-hook-rate", "0"}, {"-report-every", "10ms"},
		{"-manager-settle", "59s"},
	} {
		if _, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	o, err := parse(nil, &bytes.Buffer{})
	if err != nil || o.manager.nodes != 5000 || o.manager.pods != 50_000 || !o.manager.needsUpstream() {
		t.Errorf("%+v, %v", o.manager, err)
	}
}
