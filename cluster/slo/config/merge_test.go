// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// asJSON shows a spec.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func node(labels, annotations map[string]string) Node {
	return Node{Name: "node-1", Labels: labels, Annotations: annotations}
}

// TestColocationDefaults repeats the table of koordinator-cluster.md §4.2.
func TestColocationDefaults(t *testing.T) {
	t.Parallel()
	got, problems := Default().Colocation(Node{})
	want := Colocation{
		Aggregate: 300 * time.Second, Report: 60 * time.Second, Memory: slo.MemoryWithoutPageCache,
		Windows:           []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Minute},
		CPUReclaimPercent: 60, MemoryReclaimPercent: 65, CPUPolicy: ByUsage, MemoryPolicy: ByUsage, Degrade: 15 * time.Minute,
		UpdateAfter: 300 * time.Second, DiffThreshold: 0.1, MidCPUPercent: 100, MidMemoryPercent: 100,
	}
	if !reflect.DeepEqual(got, want) || len(problems) > 0 {
		t.Errorf("have %+v (%v)\nwant %+v", got, problems, want)
	}
}

// TestColocationLayers: each layer wins over the one before: default, cluster, first matching entry, annotation, labels.
func TestColocationLayers(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{KeyColocation: `{
		"enable": true, "cpuReclaimThresholdPercent": 70, "degradeTimeMinutes": 5, "memoryCalculatePolicy": "request",
		"metricAggregatePolicy": {"durations": ["5m", "10m"]}, "batchCPUThresholdPercent": 80, "resourceDiffThreshold": 0.2,
		"nodeConfigs": [
			{"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuReclaimThresholdPercent": 75,
			 "metricAggregatePolicy": {"durations": ["15m"]}, "midReclaimMode": "static", "midStaticCPUReservedPercent": 10},
			{"name": "all", "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
			 "cpuReclaimThresholdPercent": 77, "degradeTimeMinutes": 7}
		]}`})
	for name, want := range map[string]struct {
		node     Node
		cpu      int64
		degrade  time.Duration
		windows  []time.Duration
		static   int64
		problems int
	}{
		"cluster":           {node: node(nil, nil), cpu: 70, degrade: 5 * time.Minute, windows: []time.Duration{5 * time.Minute, 10 * time.Minute}},
		"only the first":    {node: node(map[string]string{"pool": "a"}, nil), cpu: 75, degrade: 5 * time.Minute, windows: []time.Duration{15 * time.Minute}, static: 10},
		"the other":         {node: node(map[string]string{"pool": "b"}, nil), cpu: 77, degrade: 7 * time.Minute, windows: []time.Duration{5 * time.Minute, 10 * time.Minute}},
		"annotation":        {node: node(map[string]string{"pool": "b"}, map[string]string{"node.koordinator.sh/colocation-strategy": `{"cpuReclaimThresholdPercent": 80}`}), cpu: 80, degrade: 7 * time.Minute, windows: []time.Duration{5 * time.Minute, 10 * time.Minute}},
		"label":             {node: node(map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": "0.29"}, map[string]string{"node.koordinator.sh/colocation-strategy": `{"cpuReclaimThresholdPercent": 80}`}), cpu: 29, degrade: 5 * time.Minute, windows: []time.Duration{5 * time.Minute, 10 * time.Minute}},
		"annotation, wrong": {node: node(nil, map[string]string{"node.koordinator.sh/colocation-strategy": `{"degradeTimeMinutes": 3, "cpu": 80}`}), cpu: 70, degrade: 5 * time.Minute, windows: []time.Duration{5 * time.Minute, 10 * time.Minute}, problems: 1},
		"labels, wrong": {node: node(map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": "-1", "node.koordinator.sh/mid-static-cpu-reserved-ratio": "1.1",
			"node.koordinator.sh/memory-reclaim-ratio": "NaN"}, nil), cpu: 70, degrade: 5 * time.Minute, windows: []time.Duration{5 * time.Minute, 10 * time.Minute}, problems: 3},
	} {
		got, problems := c.Colocation(want.node)
		if got.CPUReclaimPercent != want.cpu || got.Degrade != want.degrade || !reflect.DeepEqual(got.Windows, want.windows) ||
			got.MidStatic != (want.static > 0) || got.MidStaticCPUPercent != want.static || len(problems) != want.problems {
			t.Errorf("%s: %+v, %v", name, got, problems)
		}
		if !got.Enable || got.MemoryPolicy != ByRequest || *got.BatchCPUPercent != 80 || got.BatchMemoryPercent != nil || got.DiffThreshold != 0.2 ||
			got.MemoryReclaimPercent != 65 {
			t.Errorf("%s: %+v: what the cluster or nobody says", name, got)
		}
	}
}

