// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// accepted are changes against the rules that somebody has decided on: the change in words, and why. Nothing has been released yet: released/ has the
// definitions of 2026-11-22, and the first release begins with its own and with none of these.
var accepted = map[string]string{
	reportsHave("hostApplicationMetric", 2000):                              noNodeHasThose,
	reportsHave("podMetrics", 2000):                                         noNodeHasThose,
	reportsHave("podsMetric", 2000):                                         noNodeHasThose,
	reportsHave("nodeMetric.numaUsages", 1024):                              noNodeHasThose,
	reportsHave("hostApplicationMetric[].usage.devices", 256):               noNodeHasThose,
	reportsHave("nodeMetric.aggregatedNodeUsages[].usage{}.devices", 256):   noNodeHasThose,
	reportsHave("nodeMetric.aggregatedSystemUsages[].usage{}.devices", 256): noNodeHasThose,
	reportsHave("nodeMetric.nodeUsage.devices", 256):                        noNodeHasThose,
	reportsHave("nodeMetric.numaUsages[].nodeUsage.devices", 256):           noNodeHasThose,
	reportsHave("nodeMetric.numaUsages[].systemUsage.devices", 256):         noNodeHasThose,
	reportsHave("nodeMetric.systemUsage.devices", 256):                      noNodeHasThose,
	reportsHave("podsMetric[].podUsage.devices", 256):                       noNodeHasThose,
	reportsHave("prodPeakMetric.resource.devices", 256):                     noNodeHasThose,
	reportsHave("prodReclaimableMetric.resource.devices", 256):              noNodeHasThose,

	newRule("nodemetrics.slo.koordinator.sh", "status.nodeMetric", sameUsage):        "a reader of the other spelling saw another node",
	layersHave("spec.networkTopologySpec", "maxItems", 64):                           noSuchLayers,
	layersHave("spec.networkTopologySpec[].topologyLayer", "minLength", 1):           noSuchLayers,
	layersHave("spec.networkTopologySpec[].topologyLayer", "maxLength", 63):          noSuchLayers,
	layersHave("spec.networkTopologySpec[].parentTopologyLayer", "maxLength", 63):    noSuchLayers,
	layersHave("spec.networkTopologySpec[].labelKey[]", "minLength", 1):              noSuchLayers,
	newRule(networkLayers, "spec.networkTopologySpec", layersOnce):                   noSuchLayers,
	newRule(networkLayers, "spec.networkTopologySpec", parentsListed):                noSuchLayers,
	newRule(networkLayers, "spec.networkTopologySpec[]", parentAbove):                noSuchLayers,
	newRule(networkLayers, "spec.networkTopologySpec[]", rootHasNone):                noSuchLayers,
	newRule("podmigrationjobs.scheduling.koordinator.sh", "spec.podRef", podNamed):   movesNothing,
	newRule("podmigrationjobs.scheduling.koordinator.sh", "spec.podRef", podAndKind): movesNothing,
	newRule("devices.scheduling.koordinator.sh", "spec.devices", idsOnce):            "a device that stands twice doubled what its node has",
}

const idsOnce = `[self.map(d, has(d.id) ? d.id : has(d.uuid) ? d.uuid : '')].all(ids, ids.all(u, u == '' || ids.indexOf(u) == ids.lastIndexOf(u)))`

const (
	networkLayers = "clusternetworktopologies.scheduling.koordinator.sh"
	layersOnce    = `[self.map(l, l.topologyLayer)].all(names, names.all(n, names.indexOf(n) == names.lastIndexOf(n)))`
	parentsListed = `self.all(l, !has(l.parentTopologyLayer) || l.parentTopologyLayer in ['', 'ClusterTopologyLayer'] || self.exists(m, m.topologyLayer == l.parentTopologyLayer))`
	parentAbove   = `!has(self.parentTopologyLayer) || self.parentTopologyLayer != self.topologyLayer && self.parentTopologyLayer != 'NodeTopologyLayer'`
	rootHasNone   = `self.topologyLayer != 'ClusterTopologyLayer' || !has(self.parentTopologyLayer) || size(self.parentTopologyLayer) == 0`
	noSuchLayers  = "what is no tree of layers means nothing to any scheduler, and no network has 64 layers"
)

