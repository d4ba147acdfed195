// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"testing"
)

// strategyRules: one wrong field of each key of slo-controller-config is refused with the key, the line and the reason; all right ones pass.
func (a *admitted) strategyRules(t *testing.T) {
	const db = "\"nodeSelector\": {\"matchLabels\": {\"pool\": \"db\"}}"
	var cases []objectCase
	for _, c := range []struct{ name, key, text, refused string }{
		{
			"no such class of an application", "host-application-config", "{\n\"applications\": [\n{\"name\": \"a\"},\n{\"name\": \"b\", \"qos\": \"LSX\"}]}",
			`line 4: applications[1].qos: out of range: "LSX", want `,
		},
		{
			"an application out of its cgroup", "host-application-config", "{\"applications\": [{\"name\": \"a\", \"cgroupPath\":\n{\"base\": \"Kubepods\", \"parentDir\": \"../x\"}}]}",
			`line 2: applications[0].cgroupPath.parentDir: out of range: "../x", want a path below its base`,
		},
		{"an application twice", "host-application-config", "{\"applications\": [\n{\"name\": \"a\"},\n{\"name\": \"a\"}]}", "line 3: applications[1].name: the name is given twice"},
		{
			"an application of some nodes", "host-application-config", "nodeConfigs:\n- nodeSelector: {matchLabels: {pool: db}}\n  applications:\n  - name: a/b\n",
			`line 4: nodeConfigs[0].applications[0].name: out of range: "a/b", want a name without slash`,
		},
		{
			"a ratio of a model", "cpu-normalization-config", "{\"ratioModel\": {\n\"Xeon\": {\n\"baseRatio\": 5.1}}}",
			"line 3: ratioModel.Xeon.baseRatio: out of range: 5.1, want 1..5",
		},
		{"a ratio in words", "cpu-normalization-config", "{\n\"defaultRatio\": \"1.2\"}", "line 2: defaultRatio: bad value: want a number such as 0.1"},
		{
			"amplified to less", "resource-amplification-config", "{\"resourceAmplificationRatio\":\n{\"cpu\": 0.9}}",
			"line 2: resourceAmplificationRatio.cpu: out of range: 0.9, want 1..100",
		},
		{
			"amplified to too much on some nodes", "resource-amplification-config", "{\"nodeConfigs\": [{" + db + ",\n\"resourceAmplificationRatio\": {\"memory\": 101}}]}",
			"line 2: nodeConfigs[0].resourceAmplificationRatio.memory: out of range: 101, want 1..100",
		},
		{
			"a misspelt field of amplification", "resource-amplification-config", "{\n\"resourceAmplificationRatios\": {}}",
			"line 2: resourceAmplificationRatios: unknown key",
		},
		{
			"a watermark", "system-config", "{\n\"clusterStrategy\": {\n\"watermarkScaleFactor\": 401}}",
			"line 3: clusterStrategy.watermarkScaleFactor: out of range: 401, want 1..400",
		},
		{
			"a system of nodes that are not said", "system-config", "{\"nodeStrategies\": [\n{\"watermarkScaleFactor\": 20}]}",
			"line 2: nodeStrategies[0].nodeSelector: bad node selector: it selects nothing in particular",
		},
		{"others' key of another form", "extension.tuner", "{\n\"strategy\": {}}", "line 2: strategy: unknown key"},
		{"others' key that is a list", "extension.tuner", "{\n\"clusterStrategy\": [1]}", "line 2: clusterStrategy: bad value: want a mapping"},
		{"others' key that says nothing of nodes", "extension.tuner", "{\"nodeStrategies\": [\n{" + db + "}]}", "line 2: nodeStrategies[0].nodeStrategy: nothing is said"},
		{"others' key without a name", "extension.", "{}", "unknown key: nobody reads it; known are "},
		{
			"what is lent by nodes that are not sound", "colocation-config", "{\n\"extensions\": {\"koord-rt.dev/lending-health\": {\"diskPressurePercent\": 101}}}",
			"line 2: extensions.koord-rt.dev/lending-health.diskPressurePercent: out of range: 101, want 0..100",
		},
		{"a policy of colocation", "colocation-config", "{\n\"cpuCalculatePolicy\": \"request\"}", `line 2: cpuCalculatePolicy: out of range: "request", want usage, maxUsageRequest`},
		{"a policy of bursts", "cpu-burst-config", "{\"clusterStrategy\":\n{\"policy\": \"always\"}}", `line 2: clusterStrategy.policy: out of range: "always", want none, `},
		{
			"a watermark of a class", "resource-qos-config", "{\"clusterStrategy\": {\"beClass\": {\"memoryQOS\":\n{\"wmarkRatio\": 101}}}}",
			"line 2: clusterStrategy.beClass.memoryQOS.wmarkRatio: out of range: 101, want 0..100",
		},
		{"no text", "system-config", " \n", "file holds no document: remove the key if the default is meant"},
	} {
		cases = append(cases, objectCase{
			name: c.name, path: strategies, change: fmt.Sprintf("data: {%q: %q}", c.key, c.text), refused: []string{c.key + ": " + c.refused},
		})
	}
	right := ""
	for key, text := range map[string]string{
		"host-application-config":       "{\"applications\": [{\"name\": \"a\", \"qos\": \"LS\", \"cgroupPath\": {\"base\": \"Kubepods\", \"parentDir\": \"x\"}}]}",
		"cpu-normalization-config":      "{\"defaultRatio\": 1.2, \"ratioModel\": {\"Xeon\": {\"baseRatio\": 5}}}",
		"resource-amplification-config": "{\"resourceAmplificationRatio\": {\"cpu\": 1}, \"nodeConfigs\": [{" + db + ", \"resourceAmplificationRatio\": {\"memory\": 100}}]}",
		"system-config":                 "{\"clusterStrategy\": {\"watermarkScaleFactor\": 400}, \"nodeStrategies\": [{" + db + ", \"watermarkScaleFactor\": 20}]}",
		"extension.tuner":               "{\"clusterStrategy\": {\"mode\": \"safe\"}, \"nodeStrategies\": [{" + db + ", \"nodeStrategy\": {}}]}",
		"colocation-config":             "{\"cpuCalculatePolicy\": \"usage\", \"extensions\": {\"koord-rt.dev/lending-health\": {\"diskPressurePercent\": 100}}}",
		"cpu-burst-config":              "{\"clusterStrategy\": {\"policy\": \"auto\"}}",
		"resource-qos-config":           "{\"clusterStrategy\": {\"beClass\": {\"memoryQOS\": {\"wmarkRatio\": 100}}}}",
	} {
		right += fmt.Sprintf("  %q: %q\n", key, text)
	}
	a.judges(t, "vconfigmap", append(cases, objectCase{name: "all that is right", path: strategies, change: "data:\n" + right, want: "data:\n" + right}))
}
