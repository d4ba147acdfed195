// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package slo_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// manifest is a file of testdata as JSON.
func manifest(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = yaml.YAMLToJSON(data); err != nil {
		t.Fatal(err)
	}
	return data
}

// roundTrip reads and writes; what comes out must say the same, or a field is missing in the types.
func roundTrip[T any](t *testing.T, raw []byte) T {
	t.Helper()
	var o T
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(raw, &want), json.Unmarshal(back, &got)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	return o
}

func TestManifestsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"m05-nodeslo.yaml", "m06a-nodeslo-memory-tuning.yaml"} {
		if o := roundTrip[slo.NodeSLO](t, manifest(t, file)); o.APIVersion != slo.APIVersion || o.Kind != slo.KindNodeSLO {
			t.Errorf("%s: %s %s", file, o.APIVersion, o.Kind)
		}
	}
	for _, file := range []string{"m07-nodemetric.yaml", "nodemetric-upstream.yaml"} {
		if o := roundTrip[slo.NodeMetric](t, manifest(t, file)); o.APIVersion != slo.APIVersion || o.Kind != slo.KindNodeMetric {
			t.Errorf("%s: %s %s", file, o.APIVersion, o.Kind)
		}
	}
}

func TestDecodeNodeSLO(t *testing.T) {
	t.Parallel()
	got, err := slo.DecodeNodeSLO(manifest(t, "m05-nodeslo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e := strategy.Effective(got.Spec)
	th, be, lsr := e.ResourceUsedThresholdWithBE, e.ResourceQOSStrategy.BEClass, e.ResourceQOSStrategy.LSRClass
	for name, c := range map[string][2]int64{
		"cpu-suppress-percent":               {*th.CPUSuppressThresholdPercent, 65},
		"cpu-evict-threshold-percent":        {*th.CPUEvictPSIThresholdPercent, 85},
		"memory-evict-threshold-percent":     {*th.MemoryEvictThresholdPercent, 75},
		"memory-request-utilization-percent": {*th.MemoryRequestUtilizationPercent, 80},
		"BE identity":                        {*be.CPUQOS.GroupIdentity, -1},
		"LSR identity":                       {*lsr.CPUQOS.GroupIdentity, 0},
		"LSR throttling":                     {*lsr.MemoryQOS.ThrottlingPercent, 120},
		"BE watermark":                       {*be.MemoryQOS.WmarkMinAdj, 50},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %d, want %d", name, c[0], c[1])
		}
	}
	if !*th.Enable || *lsr.BlkIOQOS.Enable {
		t.Error("enable was not read")
	}
	got, err = slo.DecodeNodeSLO(manifest(t, "m06a-nodeslo-memory-tuning.yaml"))
	if err != nil || *got.Spec.ResourceQOSStrategy.BEClass.MemoryQOS.ThrottlingPercent != 80 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestDecodeNodeSLOObjects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in        string
		want      string
		conflicts int
	}{
		"generation":       {`{"metadata":{"name":"n","uid":"u","generation":7},"spec":{}}`, "", 0},
		"no spec":          {`{"metadata":{"name":"n"}}`, "", 0},
		"newer fields":     {`{"spec":{"resourceQOSStrategy":{"beClass":{"cpuQOS":{"enable":true,"quantumQOS":1}}},"wormholes":[]},"status":{"later":{}},"newer":1}`, "", 0},
		"out of range":     {`{"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":165}}}`, "cpuSuppressThresholdPercent", 0},
		"wrong type":       {`{"spec":{"resourceUsedThresholdWithBE":{"enable":"yes"}}}`, "enable", 0},
		"not JSON":         {`{`, "unexpected end", 0},
		"both spellings":   {`{"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":60},"resourceThresholdStrategy":{"thresholds":{"cpu-suppress-percent":65}}}}`, "", 1},
		"both in the same": {`{"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":65},"resourceThresholdStrategy":{"thresholds":{"cpu-suppress-percent":65}}}}`, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := slo.DecodeNodeSLO([]byte(c.in))
			if c.want != "" {
				if !errors.Is(err, slo.ErrInvalid) || !strings.Contains(err.Error(), c.want) || got.Spec.ResourceUsedThresholdWithBE != nil {
					t.Errorf("%+v %v", got, err)
				}
				return
			}
			if err != nil || len(got.Conflicts) != c.conflicts {
				t.Errorf("conflicts %v, error %v", got.Conflicts, err)
			}
			if c.conflicts > 0 && *got.Spec.ResourceUsedThresholdWithBE.CPUSuppressThresholdPercent != 60 {
				t.Error("the canonical spelling does not win")
			}
			if name == "generation" && (got.Generation != 7 || got.UID != "u") {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	def := slo.DefaultCollect()
	with := func(edit func(*slo.Collect)) slo.Collect {
		c := slo.DefaultCollect()
		edit(&c)
		return c
	}
	for name, c := range map[string]struct {
		in   string
		want slo.Collect
	}{
		"nothing":   {`{}`, def},
		"documents": {string(manifest(t, "m07-nodemetric.yaml")), with(func(c *slo.Collect) { c.Containers = true })},
		"upstream":  {string(manifest(t, "nodemetric-upstream.yaml")), with(func(c *slo.Collect) { c.Memory = slo.MemoryWithPageCache })},
		"changed to 30": {`{"spec":{"collectionIntervalSeconds":30}}`, with(func(c *slo.Collect) {
			c.Report, c.Containers = 30*time.Second, true
		})},
		"containers by policy": {`{"spec":{"metricCollectPolicy":{"containerMetrics":true,"aggregateDurationSeconds":60,"nodeAggregatePolicy":{"durations":["1m","1m0s"]}}}}`, with(func(c *slo.Collect) {
			c.Aggregate, c.Containers, c.Windows = time.Minute, true, []time.Duration{time.Minute}
		})},
		"containers off": {`{"spec":{"collectionIntervalSeconds":60,"metricCollectPolicy":{"containerMetrics":false,"reportIntervalSeconds":60}}}`, def},
		"spellings differ": {`{"spec":{"collectionIntervalSeconds":60,"metricCollectPolicy":{"reportIntervalSeconds":90}}}`, with(func(c *slo.Collect) {
			c.Report, c.Containers = 90*time.Second, true
			c.Problems = []string{"metricCollectPolicy.reportIntervalSeconds and collectionIntervalSeconds differ: 90 counts"}
		})},
		"out of bounds": {`{"spec":{"metricCollectPolicy":{"aggregateDurationSeconds":1,"reportIntervalSeconds":-9223372036854775808,
			"nodeMemoryCollectPolicy":"all","nodeAggregatePolicy":{"durations":["0s","2h","5m"]}}}}`, with(func(c *slo.Collect) {
			c.Aggregate, c.Report, c.Windows = time.Minute, 30*time.Second, []time.Duration{5 * time.Minute}
			c.Problems = []string{
				"aggregateDurationSeconds: 1 is held at 60", "reportIntervalSeconds: -9223372036854775808 is held at 30", `nodeMemoryCollectPolicy: unknown value "all"`,
				"nodeAggregatePolicy: 0s is left out, want 1s..30m0s", "nodeAggregatePolicy: 2h0m0s is left out, want 1s..30m0s",
			}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := slo.DecodeNodeMetric([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(slo.Asked{Collect: c.want}, got); d != "" {
				t.Error(d)
			}
		})
	}
	got, err := slo.DecodeNodeMetric([]byte(`{"metadata":{"name":"node-001","uid":"u","generation":7},"status":{"updateTime":5}}`))
	if d := cmp.Diff(slo.Asked{UID: "u", Collect: def}, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	for _, bad := range []string{`{`, `{"spec":{"collectionIntervalSeconds":"60"}}`, `{"spec":{"metricCollectPolicy":{"nodeAggregatePolicy":{"durations":[5]}}}}`} {
		if c, err := slo.DecodeNodeMetric([]byte(bad)); !errors.Is(err, slo.ErrInvalid) {
			t.Errorf("%s: %+v %v", bad, c, err)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	var o struct {
		A, B slo.Time
		D    slo.Duration
	}
	in := `{"A":"2026-01-02T04:04:05.5+01:00","B":null,"D":"90s"}`
	if err := json.Unmarshal([]byte(in), &o); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(o)
	if want := `{"A":"2026-01-02T03:04:05Z","B":null,"D":"1m30s"}`; err != nil || string(back) != want {
		t.Errorf("%s %v, want %s", back, err, want)
	}
	for _, bad := range []string{`{"A":5}`, `{"A":"noon"}`, `{"A":"0000-01-01T00:00:00+01:00"}`, `{"A":"9999-12-31T23:59:59-01:00"}`, `{"D":90}`, `{"D":"long"}`} {
		if err := json.Unmarshal([]byte(bad), &o); err == nil {
			t.Errorf("%s accepted", bad)
		}
	}
}

// FuzzDecodeNodeSLO: what is accepted is within its ranges and says the same when it is written and read again; what is kept of its
// owners is within its bounds.
func FuzzDecodeNodeSLO(f *testing.F) {
	f.Add(manifest(f, "m05-nodeslo.yaml"))
	f.Add(manifest(f, "m06a-nodeslo-memory-tuning.yaml"))
	f.Add(object(`{"cpuBurstStrategy":{"policy":"auto"},"extensions":{"x":1},"hostApplications":[{"name":"a"}]}`,
		entry("a\u001b", "Update", noon, `{"f:cpuBurstStrategy":{".":{},"f:policy":{}},"f:extensions":{"f:x":{"f:y":{}}},"f:hostApplications":{"v:1":{}}}`)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := slo.DecodeNodeSLO(raw)
		if err != nil {
			return
		}
		checkOverrides(t, got.Overrides)
		if errs := strategy.Validate(got.Spec); len(errs) > 0 {
			t.Fatal(errs)
		}
		text, err := json.Marshal(got.Spec)
		if err != nil {
			t.Fatal(err)
		}
		var again strategy.Spec
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

// FuzzDecodeNodeMetric: whatever the object, intervals stay within bounds.
func FuzzDecodeNodeMetric(f *testing.F) {
	f.Add(manifest(f, "m07-nodemetric.yaml"))
	f.Add(manifest(f, "nodemetric-upstream.yaml"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := slo.DecodeNodeMetric(raw)
		if err != nil {
			return
		}
		if c.Report < slo.MinReport || c.Report > slo.MaxReport || c.Aggregate < slo.MinAggregate || c.Aggregate > slo.MaxWindow || len(c.Windows) > 8 {
			t.Fatalf("%+v", c)
		}
	})
}

// FuzzTimes: whatever is read is written and read as the same.
func FuzzTimes(f *testing.F) {
	for _, s := range []string{`"2026-01-02T04:04:05.5+01:00"`, `"0000-01-01T00:00:00+01:00"`, `"9999-12-31T23:59:59-01:00"`, `null`, `"90s"`, `"5m0s"`, `5`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var at, again slo.Time
		if at.UnmarshalJSON(data) == nil {
			text, err := json.Marshal(at)
			if err == nil {
				err = again.UnmarshalJSON(text)
			}
			if err != nil || !at.Equal(again.Time) {
				t.Fatalf("%s reads as %v, then as %v (%v)", data, at, again, err)
			}
		}
		var d, same slo.Duration
		if d.UnmarshalJSON(data) == nil {
			text, err := json.Marshal(d)
			if err == nil {
				err = same.UnmarshalJSON(text)
			}
			if err != nil || d != same {
				t.Fatalf("%s reads as %v, then as %v (%v)", data, d, same, err)
			}
		}
	})
}
