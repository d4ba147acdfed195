// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// What the demo writes into slo-controller-config says what its screen says, and the node can follow it.
func TestConfigMapIsValid(t *testing.T) {
	t.Parallel()
	c, problems := config.Parse(map[string]string{keyColocation: colocationText(100), keyThreshold: thresholdText}, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	node := config.Node{Name: "node0"}
	lent, _ := c.Colocation(node)
	if !lent.Enable || lent.CPUReclaimPercent != 100 || lent.Report != slo.MinReport || lent.Aggregate != slo.MinAggregate {
		t.Errorf("colocation %+v", lent)
	}
	spec, _ := c.NodeSLO(node)
	got := spec.ResourceUsedThresholdWithBE
	if got == nil || !*got.Enable || *got.CPUSuppressThresholdPercent != 80 || *got.CPUSuppressPolicy != strategy.SuppressCFSQuota {
		t.Errorf("threshold %+v", got)
	}
}

// The texts are objects, and the Deployment's pod knows nothing of Koordinator but has the label of the profile.
func TestClusterObjects(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]string{webText(8): "Pod", crunchText(400, 8): "Deployment", profileText: "ClusterColocationProfile"} {
		o, err := cluster.ParseObject([]byte(text))
		if err != nil || o.Str("kind") != kind {
			t.Errorf("%s: %v, %v", kind, o, err)
		}
		if knows := strings.Contains(text, protocol.DomainKoordinator); knows != (kind != "Deployment") {
			t.Errorf("%s names Koordinator: %t", kind, knows)
		}
	}
	web, err := cluster.ParseObject([]byte(webText(8)))
	if err != nil || web.Str("spec", "containers", 0, "resources", "limits", "cpu") != "4" || !strings.Contains(web.Str("spec", "containers", 0, "command", 2), "$i -lt 4 ]") {
		t.Errorf("%s, %v", web.Compact("spec"), err)
	}
	crunch, err := cluster.ParseObject([]byte(crunchText(400, 8)))
	profile, err2 := cluster.ParseObject([]byte(profileText))
	labels := crunch.Compact("spec", "template", "metadata", "labels")
	if err != nil || err2 != nil || labels != profile.Compact("spec", "selector", "matchLabels") ||
		crunch.Str("spec", "template", "spec", "containers", 0, "resources", "limits", "cpu") != "400m" {
		t.Errorf("labels %s, %s; %v, %v", labels, crunch.Compact("spec", "template"), err, err2)
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	for lent, want := range map[int]int{-5: 0, 0: 0, 199: 0, 200: 100, 349: 150, 1530: 750, 60000: 30000} {
		if got := ask(lent); got != want {
			t.Errorf("of %d: %d, want %d", lent, got, want)
		}
	}
}

func TestUsageAndCores(t *testing.T) {
	t.Parallel()
	metric, err := cluster.ParseObject([]byte(`status: {podsMetric: [{namespace: other, name: web, podUsage: {resources: {cpu: "9"}}},
  {namespace: shop, name: web, podUsage: {resources: {cpu: 250m}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := usage(metric, "web"); got != 0.25 {
		t.Errorf("web uses %v", got)
	}
	if got := usage(metric, "db"); !math.IsNaN(got) {
		t.Errorf("db uses %v", got)
	}
	if got := cores(cluster.Object{"b": "1500"}, batchUnit, "b"); got != 1.5 {
		t.Errorf("batch-cpu 1500 is %v", got)
	}
}

func TestAdmitted(t *testing.T) {
	t.Parallel()
	template, err := cluster.ParseObject([]byte(`{metadata: {labels: {app: crunch}}, spec: {containers: [{resources: {requests: {cpu: 500m}}}]}}`))
	pod, err2 := cluster.ParseObject([]byte(`{metadata: {labels: {koordinator.sh/qosClass: BE}}, spec: {priority: 5000, priorityClassName: koord-batch,
  containers: [{resources: {requests: {kubernetes.io/batch-cpu: "500"}, limits: {kubernetes.io/batch-cpu: "500"}}}]}}`))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	want := [][]string{
		{"label qosClass", "-", "BE"}, {"priorityClassName", "-", "koord-batch"}, {"priority", "-", "5000"},
		{"requests", "cpu: 500m", "kubernetes.io/batch-cpu: 500"}, {"limits", "-", "kubernetes.io/batch-cpu: 500"},
	}
	if d := cmp.Diff(want, admitted(template, pod)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Admission and the kernel are held to what the profile says, and each slip is found.
func TestMadeBatch(t *testing.T) {
	t.Parallel()
	deployment, err := cluster.ParseObject([]byte(crunchText(400, 8)))
	if err != nil {
		t.Fatal(err)
	}
	inner, _ := deployment.At("spec", "template").(map[string]any)
	const right = `{metadata: {name: crunch, labels: {koordinator.sh/qosClass: BE}, annotations: {node.koordinator.sh/extended-resource-spec:
  '{"containers":{"work":{"limits":{"kubernetes.io/batch-cpu":"400","kubernetes.io/batch-memory":"128Mi"}}}}'}},
 spec: {priority: 5000, priorityClassName: koord-batch, containers: [{name: work, resources: {limits: {kubernetes.io/batch-cpu: "400", kubernetes.io/batch-memory: 128Mi}}}]}}`
	made := func(from, to string) (cluster.Object, error) {
		if !strings.Contains(right, from) {
			t.Fatalf("no %q", from)
		}
		o, err := cluster.ParseObject([]byte(strings.Replace(right, from, to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return o, madeBatch(inner, o)
	}
	pod, err := made("", "")
	if err != nil {
		t.Error(err)
	}
	for from, to := range map[string]string{
		"qosClass: BE": "qosClass: LS", "priority: 5000": "priority: 0", `"kubernetes.io/batch-cpu":"400"`: `"kubernetes.io/batch-cpu":"300"`,
		`kubernetes.io/batch-cpu: "400"`: `cpu: 400m, kubernetes.io/batch-cpu: "400"`, "kubernetes.io/batch-memory: 128Mi": "memory: 128Mi", `"work"`: `"other"`,
		"extended-resource-spec": "extended-resources",
	} {
		if _, err := made(from, to); err == nil {
			t.Errorf("%s in place of %s passes", to, from)
		}
	}
	at := place{pod: "shop/crunch", container: "work"}
	for name, tc := range map[string]struct {
		cpu, memory, cpuFile, memoryFile string
		ok                               bool
	}{
		"v1":            {"40000", "134217728", "cpu.cfs_quota_us", "memory.limit_in_bytes", true},
		"v2":            {"40000 100000", "134217728", "cpu.max", "memory.max", true},
		"no quota":      {"-1", "134217728", "cpu.cfs_quota_us", "memory.limit_in_bytes", false},
		"no limit":      {"40000 100000", "max", "cpu.max", "memory.max", false},
		"nothing there": {"40000", "134217728", "cpu.shares", "memory.limit_in_bytes", false},
	} {
		got := reading{}
		for file, value := range map[string]string{tc.cpuFile: tc.cpu, tc.memoryFile: tc.memory} {
			at.file = file
			got[at] = value
		}
		if err := heldBy(got, at, pod); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lending plays a run in which the node lends less with its second report under the load, and again what it did with the second after
// it.
func lending() *recording {
	r := &recording{lends: true}
	return play(r, func(at time.Duration) sample {
		s := sample{at: at, be: 1, may: 1, lent: 1.5}
		switch {
		case r.went != 0 && at < r.went+60*time.Second:
			s.lent = 0.5
		case r.went == 0 && r.came != 0:
			s.ls, s.may = 1, 0.2
			if at > r.came+50*time.Second {
				s.lent = 0.5
			}
		}
		return s
	})
}

// The load stays until the node lends less, and the recording goes on until it lends as before.
func TestLending(t *testing.T) {
	t.Parallel()
	r := lending()
	lower, again := r.lending()
	if lower.Round(time.Second) != 50*time.Second || again.Round(time.Second) != 60*time.Second || r.verdict() != nil {
		t.Errorf("fell after %s, back after %s, %v", lower, again, r.verdict())
	}
	if text := r.lentText(); !strings.Contains(text, "fell 50 s after") || !strings.Contains(text, "back 60 s after") {
		t.Error(text)
	}
	// A node that lends the same all the time, or never more again, is no closed loop.
	for _, lent := range []func(at time.Duration) float64{
		func(time.Duration) float64 { return 1 },
		func(at time.Duration) float64 {
			if at > r.came {
				return 0.5
			}
			return 1
		},
	} {
		bad := *r
		bad.samples = slices.Clone(r.samples)
		for i := range bad.samples {
			bad.samples[i].lent = lent(bad.samples[i].at)
		}
		if err := bad.verdict(); err == nil || !strings.Contains(err.Error(), "the node") {
			t.Error(err)
		}
	}
	var out bytes.Buffer
	s := &screen{out: &out, width: 100}
	r.plot(s)
	r.table(s)
	for _, want := range []string{"\n  batch-cpu   #", "BE may use  batch-cpu\n", "1.00     1.00     0.20        0.50\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	// A node whose batch-cpu stays as it is does not keep the demo for ever, and is told of.
	still := &recording{lends: true}
	for i := 0; still.next0(i) != end; i++ {
		if i > calmFor+2*mostLent {
			t.Fatal("no end")
		}
	}
	if text := still.lentText(); !strings.Contains(text, "did not fall") {
		t.Error(text)
	}
}

// next0 adds a sample in which nothing changes.
func (r *recording) next0(i int) change {
	at := time.Duration(i+1) * every
	r.samples = append(r.samples, sample{at: at, may: 1, lent: 1})
	c := r.next()
	switch c {
	case loadComes:
		r.came = at + 1
	case loadGoes:
		r.went = at + 1
	case end, goOn:
	}
	return c
}

// The figures of the time axis have room.
func TestAxisStep(t *testing.T) {
	t.Parallel()
	for per, want := range map[int]time.Duration{1: 5 * time.Second, 2: 5 * time.Second, 3: 10 * time.Second, 5: 10 * time.Second, 6: 20 * time.Second} {
		if got := axisStep(per); got != want {
			t.Errorf("%d samples a column: %s, want %s", per, got, want)
		}
	}
}
