// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

func parsed(t *testing.T, data map[string]string) *Config {
	t.Helper()
	c, problems := Parse(data, nil)
	for _, p := range problems {
		t.Errorf("unexpected: %v", p)
	}
	return c
}

// TestProblems: key, line, field and reason of each thing that can be wrong.
func TestProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, text string
		line      int
		path      string
		err       error
		says      string
	}{
		"a misspelt field": {key: KeyThreshold, text: "{\n  \"clusterStrategy\": {\n    \"enabel\": true\n  }\n}",
			line: 3, path: "clusterStrategy.enabel", err: strategy.ErrUnknownKey},
		"a field of another strategy": {key: KeyBurst, text: "{\"clusterStrategy\": {\"enable\": true}}",
			line: 1, path: "clusterStrategy.enable", err: strategy.ErrUnknownKey},
		"indented by tabs": {key: KeyThreshold, text: "{\n\t\"clusterStrategy\": {\n\t\t\"cpuSuppressThresholdPercent\": 101\n\t}\n}",
			line: 3, path: "clusterStrategy.cpuSuppressThresholdPercent", err: strategy.ErrRange, says: "101, want 0..100"},
		"YAML is read too": {key: KeySystem, text: "clusterStrategy:\n  watermarkScaleFactor: 401\n",
			line: 2, path: "clusterStrategy.watermarkScaleFactor", err: strategy.ErrRange},
		"a text for a number": {key: KeyColocation, text: "{\"enable\": true,\n\"degradeTimeMinutes\": \"15\"}",
			line: 2, path: "degradeTimeMinutes", err: strategy.ErrValue},
		"a text for a fraction": {key: KeyColocation, text: "{\"resourceDiffThreshold\": \"0.1\"}",
			line: 1, path: "resourceDiffThreshold", err: strategy.ErrValue},
		"no fraction": {key: KeyColocation, text: "{\"resourceDiffThreshold\": null}", line: 1, path: "resourceDiffThreshold", err: strategy.ErrValue},
		"a fraction above one": {key: KeyColocation, text: "{\n\"resourceDiffThreshold\": 1.5}",
			line: 2, path: "resourceDiffThreshold", err: strategy.ErrRange},
		"an unknown policy": {key: KeyColocation, text: "{\"cpuCalculatePolicy\": \"request\"}",
			line: 1, path: "cpuCalculatePolicy", err: strategy.ErrRange, says: `"request", want usage, maxUsageRequest`},
		"a node entry": {key: KeyColocation,
			text: "{\"enable\": true, \"nodeConfigs\": [\n{\"nodeSelector\": {\"matchLabels\": {\"a\": \"b\"}},\n \"midCPUThresholdPercent\": -1}]}",
			line: 3, path: "nodeConfigs[0].midCPUThresholdPercent", err: strategy.ErrRange},
		"a node entry without selector": {key: KeyBurst, text: "{\"nodeStrategies\": [\n{\"name\": \"x\", \"policy\": \"auto\"}]}",
			line: 2, path: "nodeStrategies[0].nodeSelector", err: errSelector},
		"a node entry for all": {key: KeyBurst, text: "{\"nodeStrategies\": [\n{\"nodeSelector\": {},\n\"policy\": \"auto\"}]}",
			line: 2, path: "nodeStrategies[0].nodeSelector", err: errSelector},
		"a selector without sense": {key: KeyBurst,
			text: "{\"nodeStrategies\": [\n{\"nodeSelector\": {\"matchExpressions\": [{\"key\": \"a\", \"operator\": \"Like\"}]}}]}",
			line: 2, path: "nodeStrategies[0].nodeSelector", err: errSelector},
		"two entries of a name": {key: KeyBurst,
			text: "{\"nodeStrategies\": [\n{\"name\": \"x\", \"nodeSelector\": {\"matchLabels\": {\"a\": \"b\"}}},\n" +
				"{\"name\": \"x\", \"nodeSelector\": {\"matchLabels\": {\"a\": \"c\"}}}]}",
			line: 3, path: "nodeStrategies[1].name", err: strategy.ErrDuplicateKey},
		"wrong only together with the cluster's": {key: KeyThreshold,
			text: "clusterStrategy:\n  memoryEvictThresholdPercent: 60\nnodeStrategies:\n- name: db\n  nodeSelector: {matchLabels: {a: b}}\n" +
				"  memoryEvictLowerPercent: 65\n",
			line: 6, path: "nodeStrategies[0].memoryEvictLowerPercent", err: strategy.ErrRange},
		"both spellings": {key: KeyQOS,
			text: "{\"clusterStrategy\": {\"beClass\": {\"blkioQOS\": {\"enable\": true},\n\"blkIOQOS\": {\"enable\": false}}}}",
			line: 2, path: "clusterStrategy.beClass.blkIOQOS", err: strategy.ErrConflict},
		"a class of a node": {key: KeyQOS,
			text: "{\"nodeStrategies\": [{\"nodeSelector\": {\"matchLabels\": {\"a\": \"b\"}},\n\"lsClass\": {\"memoryQOS\":\n{\"wmarkRatio\": 101}}}]}",
			line: 3, path: "nodeStrategies[0].lsClass.memoryQOS.wmarkRatio", err: strategy.ErrRange},
		"a host application": {key: KeyHostApplication, text: "{\"applications\": [\n{\"name\": \"a\"},\n{\"name\": \"b/c\"}]}",
			line: 3, path: "applications[1].name", err: strategy.ErrRange},
		"two host applications of a name": {key: KeyHostApplication, text: "{\"applications\": [\n{\"name\": \"a\"},\n{\"name\": \"a\"}]}",
			line: 3, path: "applications[1].name", err: errTwice},
		"a ratio": {key: KeyNormalization, text: "{\"ratioModel\": {\"Xeon 8163\":\n{\"baseRatio\": 5.1}}}",
			line: 2, path: "ratioModel.Xeon 8163.baseRatio", err: strategy.ErrRange},
		"an amplification below one": {key: KeyAmplification, text: "{\"resourceAmplificationRatio\":\n{\"cpu\": 0.9}}",
			line: 2, path: "resourceAmplificationRatio.cpu", err: strategy.ErrRange},
		"no text":        {key: KeyBurst, text: " \n", err: strategy.ErrEmpty},
		"two documents":  {key: KeyBurst, text: "{}\n---\n{}\n", err: strategy.ErrValue},
		"no syntax":      {key: KeyBurst, text: "{\n\"clusterStrategy\": {", says: "line "},
		"a list":         {key: KeyBurst, text: "[]", line: 1, err: strategy.ErrValue},
		"an unknown key": {key: "cpu-burst-conf", text: "{}", err: ErrUnknownKey, says: "cpu-burst-config"},
		"a field twice":  {key: KeyBurst, text: "{\"clusterStrategy\": {},\n\"clusterStrategy\": {}}", line: 2, path: "clusterStrategy", err: strategy.ErrDuplicateKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := Parse(map[string]string{c.key: c.text}, nil)
			if len(problems) != 1 {
				t.Fatalf("%d problems, want one: %v", len(problems), problems)
			}
			p := problems[0]
			path := p.Path
			if path == "document" {
				path = ""
			}
			if p.Key != c.key || p.Line != c.line || path != c.path || c.err != nil && !errors.Is(p, c.err) {
				t.Errorf("%v: have line %d of %q, want line %d of %q", p, p.Line, p.Path, c.line, c.path)
			}
			if !strings.Contains(p.Error(), c.says) || !strings.HasPrefix(p.Error(), c.key+": ") {
				t.Errorf("%v does not say %q", p, c.says)
			}
		})
	}
}