// TestColocationEnable: a node may be taken out, but not put in against the cluster's word.
func TestColocationEnable(t *testing.T) {
	t.Parallel()
	on, off := map[string]string{"node.koordinator.sh/colocation-strategy": `{"enable": true}`},
		map[string]string{"node.koordinator.sh/colocation-strategy": `{"enable": false}`}
	for text, want := range map[string][3]bool{ // of a node that says nothing, yes, no
		`{}`: {}, `{"enable": false}`: {}, `{"enable": true}`: {true, true, false},
		`{"enable": true, "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "enable": false}]}`: {false, true, false},
		`{"enable": false, "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "enable": true}]}`: {},
	} {
		c := parsed(t, map[string]string{KeyColocation: text})
		for i, annotations := range []map[string]string{nil, on, off} {
			if got, _ := c.Colocation(node(map[string]string{"a": "b"}, annotations)); got.Enable != want[i] {
				t.Errorf("%s, %v: enable is %v", text, annotations, got.Enable)
			}
		}
	}
}

// TestNodeSLO: one part per key, and nothing that nobody said.
func TestNodeSLO(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{
		KeyThreshold: `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60},
			"nodeStrategies": [{"name": "db", "nodeSelector": {"matchLabels": {"pool": "db"}}, "cpuSuppressThresholdPercent": 40}]}`,
		KeyQOS: `{"clusterStrategy": {"beClass": {"blkIOQOS": {"enable": true}, "memoryQOS": {"enable": true, "wmarkRatio": 80}}},
			"nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": "db"}}, "beClass": {"memoryQOS": {"wmarkRatio": 70}}}]}`,
		KeyBurst:  `{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": "db"}}, "policy": "auto"}]}`,
		KeySystem: `{"clusterStrategy": {"schedFeatures": {"A": true}, "totalNetworkBandwidth": "10G"}}`,
		KeyHostApplication: `{"applications": [{"name": "nginx", "qos": "LS"}, {"name": "agent"}],
			"nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "db"}}, "applications": [{"name": "mysql"}]}]}`,
	})
	for name, x := range map[string]struct {
		node Node
		want string
	}{
		"cluster": {node: node(nil, nil), want: `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":60},` +
			`"resourceQOSStrategy":{"beClass":{"memoryQOS":{"enable":true,"wmarkRatio":80},"blkioQOS":{"enable":true}}},` +
			`"systemStrategy":{"schedFeatures":{"A":true},"totalNetworkBandwidth":"10G"},` +
			`"hostApplications":[{"name":"nginx","qos":"LS"},{"name":"agent"}]}`},
		"node": {node: node(map[string]string{"pool": "db"}, map[string]string{"node.koordinator.sh/network-bandwidth": "25G"}),
			want: `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":40},` +
				`"resourceQOSStrategy":{"beClass":{"memoryQOS":{"enable":true,"wmarkRatio":70},"blkioQOS":{"enable":true}}},` +
				`"cpuBurstStrategy":{"policy":"auto"},` +
				`"systemStrategy":{"schedFeatures":{"A":true},"totalNetworkBandwidth":"25G"},` +
				`"hostApplications":[{"name":"mysql"}]}`},
	} {
		got, problems := c.NodeSLO(x.node)
		if text := asJSON(t, got); text != x.want || len(problems) > 0 {
			t.Errorf("%s: %v\nhave %s\nwant %s", name, problems, text, x.want)
		}
	}
	if got, problems := c.NodeSLO(node(nil, map[string]string{"node.koordinator.sh/network-bandwidth": "fast"})); len(problems) != 1 ||
		*got.SystemStrategy.TotalNetworkBandwidth != "10G" {
		t.Errorf("an annotation that is no quantity: %v, %+v", problems, got.SystemStrategy)
	}
	if got, _ := Default().NodeSLO(Node{}); !reflect.DeepEqual(got, strategy.Spec{}) {
		t.Errorf("a cluster that says nothing: %s", asJSON(t, got))
	}
}

