// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// read returns a file of testdata.
func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// M5 of the acceptance manifests: every printed field arrives in its canonical place.
func TestParseM5(t *testing.T) {
	t.Parallel()
	spec, err := strategy.Parse(read(t, "m05-nodeslo.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressThresholdPercent":65,` +
		`"memoryEvictThresholdPercent":75,"memoryRequestUtilizationPercent":80,"cpuEvictPSIThresholdPercent":85},` +
		`"resourceQOSStrategy":{"lsrClass":{"cpuQOS":{"enable":true,"groupIdentity":0},` +
		`"memoryQOS":{"enable":true,"minLimitPercent":100,"lowLimitPercent":100,"throttlingPercent":120,` +
		`"wmarkRatio":95,"wmarkScalePermill":50,"wmarkMinAdj":-25},"blkioQOS":{"enable":false}},` +
		`"lsClass":{"cpuQOS":{"enable":true,"groupIdentity":2},` +
		`"memoryQOS":{"enable":true,"minLimitPercent":0,"lowLimitPercent":0,"throttlingPercent":100,` +
		`"wmarkRatio":90,"wmarkScalePermill":30,"wmarkMinAdj":-25}},` +
		`"beClass":{"cpuQOS":{"enable":true,"groupIdentity":-1},` +
		`"memoryQOS":{"enable":true,"minLimitPercent":0,"lowLimitPercent":0,"throttlingPercent":100,` +
		`"wmarkRatio":80,"wmarkScalePermill":30,"wmarkMinAdj":50}}}}`
	if got := toJSON(t, spec); got != want {
		t.Errorf("M5:\n got %s\nwant %s", got, want)
	}
	effective := strategy.Effective(spec)
	if got := *effective.ClassFor("LSE").CPUQOS.GroupIdentity; got != 0 {
		t.Errorf("LSE identity = %d, want LSR's 0", got)
	}
	if got := *effective.Threshold().MemoryEvictLowerPercent; got != 73 {
		t.Errorf("memory evict lower = %d, want 73", got)
	}
	if effective.ClassFor("BE").ResctrlQOS.CATRangeEndPercent == nil ||
		*effective.ClassFor("BE").ResctrlQOS.CATRangeEndPercent != 100 {
		t.Error("BE resctrl is disabled in M5 and must be neutral")
	}
}

// M6a: what it does not give comes from the class (wmarkScalePermill 20).
func TestParseM6a(t *testing.T) {
	t.Parallel()
	spec, err := strategy.Parse(read(t, "m06a-nodeslo-memory-tuning.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	effective := strategy.Effective(spec)
	be, lsr := effective.ClassFor("BE").MemoryQOS, effective.ClassFor("LSR").MemoryQOS
	for name, pair := range map[string][2]int64{
		"BE throttling":  {*be.ThrottlingPercent, 80},
		"BE ratio":       {*be.WmarkRatio, 75},
		"BE scale":       {*be.WmarkScalePermill, 20},
		"BE adj":         {*be.WmarkMinAdj, 50},
		"LSR min":        {*lsr.MinLimitPercent, 100},
		"LSR throttling": {*lsr.ThrottlingPercent, 120},
		"LSR scale":      {*lsr.WmarkScalePermill, 20},
		"LSR identity":   {*effective.ClassFor("LSR").CPUQOS.GroupIdentity, 0},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %d, want %d", name, pair[0], pair[1])
		}
	}
	if spec.ClassFor("LSR").CPUQOS.GroupIdentity != nil {
		t.Error("the spec as written must not carry defaults")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\n"
	for name, c := range map[string]struct {
		in   string
		is   error
		want []string
	}{
		"empty":            {"", strategy.ErrEmpty, nil},
		"comment":          {"# nothing\n", strategy.ErrEmpty, nil},
		"cut json":         {`{"cpuBurstStrategy":{"policy":"au`, nil, nil},
		"cut json value":   {`{"cpuBurstStrategy":{`, nil, nil},
		"cut after key":    {"cpuBurstStrategy:\n  policy: auto\nresourceQOSStrategy:\n", strategy.ErrValue, []string{"line 3", "resourceQOSStrategy"}},
		"cut in key":       {"cpuBurstStrategy:\n  policy: auto\nresourceQ", nil, nil},
		"no spec":          {head, strategy.ErrValue, []string{"no spec"}},
		"other kind":       {"apiVersion: v1\nkind: Pod\n", strategy.ErrValue, []string{`"Pod"`}},
		"two documents":    {"cpuBurstStrategy: {}\n---\ncpuBurstStrategy: {}\n", strategy.ErrValue, []string{"line 3"}},
		"unknown key":      {head + "spec:\n  cpuBurstStrategy:\n    polcy: auto\n", strategy.ErrUnknownKey, []string{"line 5", "spec.cpuBurstStrategy.polcy"}},
		"unknown in bare":  {"resourceQOSStrategy:\n  lsrClass:\n    memoryQOS:\n      trottlingPercent: 1\n", strategy.ErrUnknownKey, []string{"line 4", "resourceQOSStrategy.lsrClass.memoryQOS.trottlingPercent"}},
		"unknown seed key": {"resourceThresholdStrategy:\n  thresholds:\n    cpu-supress-percent: 1\n", strategy.ErrUnknownKey, []string{"line 3", "cpu-supress-percent"}},
		"case":             {"cpuburststrategy: {}\n", strategy.ErrUnknownKey, []string{"cpuburststrategy"}},
		"duplicate":        {"cpuBurstStrategy:\n  policy: auto\n  policy: none\n", strategy.ErrDuplicateKey, []string{"line 3"}},
		"type":             {"cpuBurstStrategy:\n  cpuBurstPercent: \"1000\"\n", strategy.ErrValue, []string{"line 2", "whole number"}},
		"float":            {"cpuBurstStrategy:\n  cpuBurstPercent: 1.5\n", strategy.ErrValue, []string{"line 2"}},
		"bool as string":   {"resourceUsedThresholdWithBE:\n  enable: \"true\"\n", strategy.ErrValue, []string{"true or false"}},
		"overflow":         {"cpuBurstStrategy:\n  cpuBurstPercent: 99999999999999999999\n", strategy.ErrValue, []string{"line 2"}},
		"list for mapping": {"cpuBurstStrategy: []\n", strategy.ErrValue, []string{"a mapping"}},
		"range":            {"resourceQOSStrategy: {beClass: {cpuQOS: {groupIdentity: 3}}}", strategy.ErrRange, []string{"resourceQOSStrategy.beClass.cpuQOS.groupIdentity", "3", "-1..2"}},
		"range below":      {"resourceQOSStrategy: {beClass: {cpuQOS: {groupIdentity: -2}}}", strategy.ErrRange, []string{"-2", "-1..2"}},
		"quantity":         {"systemStrategy: {totalNetworkBandwidth: 10X}", strategy.ErrValue, []string{"totalNetworkBandwidth"}},
		"merge":            {"a: &a {policy: auto}\ncpuBurstStrategy: {<<: *a}\n", nil, []string{"merge"}},
		"spellings": {
			"resourceThresholdStrategy: {thresholds: {cpu-suppress-percent: 60}}\nresourceUsedThresholdWithBE: {cpuSuppressThresholdPercent: 65}\n",
			strategy.ErrConflict, []string{"resourceUsedThresholdWithBE.cpuSuppressThresholdPercent", "resourceThresholdStrategy.thresholds.cpu-suppress-percent"},
		},
		"blkio spellings": {
			"resourceQOSStrategy: {beClass: {blkioQOS: {enable: true}, blkIOQOS: {enable: false}}}",
			strategy.ErrConflict, []string{"beClass.blkioQOS", "beClass.blkIOQOS"},
		},
		"cycle": {"extensions: &a\n  x: *a\n", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, err := strategy.Parse([]byte(c.in))
			if err == nil {
				t.Fatalf("accepted as %s", toJSON(t, spec))
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %q is not %q", err, c.is)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if !reflect.DeepEqual(spec, strategy.Spec{}) {
				t.Errorf("partial result %s", toJSON(t, spec))
			}
		})
	}
}