// TestLastGood: a key with a problem keeps what it said, as a whole; the others change; a key that is taken out means its default.
func TestLastGood(t *testing.T) {
	t.Parallel()
	first := parsed(t, map[string]string{
		KeyThreshold: `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 50}}`,
		KeyBurst:     `{"clusterStrategy": {"policy": "auto"}}`,
		KeySystem:    `{"clusterStrategy": {"watermarkScaleFactor": 20}}`,
	})
	second, problems := Parse(map[string]string{
		KeyThreshold: `{"clusterStrategy": {"enable": false, "cpuSuppressThresholdPercent": 500}}`,
		KeyBurst:     `{"clusterStrategy": {"policy": "none"}}`,
	}, first)
	if len(problems) != 1 || problems[0].Key != KeyThreshold {
		t.Fatalf("%v: want one problem of %s", problems, KeyThreshold)
	}
	got, _ := second.NodeSLO(Node{})
	want := strategy.Spec{
		ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{Enable: new(true), CPUSuppressThresholdPercent: new(int64(50))},
		CPUBurstStrategy:            &strategy.CPUBurstStrategy{Policy: new("none")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %+v, want %+v", got, want)
	}
	if before, _ := first.NodeSLO(Node{}); *before.CPUBurstStrategy.Policy != "auto" {
		t.Error("the configuration before was changed")
	}
	if second.Unknown(KeyThreshold) || second.Unknown(KeyBurst) {
		t.Error("a key that was read once is known")
	}
}

// TestUnknown: a program that begins with a key that has a problem knows that it does not know.
func TestUnknown(t *testing.T) {
	t.Parallel()
	broken := map[string]string{KeyBurst: "{", KeySystem: "{}"}
	first, problems := Parse(broken, nil)
	if len(problems) != 1 || !first.Unknown(KeyBurst) || first.Unknown(KeySystem) || first.Unknown(KeyQOS) {
		t.Fatalf("%v, %+v", problems, first)
	}
	still, _ := Parse(broken, first)
	mended, _ := Parse(map[string]string{KeyBurst: "{}"}, still)
	broke, _ := Parse(broken, mended)
	gone, _ := Parse(nil, still)
	if !still.Unknown(KeyBurst) || mended.Unknown(KeyBurst) || broke.Unknown(KeyBurst) || gone.Unknown(KeyBurst) {
		t.Error("known from the first text that can be read on, or when the key is gone")
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	var s Store
	early := s.Subscribe()
	if s.Load() != nil || len(early) != 0 {
		t.Fatal("a store that has nothing says something")
	}
	one, two := Default(), Default()
	s.Set(one)
	late := s.Subscribe()
	if len(early) != 1 || len(late) != 1 {
		t.Fatalf("woken %d and %d times, want once each", len(early), len(late))
	}
	s.Set(two) // nobody has looked yet: one waking is enough
	<-early
	if len(early) != 0 || s.Load() != two {
		t.Error("want one waking and the newest strategy")
	}
	s.Set(one)
	if len(early) != 1 || len(late) != 1 {
		t.Error("a strategy after that wakes again")
	}
}

// TestManyEntries: what a cluster says is not looked at again with each of many entries, and of many wrong values the first are told.
func TestManyEntries(t *testing.T) {
	t.Parallel()
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", strconv.Itoa(i)))
			if i < n-1 {
				b.WriteString(",\n")
			}
		}
		return b.String()
	}
	const n = 4000
	entries := many(n, `{"nodeSelector": {"matchLabels": {"a": "#"}}}`)
	for key, cluster := range map[string]string{
		KeyAmplification:         `"resourceAmplificationRatio": {` + many(n, `"a#": 2`) + `}, "nodeConfigs"`,
		KeyNormalization:         `"ratioModel": {` + many(n, `"a#": {"baseRatio": 2}`) + `}, "nodeConfigs"`,
		KeyColocation:            `"metricAggregatePolicy": {"durations": [` + many(n, `"1#s"`) + `]}, "nodeConfigs"`,
		KeySystem:                `"clusterStrategy": {"schedFeatures": {` + many(n, `"a#": true`) + `}}, "nodeStrategies"`,
		KeyQOS:                   `"clusterStrategy": {"beClass": {"blkIOQOS": {"blocks": [` + many(n, `{"name": "a#", "type": "device"}`) + `]}}}, "nodeStrategies"`,
		KeyHostApplication:       `"applications": [` + many(n, `{"name": "a#"}`) + `], "nodeConfigs"`,
		PrefixExtension + "long": `"clusterStrategy": {"a": "` + strings.Repeat("x", 300_000) + `"}, "nodeStrategies"`,
	} {
		text := "{" + cluster + ": [" + entries + "]}"
		if strings.HasPrefix(key, PrefixExtension) {
			text = strings.ReplaceAll(text, `"}}}`, `"}}, "nodeStrategy": {}}`)
		}
		for _, p := range second(Parse(map[string]string{key: text}, nil)) {
			t.Errorf("%v", p)
		}
	}
	wrong := `{"resourceAmplificationRatio": {` + many(20_000, `"a#": 0`) + `}}`
	problems := second(Parse(map[string]string{KeyAmplification: wrong}, nil))
	if len(problems) != maxProblems || problems[0].Path != "resourceAmplificationRatio.a0" || problems[0].Line != 1 {
		t.Errorf("%d problems, want the first %d: %.1000v", len(problems), maxProblems, problems)
	}
}