func layersHave(at, bound string, value int) string {
	return fmt.Sprintf("%s v1alpha1: %s: %s has become %d", networkLayers, at, bound, value)
}

const (
	podNamed     = `has(self.name) && size(self.name) > 0 && has(self.__namespace__) && size(self.__namespace__) > 0`
	podAndKind   = `!has(self.kind) || self.kind in ['', 'Pod']`
	movesNothing = "a job that names no pod fails as soon as somebody works on it"
)

const sameUsage = `!has(self.usage) || !has(self.nodeUsage) || !has(self.nodeUsage.resources) || ['cpu', 'memory'].all(r, !(r in self.usage) || !(r in self.nodeUsage.resources) || quantity(string(self.usage[r])).compareTo(quantity(string(self.nodeUsage.resources[r]))) == 0)`

// newRule between fields: an object that was stored before and breaks it stays as it is until its field changes.
func newRule(definition, at, rule string) string {
	return definition + " v1alpha1: " + at + ": new rule " + rule
}

// noNodeHasThose: entries without content cost a reader a hundred times their bytes, and one node's credentials would end the manager of
// all. A kubelet runs some hundred pods, a Device has 256 devices.
const noNodeHasThose = "what a node reports is bounded far above what it can have"

func reportsHave(list string, most int) string {
	return fmt.Sprintf("nodemetrics.slo.koordinator.sh v1alpha1: status.%s: maxItems has become %d", list, most)
}