// Every prefix of M5 that ends inside a line is an error or a spec without any field that M5 does not have; an empty
// spec is never taken for success before the spec began.
func TestParsePrefixesOfM5(t *testing.T) {
	t.Parallel()
	data := read(t, "m05-nodeslo.yaml")
	start := strings.Index(string(data), "spec:") + len("spec:")
	for i := range start {
		if spec, err := strategy.Parse(data[:i]); err == nil {
			t.Fatalf("prefix of %d bytes accepted as %s", i, toJSON(t, spec))
		}
	}
	asJSON := []byte(`{"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeSLO","spec":{"cpuBurstStrategy":{"policy":"auto","cpuBurstPercent":200}}}`)
	if _, err := strategy.Parse(asJSON); err != nil {
		t.Fatal(err)
	}
	for i := range asJSON {
		if spec, err := strategy.Parse(asJSON[:i]); err == nil {
			t.Fatalf("JSON cut at %d accepted as %s", i, toJSON(t, spec))
		}
	}
}

func TestAliasBombIsBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("extensions:\n  a0: &a0 [1,1,1,1,1,1,1,1,1]\n")
	for i := range 12 {
		name, prev := string(rune('b'+i)), string(rune('a'+i))
		b.WriteString("  " + name + "0: &" + name + "0 [" + strings.TrimSuffix(strings.Repeat("*"+prev+"0,", 9), ",") + "]\n")
	}
	if _, err := strategy.Parse([]byte(b.String())); !errors.Is(err, strategy.ErrTooLarge) {
		t.Errorf("error %v, want %v", err, strategy.ErrTooLarge)
	}
	if _, err := strategy.Parse(make([]byte, strategy.MaxFileBytes+1)); !errors.Is(err, strategy.ErrTooLarge) {
		t.Errorf("error %v, want %v", err, strategy.ErrTooLarge)
	}
}