// TestMemoryTuning reads M6 of the user's documents: 120 percent is within the range.
func TestMemoryTuning(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{KeyQOS: `{
      "clusterStrategy": {
        "lsrClass": {"memoryQOS": {"enable": true, "minLimitPercent": 100, "lowLimitPercent": 100,
                                   "throttlingPercent": 120, "wmarkRatio": 95, "wmarkMinAdj": -25}},
        "beClass":  {"memoryQOS": {"enable": true, "minLimitPercent": 0, "lowLimitPercent": 0,
                                   "throttlingPercent": 80, "wmarkRatio": 75, "wmarkMinAdj": 50}}
      }
    }`})
	spec, _ := c.NodeSLO(Node{})
	lsr, be := spec.ClassFor("LSR").MemoryQOS, spec.ClassFor("BE").MemoryQOS
	if *lsr.ThrottlingPercent != 120 || *lsr.WmarkMinAdj != -25 || *be.ThrottlingPercent != 80 || *be.WmarkRatio != 75 || be.WmarkScalePermill != nil {
		t.Errorf("LSR %s, BE %s", asJSON(t, lsr), asJSON(t, be))
	}
}

func TestRatios(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{
		KeyNormalization: `{"enable": true, "ratioModel": {"8163": {"baseRatio": 1.5, "hyperThreadEnabledRatio": 1.2,
			"turboEnabledRatio": 1.8, "hyperThreadTurboEnabledRatio": 1.4}},
			"nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "new"}}, "defaultRatio": 1.1, "ratioModel": {"8269": {"baseRatio": 1.6}}}]}`,
		KeyAmplification: `{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5, "memory": 1.2},
			"nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "new"}}, "enable": false, "resourceAmplificationRatio": {"cpu": 2}}]}`,
	})
	old, recent := c.Normalization(node(nil, nil)), c.Normalization(node(map[string]string{"pool": "new"}, nil))
	for _, x := range []struct {
		n         Normalization
		model     string
		ht, turbo bool
		want      float64
	}{
		{old, "8163", false, false, 1.5}, {old, "8163", true, false, 1.2}, {old, "8163", false, true, 1.8}, {old, "8163", true, true, 1.4},
		{old, "other", false, false, 0}, {recent, "other", false, false, 1.1}, {recent, "8163", true, true, 1.4},
		{recent, "8269", false, false, 1.6}, {recent, "8269", true, false, 1.1},
	} {
		got, ok := x.n.Ratio(x.model, x.ht, x.turbo)
		if got != x.want || ok != (x.want > 0) {
			t.Errorf("%s, ht %v, turbo %v: %v %v, want %v", x.model, x.ht, x.turbo, got, ok, x.want)
		}
	}
	if !old.Enable || Default().Normalization(Node{}).Enable {
		t.Error("normalisation: enabled by the cluster, not by default")
	}
	if a := c.Amplification(node(nil, nil)); !a.Enable || a.Ratios["cpu"] != 1.5 || a.Ratios["memory"] != 1.2 {
		t.Errorf("cluster: %+v", a)
	}
	if a := c.Amplification(node(map[string]string{"pool": "new"}, nil)); a.Enable || a.Ratios["cpu"] != 2 || a.Ratios["memory"] != 1.2 {
		t.Errorf("node: %+v", a)
	}
}