// Patterns of a quantity before and after hack/crdbounds: what only the first takes has a fraction in its exponent, which no program
// reads, more digits than any amount needs, or an exponent by which a program computes for minutes. Nobody has use for an object with it, so
// this one narrowing is no break.
const (
	anyNumber     = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	boundedNumber = `^(\+|-)?(([0-9]{1,40}(\.[0-9]{0,40})?)|(\.[0-9]{1,40}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
)

// TestReleasedKeepsWorking: an object that was accepted under the released definitions is accepted under these, and means the
// same. New fields are optional, no type changes, and what goes was deprecated for a release.
func TestReleasedKeepsWorking(t *testing.T) {
	t.Parallel()
	old, now := released(t), current(t)
	if len(old) == 0 {
		t.Fatal("nothing is released")
	}
	said := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		for _, p := range compare(old[name], now[name]) {
			said[name+" "+p] = true
			if accepted[name+" "+p] == "" {
				t.Errorf("%s %s", name, p)
			}
		}
	}
	for a := range accepted {
		if !said[a] {
			t.Errorf("accepted and not so: %s", a)
		}
	}
}

// compare says what of old no longer holds.
func compare(old, now *definition) []string {
	if now == nil {
		return []string{"is gone"}
	}
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if old.Spec.Group != now.Spec.Group || old.Spec.Scope != now.Spec.Scope || old.Spec.Names.Kind != now.Spec.Names.Kind ||
		old.Spec.Names.Plural != now.Spec.Names.Plural || old.Spec.Names.Singular != now.Spec.Names.Singular {
		say("has another group, scope, kind or name")
	}
	for _, s := range old.Spec.Names.ShortNames {
		if !slices.Contains(now.Spec.Names.ShortNames, s) {
			say("is no longer called %s", s)
		}
	}
	for _, c := range old.Spec.Names.Categories {
		if !slices.Contains(now.Spec.Names.Categories, c) {
			say("is no longer one of kubectl get %s", c)
		}
	}
	for _, v := range old.Spec.Versions {
		i := slices.IndexFunc(now.Spec.Versions, func(n version) bool { return n.Name == v.Name })
		if i < 0 || v.Served && !now.Spec.Versions[i].Served {
			say("%s: is not served", v.Name)
			continue
		}
		n := now.Spec.Versions[i]
		for sub := range v.Subresources {
			if _, ok := n.Subresources[sub]; !ok {
				say("%s: has no subresource %s", v.Name, sub)
			}
		}
		for _, p := range columns(v.Columns, n.Columns) {
			say("%s: %s", v.Name, p)
		}
		for _, p := range against(v.Schema.Root, n.Schema.Root) {
			say("%s: %s", v.Name, p)
		}
	}
	return out
}

// columns says which columns of kubectl get are gone or show another field: scripts read them by name.
func columns(old, now []map[string]any) []string {
	var out []string
	for _, o := range old {
		i := slices.IndexFunc(now, func(n map[string]any) bool { return n["name"] == o["name"] })
		if i < 0 {
			out = append(out, fmt.Sprintf("has no column %v", o["name"]))
		} else if n := now[i]; n["jsonPath"] != o["jsonPath"] || n["type"] != o["type"] {
			out = append(out, fmt.Sprintf("column %v shows %v %v, no longer %v %v", o["name"], n["type"], n["jsonPath"], o["type"], o["jsonPath"]))
		}
	}
	return out
}

// below tells whether a place is top or lies in it: spec.older does not lie in spec.old.
func below(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || top == "" || strings.ContainsRune(".[{", rune(rest[0])))
}

// against compares two schemas place by place.
func against(old, now *schema) []string {
	var out []string
	places := map[string]*schema{}
	now.walk("", func(path string, s *schema) { places[path] = s })
	dropped := "\x00"
	old.walk("", func(path string, o *schema) {
		if below(path, dropped) {
			return // said once
		}
		n := places[path]
		if n == nil {
			dropped = path
			if !strings.HasPrefix(o.Description, "Deprecated") {
				out = append(out, path+": is gone and was not deprecated")
			}
			return
		}
		for _, p := range narrower(o, n) {
			out = append(out, path+": "+p)
		}
	})
	return out
}

// narrower says in what now takes less than old, or takes it otherwise.
func narrower(old, now *schema) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if old.kind() != now.kind() || old.Format != now.Format {
		say("type %s %s has become %s %s", old.kind(), old.Format, now.kind(), now.Format)
	}
	for _, r := range now.Required {
		if !slices.Contains(old.Required, r) {
			say("%s has become required", r)
		}
	}
	if len(now.Enum) > 0 && len(old.Enum) == 0 {
		say("takes only %v", now.Enum)
	}
	for _, e := range old.Enum {
		if len(now.Enum) > 0 && !slices.Contains(now.Enum, e) {
			say("no longer takes %v", e)
		}
	}
	if now.Pattern != "" && now.Pattern != old.Pattern && (old.Pattern != anyNumber || now.Pattern != boundedNumber) {
		say("pattern has become %s", now.Pattern)
	}
	for _, b := range []struct {
		name     string
		old, now *float64
		lower    bool
	}{
		{"minimum", old.Minimum, now.Minimum, true}, {"maximum", old.Maximum, now.Maximum, false},
		{"minLength", old.MinLength, now.MinLength, true}, {"maxLength", old.MaxLength, now.MaxLength, false},
		{"minItems", old.MinItems, now.MinItems, true}, {"maxItems", old.MaxItems, now.MaxItems, false},
		{"minProperties", old.MinProps, now.MinProps, true}, {"maxProperties", old.MaxProps, now.MaxProps, false},
	} {
		if b.now != nil && (b.old == nil || b.lower && *b.now > *b.old || !b.lower && *b.now < *b.old) {
			say("%s has become %v", b.name, *b.now)
		}
	}
	if m := now.MultipleOf; m != nil && (old.MultipleOf == nil || math.Mod(*old.MultipleOf, *m) != 0) {
		say("multipleOf has become %v", *m)
	}
	for _, j := range []struct {
		name     string
		old, now any
		some     bool
	}{
		{"allOf", old.AllOf, now.AllOf, len(now.AllOf) > 0}, {"anyOf", old.AnyOf, now.AnyOf, len(now.AnyOf) > 0},
		{"oneOf", old.OneOf, now.OneOf, len(now.OneOf) > 0}, {"not", old.Not, now.Not, now.Not != nil},
	} {
		// Which of two such conditions takes more is not told from their text: any change but to none is for somebody to accept.
		if j.some && !reflect.DeepEqual(j.old, j.now) {
			say("%s %v has become %v", j.name, j.old, j.now)
		}
	}
	if now.Embedded && !old.Embedded {
		say("takes only whole objects")
	}
	if !reflect.DeepEqual(old.Default, now.Default) {
		say("default %v has become %v", old.Default, now.Default)
	}
	if old.Nullable && !now.Nullable {
		say("no longer takes null")
	}
	if old.Preserve && !now.Preserve {
		say("no longer keeps what it does not know")
	}
	if old.ListType != now.ListType || !slices.Equal(old.ListKeys, now.ListKeys) {
		say("list %s %v has become %s %v", old.ListType, old.ListKeys, now.ListType, now.ListKeys)
	}
	if old.MapType != now.MapType {
		say("map %s has become %s", old.MapType, now.MapType)
	}
	for _, r := range now.Rules {
		if !slices.ContainsFunc(old.Rules, func(o rule) bool { return o.Rule == r.Rule }) {
			say("new rule %s", r.Rule)
		}
	}
	return out
}

const before = `
kind: CustomResourceDefinition
metadata: {name: things.test}
spec:
  group: test
  scope: Cluster
  names: {kind: Thing, plural: things, singular: thing, shortNames: [th], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Level, type: integer, jsonPath: .spec.level}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [name]
            properties:
              name: {type: string, maxLength: 9}
              level: {type: integer, minimum: 0, maximum: 9, default: 3}
              mode: {type: string, enum: [a, b]}
              old: {type: object, description: Deprecated. Use name., properties: {q: {type: string}}}
              older: {type: string}
              step: {type: integer, multipleOf: 4}
              when: {type: string, nullable: true}
              more: {type: object, x-kubernetes-preserve-unknown-fields: true}
              list: {type: array, items: {type: object, properties: {x: {type: string}}}}
              labels: {type: object, additionalProperties: {type: string}}
              any: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}
