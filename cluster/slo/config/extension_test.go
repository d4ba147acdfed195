// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"strings"
	"testing"
)

// TestExtensions: what is others' is passed on as it is, per node; one with a problem keeps what it said, one that is gone is gone.
func TestExtensions(t *testing.T) {
	t.Parallel()
	extensions := func(c *Config, labels map[string]string) string {
		spec, problems := c.NodeSLO(node(labels, nil))
		if len(problems) > 0 {
			t.Error(problems)
		}
		return asJSON(t, spec.Extensions)
	}
	pool := map[string]string{"pool": "db"}
	first := parsed(t, map[string]string{
		"extension.tuner": `
clusterStrategy: {mode: safe, depth: {a: [1, 2]}}
nodeStrategies:
- nodeSelector: {matchLabels: {pool: db}}
  nodeStrategy: {mode: fast}
`,
		"extension.my.probe": `{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": "db"}}, "nodeStrategy": {}}]}`,
	})
	if got, want := extensions(first, nil), `{"tuner":{"depth":{"a":[1,2]},"mode":"safe"}}`; got != want {
		t.Errorf("have %s\nwant %s", got, want)
	}
	if got, want := extensions(first, pool), `{"my.probe":{},"tuner":{"mode":"fast"}}`; got != want {
		t.Errorf("have %s\nwant %s", got, want)
	}
	second, problems := Parse(map[string]string{"extension.tuner": `{"strategy": {}}`, "extension.other": `{"clusterStrategy": [1]}`}, first)
	if len(problems) != 2 || second.UnknownExtensions() {
		t.Errorf("%v, unknown %v", problems, second.UnknownExtensions())
	}
	if c, _ := Parse(map[string]string{"extension.tuner": `{"strategy": {}}`}, nil); !c.UnknownExtensions() || first.UnknownExtensions() {
		t.Error("an extension that was never read is not known, and others are")
	}
	if got, want := extensions(second, pool), `{"tuner":{"mode":"fast"}}`; got != want {
		t.Errorf("have %s\nwant %s", got, want)
	}
	if got := extensions(first, pool); !strings.Contains(got, "my.probe") {
		t.Errorf("the config before was changed: %s", got)
	}
	for text, want := range map[string]string{
		`{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"a": "b"}}}]}`:             "nodeStrategies[0].nodeStrategy: nothing is said",
		`{"nodeStrategies": [{"nodeStrategy": {"a": 1}}]}`:                                "nodeStrategies[0].nodeSelector: bad node selector",
		`{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "mode": {}}]}`: "nodeStrategies[0].mode",
	} {
		if _, problems := Parse(map[string]string{"extension.x": text}, nil); len(problems) == 0 || !strings.Contains(problems[0].Error(), want) {
			t.Errorf("%s: %v, want %s", text, problems, want)
		}
	}
	if _, problems := Parse(map[string]string{"extension.": "{}", "extensions": "{}"}, nil); len(problems) != 2 {
		t.Errorf("keys without a name: %v", problems)
	}
}