func second[A, B any](_ A, b B) B { return b }

// FuzzParse: any text is read or refused with a reason that names its key; what is refused changes nothing; what is read answers.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"enable": true, "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "cpuReclaimThresholdPercent": 70}]}`,
		`{"clusterStrategy": {"beClass": {"blkIOQOS": {"enable": true}}}, "nodeStrategies": [{"nodeSelector": {"matchLabels": {"a": "b"}}}]}`,
		`{"applications": [{"name": "nginx"}], "nodeConfigs": []}`,
		`{"enable": true, "ratioModel": {"x": {"baseRatio": 1.5}}, "resourceAmplificationRatio": {"cpu": 2}}`,
		"clusterStrategy: &a {policy: auto}\nnodeStrategies: [*a]", "{\"a\": \"\\t\"\t}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, key := range Keys() {
			node := Node{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"node.koordinator.sh/network-bandwidth": text}}
			if key == KeyColocation { // a long text takes its time once more
				node.Annotations["node.koordinator.sh/colocation-strategy"] = text
			}
			c, problems := Parse(map[string]string{key: text}, nil)
			for _, p := range problems {
				if p.Key != key || p.Err == nil || p.Error() == "" {
					t.Fatalf("%+v says too little", p)
				}
			}
			if c.Unknown(key) != (len(problems) > 0) {
				t.Fatalf("%s: problems %v, unknown %v", key, problems, c.Unknown(key))
			}
			if c.unknown = nil; len(problems) > 0 && !reflect.DeepEqual(c, Default()) {
				t.Fatalf("%s: refused (%v) and in force all the same", key, problems)
			}
			spec, _ := c.NodeSLO(node)
			if errs := strategy.Validate(spec); len(problems) == 0 && len(errs) > 0 {
				t.Fatalf("%s: accepted, but the node's strategy is %v", key, errs)
			}
			if got, _ := c.Colocation(node); got.Report <= 0 || got.DiffThreshold <= 0 || got.Degrade <= 0 {
				t.Fatalf("%s: %+v", key, got)
			}
			for _, r := range c.Amplification(node).Ratios {
				if r < 1 {
					t.Fatalf("%s: amplification %v", key, r)
				}
			}
			c.Normalization(node).Ratio("x", true, false)
		}
	})
}