`

// TestCompare: each rule, by a change that breaks it, or keeps to it.
func TestCompare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, want string }{
		"the same":      {"", "", ""},
		"new field":     {"mode:", "extra: {type: string}\n              mode:", ""},
		"wider":         {"maximum: 9", "maximum: 12", ""},
		"another value": {"[a, b]", "[a, b, c]", ""},
		"any value":     {"enum: [a, b]", "x: y", ""},
		"deprecated":    {"              old: {type: object, description: Deprecated. Use name., properties: {q: {type: string}}}\n", "", ""},
		"and one beside it": {
			"              old: {type: object, description: Deprecated. Use name., properties: {q: {type: string}}}\n              older: {type: string}\n", "",
			"v1: spec.older: is gone and was not deprecated",
		},
		"gone":              {"              mode: {type: string, enum: [a, b]}\n", "", "v1: spec.mode: is gone and was not deprecated"},
		"gone below a list": {"properties: {x: {type: string}}", "properties: {y: {type: string}}", "v1: spec.list[].x: is gone and was not deprecated"},
		"type":              {"level: {type: integer", "level: {type: string", "v1: spec.level: type integer  has become string "},
		"type of values":    {"additionalProperties: {type: string}", "additionalProperties: {type: integer}", "v1: spec.labels{}: type string  has become integer "},
		"required":          {"required: [name]", "required: [name, mode]", "v1: spec: mode has become required"},
		"new and required":  {"required: [name]\n            properties:", "required: [name, extra]\n            properties:\n              extra: {type: string}", "v1: spec: extra has become required"},
		"lower maximum":     {"maximum: 9", "maximum: 8", "v1: spec.level: maximum has become 8"},
		"higher minimum":    {"minimum: 0", "minimum: 1", "v1: spec.level: minimum has become 1"},
		"shorter":           {"maxLength: 9", "maxLength: 8", "v1: spec.name: maxLength has become 8"},
		"fewer values":      {"[a, b]", "[a]", "v1: spec.mode: no longer takes b"},
		"only values":       {"when: {type: string,", "when: {type: string, enum: [x],", "v1: spec.when: takes only [x]"},
		"pattern":           {"when: {type: string,", "when: {type: string, pattern: x,", "v1: spec.when: pattern has become x"},
		"default":           {"default: 3", "default: 4", "v1: spec.level: default 3 has become 4"},
		"null":              {"nullable: true", "nullable: false", "v1: spec.when: no longer takes null"},
		"pruned":            {"x-kubernetes-preserve-unknown-fields: true", "nullable: true", "v1: spec.more: no longer keeps what it does not know"},
		"list":              {"list: {type: array,", "list: {type: array, x-kubernetes-list-type: set,", "v1: spec.list: list  [] has become set []"},
		"list of another":   {"list: {type: array,", "list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [x],", "v1: spec.list: list  [] has become map [x]"},
		"map":               {"labels: {type: object,", "labels: {type: object, x-kubernetes-map-type: atomic,", "v1: spec.labels: map  has become atomic"},
		"fewer keys":        {"labels: {type: object,", "labels: {type: object, maxProperties: 3,", "v1: spec.labels: maxProperties has become 3"},
		"more keys":         {"labels: {type: object,", "labels: {type: object, minProperties: 1,", "v1: spec.labels: minProperties has become 1"},
		"coarser steps":     {"multipleOf: 4", "multipleOf: 8", "v1: spec.step: multipleOf has become 8"},
		"finer steps":       {"multipleOf: 4", "multipleOf: 2", ""},
		"steps":             {"level: {", "level: {multipleOf: 2, ", "v1: spec.level: multipleOf has become 2"},
		"any of fewer":      {"[{type: integer}, {type: string}]", "[{type: integer}]", "v1: spec.any: anyOf [map[type:integer] map[type:string]] has become [map[type:integer]]"},
		"any of all":        {"anyOf: [{type: integer}, {type: string}], ", "", ""},
		"any of":            {"level: {", "level: {anyOf: [{minimum: 2}], ", "v1: spec.level: anyOf [] has become [map[minimum:2]]"},
		"one of":            {"level: {", "level: {oneOf: [{minimum: 2}], ", "v1: spec.level: oneOf [] has become [map[minimum:2]]"},
		"all of":            {"level: {", "level: {allOf: [{minimum: 2}], ", "v1: spec.level: allOf [] has become [map[minimum:2]]"},
		"not":               {"level: {", "level: {not: {minimum: 2}, ", "v1: spec.level: not <nil> has become map[minimum:2]"},
		"whole object":      {"more: {", "more: {x-kubernetes-embedded-resource: true, ", "v1: spec.more: takes only whole objects"},
		"column gone":       {"name: Level", "name: Depth", "v1: has no column Level"},
		"another column":    {"jsonPath: .spec.level", "jsonPath: .spec.step", "v1: column Level shows integer .spec.step, no longer integer .spec.level"},
		"new column":        {"additionalPrinterColumns: [", "additionalPrinterColumns: [{name: Mode, type: string, jsonPath: .spec.mode}, ", ""},
		"category":          {"categories: [all]", "categories: []", "is no longer one of kubectl get all"},
		"rule":              {"level: {", "level: {x-kubernetes-validations: [{rule: self > 1}], ", "v1: spec.level: new rule self > 1"},
		"subresource":       {"subresources: {status: {}}", "x: y", "v1: has no subresource status"},
		"not served":        {"served: true", "served: false", "v1: is not served"},
		"version gone":      {"name: v1\n", "name: v2\n", "v1: is not served"},
		"short name":        {"shortNames: [th]", "shortNames: [tg]", "is no longer called th"},
		"scope":             {"scope: Cluster", "scope: Namespaced", "has another group, scope, kind or name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(before, c.from) {
				t.Fatalf("%q is not there", c.from)
			}
			var old, now definition
			if err := errors.Join(yaml.Unmarshal([]byte(before), &old), yaml.Unmarshal([]byte(strings.Replace(before, c.from, c.to, 1)), &now)); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(compare(&old, &now), "; "); got != c.want {
				t.Errorf("compare says %q, want %q", got, c.want)
			}
		})
	}
	if got := compare(&definition{}, nil); !slices.Equal(got, []string{"is gone"}) {
		t.Errorf("without a definition: %q", got)
	}
}
