// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nodeslo

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/pernode"
)

// definition is the schema of a NodeSLO, as API servers check it.
func definition(t *testing.T) *schema.Structural {
	t.Helper()
	text, err := os.ReadFile("../../../packaging/crds/slo.koordinator.sh_nodeslos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var written apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &written); err != nil || len(written.Spec.Versions) != 1 {
		t.Fatalf("%d versions, %v", len(written.Spec.Versions), err)
	}
	var in apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(written.Spec.Versions[0].Schema.OpenAPIV3Schema, &in, nil); err != nil {
		t.Fatal(err)
	}
	out, err := schema.NewStructural(&in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// places are the rules of a schema, by the message with which they refuse, and where they hold.
func places(at ownership.Path, s *schema.Structural, to map[string][]ownership.Path) {
	for _, r := range s.XValidations {
		to[r.Message] = append(to[r.Message], at)
	}
	for name, below := range s.Properties {
		places(at+"/"+name, &below, to)
	}
	if s.Items != nil {
		places(at+"[]", s.Items, to)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		places(at+"{}", s.AdditionalProperties.Structural, to)
	}
}

// half is what others have written of a rule's fields, and what the cluster's strategy says of them, each right in itself.
type half struct{ theirs, wanted string }

// halves are the rules over several fields, by their messages; withinOne are those about a single one.
var (
	halves = map[string][]half{
		"memoryEvictLowerPercent must be below memoryEvictThresholdPercent (default 70)": {
			{`{"memoryEvictThresholdPercent": 60}`, `{"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 75}`},
			{`{"memoryEvictLowerPercent": 60}`, `{"memoryEvictThresholdPercent": 55, "memoryEvictLowerPercent": 50}`},
		},
		"memoryAllocatableEvictLowerPercent must be below memoryAllocatableEvictThresholdPercent": {
			{`{"memoryAllocatableEvictThresholdPercent": 100}`, `{"memoryAllocatableEvictThresholdPercent": 120, "memoryAllocatableEvictLowerPercent": 110}`},
			{`{"memoryAllocatableEvictLowerPercent": 100}`, `{"memoryAllocatableEvictThresholdPercent": 90, "memoryAllocatableEvictLowerPercent": 80}`},
		},
		"cpuEvictBESatisfactionLowerPercent must be below cpuEvictBESatisfactionUpperPercent": {
			{`{"cpuEvictBESatisfactionUpperPercent": 40}`, `{"cpuEvictBESatisfactionUpperPercent": 60, "cpuEvictBESatisfactionLowerPercent": 40}`},
			{`{"cpuEvictBESatisfactionLowerPercent": 50}`, `{"cpuEvictBESatisfactionUpperPercent": 45, "cpuEvictBESatisfactionLowerPercent": 40}`},
		},
		"cpuEvictLowerPercent must be below cpuEvictThresholdPercent": {
			{`{"cpuEvictThresholdPercent": 70}`, `{"cpuEvictThresholdPercent": 90, "cpuEvictLowerPercent": 80}`},
			{`{"cpuEvictLowerPercent": 80}`, `{"cpuEvictThresholdPercent": 70, "cpuEvictLowerPercent": 60}`},
		},
		"cpuAllocatableEvictLowerPercent must be below cpuAllocatableEvictThresholdPercent": {
			{`{"cpuAllocatableEvictThresholdPercent": 100}`, `{"cpuAllocatableEvictThresholdPercent": 120, "cpuAllocatableEvictLowerPercent": 110}`},
			{`{"cpuAllocatableEvictLowerPercent": 100}`, `{"cpuAllocatableEvictThresholdPercent": 90, "cpuAllocatableEvictLowerPercent": 80}`},
		},
		"catRangeStartPercent must be below catRangeEndPercent": {
			{`{"catRangeEndPercent": 30}`, `{"catRangeStartPercent": 40, "catRangeEndPercent": 60}`},
			{`{"catRangeStartPercent": 70}`, `{"catRangeStartPercent": 20, "catRangeEndPercent": 60}`},
		},
		"blkioQOS and blkIOQOS are two spellings of one field and differ; keep one": {
			{`{"blkIOQOS": {"enable": true}}`, `{"blkioQOS": {"enable": false}}`},
			{`{"blkIOQOS": {"enable": true}}`, `{"blkioQOS": {"blocks": [{"name": "sda", "type": "device"}]}}`},
		},
		spelt("enable", "enable"): {
			{`{"resourceThresholdStrategy": {"enable": true}}`, `{"resourceUsedThresholdWithBE": {"enable": false}}`},
		},
		spelt("cpuSuppressThresholdPercent", "thresholds.cpu-suppress-percent"): {
			{`{"resourceThresholdStrategy": {"thresholds": {"cpu-suppress-percent": 65}}}`, `{"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 60}}`},
		},
		spelt("cpuEvictPSIThresholdPercent", "thresholds.cpu-evict-threshold-percent"): {
			{`{"resourceThresholdStrategy": {"thresholds": {"cpu-evict-threshold-percent": 85}}}`, `{"resourceUsedThresholdWithBE": {"cpuEvictPSIThresholdPercent": 60}}`},
		},
		spelt("memoryEvictThresholdPercent", "thresholds.memory-evict-threshold-percent"): {
			{`{"resourceThresholdStrategy": {"thresholds": {"memory-evict-threshold-percent": 75}}}`, `{"resourceUsedThresholdWithBE": {"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 72}}`},
		},
		spelt("memoryRequestUtilizationPercent", "thresholds.memory-request-utilization-percent"): {
			{`{"resourceThresholdStrategy": {"thresholds": {"memory-request-utilization-percent": 80}}}`, `{"resourceUsedThresholdWithBE": {"memoryRequestUtilizationPercent": 60}}`},
		},
	}
	withinOne = []string{
		"each name once per type in blocks", "a whole number is percent of the total bandwidth, 0..100; bit/s are a string",
	}
)

func spelt(canonical, seed string) string {
	return "resourceUsedThresholdWithBE." + canonical + " and resourceThresholdStrategy." + seed + " are two spellings of one field and differ; keep one"
}

// TestEveryRule: each rule of the definition over several fields, wherever it holds, would refuse what the cluster says beside what a user has written
// of it. What is applied is taken, by API server and node; the user's fields stand, and the rest of the strategy with them. A rule of the definition that
// is not listed fails.
func TestEveryRule(t *testing.T) {
	t.Parallel()
	root := definition(t)
	validator := cel.NewValidator(root, true, math.MaxInt64)
	refusal := func(spec ownership.Tree) string {
		o := ownership.Tree{"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": ownership.Tree{"name": "node-1"}, "spec": spec}
		errs, _ := validator.Validate(t.Context(), nil, root, o, nil, math.MaxInt64)
		var out []string
		for _, e := range errs {
			out = append(out, e.Error())
		}
		return strings.Join(out, "; ")
	}
	all := map[string][]ownership.Path{}
	places("", root, all)
	for message := range halves {
		if all[message] == nil {
			t.Errorf("the definition has no rule any more with which it says %q", message)
		}
	}
	for _, message := range slices.Sorted(maps.Keys(all)) {
		cases := halves[message]
		if (cases == nil) != slices.Contains(withinOne, message) {
			t.Errorf("%v: %q: say whether it is one over several fields, and what others may have written of it", all[message], message)
		}
		for _, at := range all[message] {
			for _, c := range cases {
				theirs, wanted := nested(t, at, c.theirs), nested(t, at, c.wanted)
				wanted["cpuBurstStrategy"] = ownership.Tree{"policy": "auto"}
				stored := &pernode.Stored{Spec: theirs, Managed: ownedBy(t, "user", theirs)}
				bare, err := pernode.Plan(pernode.Found{Wanted: wanted, Stored: stored})
				if err != nil {
					t.Fatal(err)
				}
				if got := refusal(applied(theirs, bare)); !strings.Contains(got, message) {
					t.Errorf("%s: %s beside %s is no case of %q: %s", at, c.wanted, c.theirs, message, got)
				}
				k := kind()
				step, err := pernode.Plan(pernode.Found{Wanted: wanted, Stored: stored, Alias: k.Alias, Rules: k.Rules})
				if err != nil {
					t.Fatal(err)
				}
				got := applied(theirs, step)
				if why := refusal(got); why != "" {
					t.Errorf("%s: %s beside %s: refused: %s", at, c.wanted, c.theirs, why)
				}
				if err := nodeTakes(got); err != nil {
					t.Errorf("%s: %s beside %s: the node refuses it: %v", at, c.wanted, c.theirs, err)
				}
				is := ownership.Leaves(got)
				for p, v := range ownership.Leaves(theirs) {
					if is[p] != v {
						t.Errorf("%s: %s is %v, the user's is %v", at, p, is[p], v)
					}
				}
				if is["/cpuBurstStrategy/policy"] != "auto" {
					t.Errorf("%s: %s beside %s: the rest does not come: %v", at, c.wanted, c.theirs, got)
				}
			}
		}
	}
}

// TestNodesReading: the API server compares the lower threshold with the default where the upper one is in the documents' spelling, the node with what
// is written: what the manager adds is right by both.
func TestNodesReading(t *testing.T) {
	t.Parallel()
	k := kind()
	for text, want := range map[string]int64{ // of a lower threshold of 65
		`{"resourceThresholdStrategy": {"thresholds": {"memory-evict-threshold-percent": 62}}}`: 0,
		`{"resourceThresholdStrategy": {"thresholds": {"memory-evict-threshold-percent": 66}}}`: 65,
		`{"resourceThresholdStrategy": {"enable": true}}`:                                       65,
	} {
		theirs := nested(t, "/spec", text)
		wanted := nested(t, "/spec/resourceUsedThresholdWithBE", `{"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 65}`)
		step, err := pernode.Plan(pernode.Found{Wanted: wanted, Stored: &pernode.Stored{Spec: theirs, Managed: ownedBy(t, "user", theirs)}, Alias: k.Alias, Rules: k.Rules})
		if err != nil {
			t.Fatal(err)
		}
		got := applied(theirs, step)
		lower, _ := ownership.Leaves(got)["/resourceUsedThresholdWithBE/memoryEvictLowerPercent"].(int64)
		if err := nodeTakes(got); err != nil || lower != want {
			t.Errorf("%s: lower is %d, want %d; %v", text, lower, want, err)
		}
	}
}

// nested reads a part of a spec that stands at a place of the definition.
func nested(t *testing.T, at ownership.Path, text string) ownership.Tree {
	t.Helper()
	steps := strings.Split(strings.TrimPrefix(at, "/spec"), "/")[1:]
	for _, name := range slices.Backward(steps) {
		text = `{"` + name + `": ` + text + `}`
	}
	out, err := ownership.TreeOf(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ownedBy are managed fields by which somebody has written all of a spec.
func ownedBy(t *testing.T, who string, spec ownership.Tree) []metav1.ManagedFieldsEntry {
	t.Helper()
	var fields func(v any) any
	fields = func(v any) any {
		out := map[string]any{}
		if below, is := v.(ownership.Tree); is {
			for name, v := range below {
				out["f:"+name] = fields(v)
			}
		}
		return out
	}
	text, err := json.Marshal(map[string]any{"f:spec": fields(spec)})
	if err != nil {
		t.Fatal(err)
	}
	return []metav1.ManagedFieldsEntry{{Manager: who, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(string(text))}}
}

// applied is a user's spec with what a step applies beside it.
func applied(theirs ownership.Tree, step pernode.Step) ownership.Tree {
	if step.Apply == nil {
		return theirs
	}
	spec, _ := step.Apply.Object["spec"].(ownership.Tree)
	var over func(base, more ownership.Tree) ownership.Tree
	over = func(base, more ownership.Tree) ownership.Tree {
		out := maps.Clone(base)
		if out == nil {
			out = ownership.Tree{}
		}
		for name, v := range more {
			if below, is := v.(ownership.Tree); is {
				mine, _ := out[name].(ownership.Tree)
				v = over(mine, below)
			}
			out[name] = v
		}
		return out
	}
	return over(theirs, spec)
}

// nodeTakes is what the node says of a spec: it refuses the whole of one that is wrong.
func nodeTakes(spec ownership.Tree) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	var w strategy.Wire
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	_, err = w.Checked()
	return err
}