func TestNormaliseCanonicalWins(t *testing.T) {
	t.Parallel()
	one, two := int64(1), int64(2)
	wire := strategy.Wire{
		ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{CPUSuppressThresholdPercent: &one},
		ResourceThresholdStrategy: &strategy.WireThreshold{Thresholds: &strategy.Thresholds{
			CPUSuppressPercent: &two, MemoryEvictThresholdPercent: &two,
		}},
	}
	spec, conflicts := strategy.NormaliseCanonical(wire)
	if len(conflicts) != 1 || *spec.Threshold().CPUSuppressThresholdPercent != 1 ||
		*spec.Threshold().MemoryEvictThresholdPercent != 2 {
		t.Errorf("spec %s, conflicts %v", toJSON(t, spec), conflicts)
	}
	two = 1
	if _, err := strategy.Normalise(wire); err != nil {
		t.Errorf("equal values in both spellings: %v", err)
	}
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestJSON: JSON is read as JSON, with characters and keys that YAML changes or refuses, and with lines; what is no JSON is YAML's.
func TestJSON(t *testing.T) {
	t.Parallel()
	const text = "{\"extensions\":{\n\t\"a\u0085b\\u007f\": [\"\\u0085\\u0080\\ufffe\\ud83d\\ude00\", 1, -2.5e3, true, null, {}]}}"
	spec, err := strategy.Parse([]byte(text))
	if want := "[\"\u0085\u0080\ufffe\U0001f600\",1,-2.5e3,true,null,{}]"; err != nil || string(spec.Extensions["a\u0085b\x7f"]) != want {
		t.Errorf("%+q, %v; want %+q", spec.Extensions, err, want)
	}
	key := strings.Repeat("k", 1100)
	if spec, err := strategy.Parse([]byte(`{"extensions":{"` + key + `":"1"}}`)); err != nil || string(spec.Extensions[key]) != `"1"` {
		t.Errorf("a long key: %.100v", err)
	}
	for text, want := range map[string]string{
		"{\n\"systemStrategy\":\n{\"a\":1}}":                     "line 3: systemStrategy.a: unknown key",
		"{\"extensions\":{},\n\n\"extensions\":{}}":              "line 3: extensions: duplicate key",
		"{\"systemStrategy\":{\n\"memcgReapBackGround\":\"1\"}}": "line 2: systemStrategy.memcgReapBackGround",
		"{\"systemStrategy\":null}":                              "no value",
		"{} {}":                                                  "document",
		`{"extensions":{"a":"\ud800"}}`:                          "yaml",
		"{\"extensions\":{\"a\":" + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "}}": "too large",
	} {
		if _, err := strategy.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"{extensions: {a: 'x'}} # YAML", `{"extensions":{"a":"\ufffd�"}}`} {
		if _, err := strategy.Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(read(f, "m05-nodeslo.yaml"))
	f.Add(read(f, "m06a-nodeslo-memory-tuning.yaml"))
	f.Add([]byte(`{"extensions":{"a":[1,{"b":null}]},"hostApplications":[{"name":"x","qos":"LS"}]}`))
	f.Add([]byte("systemStrategy: {totalNetworkBandwidth: 10G, schedFeatures: {a: true}}"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`extensions: {a: "\N"}`))
	f.Add([]byte(`systemStrategy: {schedFeatures: {"\N": true}}`))
	f.Add([]byte(`{"extensions":{"a":["\u007f","\u0080","\ufeff","\ufffe","\ud83d\ude00"],"a\u0085b":1,"` + strings.Repeat("<", 200) + `":2}}`))
	f.Add([]byte("extensions:\n  ? \"" + strings.Repeat("a", 1100) + "\"\n  : 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := strategy.Parse(data)
		if err != nil {
			if !reflect.DeepEqual(spec, strategy.Spec{}) {
				t.Fatalf("partial result with %v", err)
			}
			return
		}
		if errs := strategy.Validate(spec); len(errs) > 0 {
			t.Fatalf("accepted but invalid: %v", errs)
		}
		text := toJSON(t, spec)
		if len(text) > strategy.MaxFileBytes {
			return // escaped it is longer than what may be read
		}
		again, err := strategy.Parse([]byte(text))
		if err != nil {
			t.Fatalf("written spec refused: %v", err)
		}
		if toJSON(t, again) != toJSON(t, spec) {
			t.Fatalf("round trip: %s became %s", toJSON(t, spec), toJSON(t, again))
		}
		strategy.Effective(spec)
	})
}
