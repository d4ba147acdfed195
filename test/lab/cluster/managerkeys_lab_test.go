// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const (
	keyQOS           = "resource-qos-config"
	keySystem        = "system-config"
	keyHosts         = "host-application-config"
	keyNormalization = "cpu-normalization-config"
	keyAmplification = "resource-amplification-config"
	keyExtension     = "extension.tuner"
)

// everyKey is slo-controller-config with each of its eight keys and one of another program's: something for every node, and something else for
// those of pool b.
var everyKey = map[string]string{
	keyThreshold: `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 61},
  "nodeStrategies": [{POOL, "cpuSuppressThresholdPercent": 41}]}`,
	keyQOS: `{"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": true, "groupIdentity": 1}}},
  "nodeStrategies": [{POOL, "lsClass": {"cpuQOS": {"groupIdentity": 2}}, "beClass": {"memoryQOS": {"enable": true, "throttlingPercent": 70}}}]}`,
	keyBurst: `{"clusterStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 700}, "nodeStrategies": [{POOL, "cpuBurstPercent": 300}]}`,
	keySystem: `{"clusterStrategy": {"minFreeKbytesFactor": 110, "watermarkScaleFactor": 150},
  "nodeStrategies": [{POOL, "watermarkScaleFactor": 160}]}`,
	keyHosts: `{"applications": [{"name": "nginx", "qos": "LS"}],
  "nodeConfigs": [{POOL, "applications": [{"name": "yarn", "qos": "BE", "priority": "koord-batch"}]}]}`,
	keyNormalization: `{"enable": false, "ratioModel": {"lab": {"hyperThreadTurboEnabledRatio": 1.2}}, "nodeConfigs": [{POOL, "enable": true}]}`,
	keyAmplification: `{"enable": false, "resourceAmplificationRatio": {"cpu": 1.5}, "nodeConfigs": [{POOL, "enable": true}]}`,
	keyColocation: `{"enable": true, "cpuReclaimThresholdPercent": 40, "metricReportIntervalSeconds": 40,
  "nodeConfigs": [{POOL, "cpuReclaimThresholdPercent": 50}]}`,
	keyExtension: `{"clusterStrategy": {"mode": "safe", "depth": {"a": 1}}, "nodeStrategies": [{POOL, "nodeStrategy": {"mode": "fast"}}]}`,
}

// partOf is what the key of a NodeSLO's part is for.
var partOf = map[string]string{
	keyThreshold: "resourceUsedThresholdWithBE", keyQOS: "resourceQOSStrategy", keyBurst: "cpuBurstStrategy",
	keySystem: "systemStrategy", keyHosts: "hostApplications", keyExtension: "extensions",
}

// keys: each key says its part of the node's objects, and no other; a node of a pool gets the pool's over the cluster's, of an extension instead of it.
// One that is taken out takes its part with it, and leaves the others. What an annotation says of a node's network is in its NodeSLO beside them.
func (n *simulated) keys(t *testing.T) {
	const name = "node-002"
	n.put(t, `
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata: {name: `+name+`, annotations: {`+protocol.AnnotationCPUBasicInfo+`: '{"cpuModel":"lab","hyperThreadEnabled":true,"turboEnabled":true}'}}
topologyPolicies: [None]
zones: []
`)
	node := func(field, key string, value any) {
		t.Helper()
		change := map[string]any{"metadata": map[string]any{field: map[string]any{key: value}}}
		if _, err := n.c.Admin().Patch(t.Context(), "/api/v1/nodes/"+name, cluster.MergePatch, change); err != nil {
			t.Fatal(err)
		}
	}
	node("labels", "pool", "b")
	used := map[string]any{"resources": map[string]any{"cpu": "4", "memory": "4Gi"}}
	report := map[string]any{"status": map[string]any{
		"updateTime": time.Now().UTC().Format(time.RFC3339), "nodeMetric": map[string]any{"nodeUsage": used, "systemUsage": used},
	}}
	if _, err := n.c.Admin().Patch(t.Context(), reports+"/"+name+"/status", cluster.MergePatch, report); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for key, text := range everyKey {
		all[key] = strings.ReplaceAll(text, "POOL", `"name": "b", "nodeSelector": {"matchLabels": {"pool": "b"}}`)
	}
	n.tell(t, all)
	want := map[string]string{
		keyThreshold: `{"cpuSuppressThresholdPercent":41,"enable":true}`,
		keyQOS: `{"beClass":{"memoryQOS":{"enable":true,"throttlingPercent":70}},` +
			`"lsClass":{"cpuQOS":{"enable":true,"groupIdentity":2}}}`,
		keyBurst:         `{"cpuBurstPercent":300,"policy":"cpuBurstOnly"}`,
		keySystem:        `{"minFreeKbytesFactor":110,"watermarkScaleFactor":160}`,
		keyHosts:         `[{"name":"yarn","priority":"koord-batch","qos":"BE"}]`,
		keyNormalization: "1.20",
		keyAmplification: `{"cpu":1.80}`,       // of it 1.20 by the other
		keyColocation:    "72k lent, every 40", // 128 CPUs × 50 % − 4, × 1.20
		keyExtension:     `{"tuner":{"mode":"fast"}}`,
	}
	n.says(t, "all keys", name, want)
	n.says(t, "all keys", documented, map[string]string{
		keyThreshold: `{"cpuSuppressThresholdPercent":61,"enable":true}`, keyQOS: `{"lsClass":{"cpuQOS":{"enable":true,"groupIdentity":1}}}`,
		keyBurst: `{"cpuBurstPercent":700,"policy":"cpuBurstOnly"}`, keySystem: `{"minFreeKbytesFactor":110,"watermarkScaleFactor":150}`,
		keyHosts: `[{"name":"nginx","qos":"LS"}]`, keyColocation: " lent, every 0", // the interval is the user's, and nothing is reported
		keyNormalization: "", keyAmplification: "", keyExtension: `{"tuner":{"depth":{"a":1},"mode":"safe"}}`,
	})
	node("annotations", protocol.AnnotationNetworkBandwidth, "25G")
	want[keySystem] = `{"minFreeKbytesFactor":110,"totalNetworkBandwidth":"25G","watermarkScaleFactor":160}`
	n.says(t, "the network's annotation", name, want)
	for _, out := range []struct {
		key  string
		then map[string]string
	}{
		{keyThreshold, map[string]string{keyThreshold: "null"}},
		{keyQOS, map[string]string{keyQOS: "null"}},
		{keyBurst, map[string]string{keyBurst: "null"}},
		{keySystem, map[string]string{keySystem: `{"totalNetworkBandwidth":"25G"}`}},
		{keyExtension, map[string]string{keyExtension: "null"}},
		{keyHosts, map[string]string{keyHosts: "null"}},
		{keyAmplification, map[string]string{keyAmplification: `{"cpu":1.20}`}},
		{keyNormalization, map[string]string{
			keyNormalization: "1.00", keyAmplification: "", keyColocation: "60k lent, every 40",
		}},
		{keyColocation, map[string]string{keyColocation: " lent, every 60"}},
	} {
		n.tell(t, map[string]string{out.key: ""})
		maps.Copy(want, out.then)
		n.says(t, "without "+out.key, name, want)
	}
	node("annotations", protocol.AnnotationNetworkBandwidth, nil)
	want[keySystem] = "null"
	n.says(t, "without the annotation", name, want)
}

// says waits until what the keys say of a node stands in its objects.
func (n *simulated) says(t *testing.T, what, name string, want map[string]string) {
	t.Helper()
	begun := time.Now()
	eventually(t, 30*time.Second, func() error {
		got := map[string]string{}
		slo, err := n.c.Admin().Get(t.Context(), slos+"/"+name)
		if err != nil {
			return err
		}
		for key, part := range partOf {
			got[key] = slo.Compact("spec", part)
		}
		node, err := n.c.Admin().Get(t.Context(), "/api/v1/nodes/"+name)
		if err != nil {
			return err
		}
		metric, err := n.c.Admin().Get(t.Context(), reports+"/"+name)
		if err != nil {
			return err
		}
		got[keyNormalization] = node.Str("metadata", "annotations", protocol.AnnotationNormalizationRatio)
		got[keyAmplification] = node.Str("metadata", "annotations", protocol.AnnotationAmplificationRatio)
		got[keyColocation] = fmt.Sprintf("%s lent, every %d", node.Str("status", "allocatable", protocol.ResourceBatchCPU),
			metric.Int("spec", "metricCollectPolicy", "reportIntervalSeconds"))
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%s of %s (-want +got):\n%s", what, name, diff)
		}
		return nil
	})
	t.Logf("%s, %s: after %s", what, name, time.Since(begun).Round(time.Millisecond))
}
