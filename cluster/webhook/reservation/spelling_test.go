// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reservation

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
)

// misspelt is a template with a field that is no field of a pod, and so many CPUs.
func misspelt(cpu int) string {
	return fmt.Sprintf("{spec: {containers: [{resources: {requests: {cpu: %d}}}], conatiners: [{resources: {requests: {cpu: 9}}}]}}", cpu)
}

const conatiners = "spec.template.spec.conatiners: unknown field: write containers"

// TestSpelling: what is misspelt in a template is refused by its path when it comes, and warned of when it stays; what is only unknown, as a newer
// Kubernetes' field, is warned of.
func TestSpelling(t *testing.T) {
	t.Parallel()
	room := func(inner string) string {
		return with("template", "{spec: {containers: [{resources: {requests: {cpu: 1}}"+inner+"}]}}")
	}
	for name, c := range map[string]struct {
		now, was       string
		want, warnings []string
	}{
		"letters swapped":              {now: with("template", misspelt(1)), want: []string{conatiners}},
		"a letter left out":            {now: room(", imge: x"), want: []string{"spec.template.spec.containers[0].imge: unknown field: write image"}},
		"a letter too many":            {now: room(", resourcess: {}"), warnings: []string{"containers[0].resourcess: unknown field, which is kept"}}, // as a newer list
		"another letter":               {now: room(", securityContekt: {runAsUser: 1}"), want: []string{"containers[0].securityContekt: unknown field: write securityContext"}},
		"another case":                 {now: room(", ImagePullPolicy: Always"), want: []string{"write imagePullPolicy"}},
		"in metadata":                  {now: with("template", "{metadata: {lables: {a: b}}, spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"), want: []string{"spec.template.metadata.lables: unknown field: write labels"}},
		"two, both told":               {now: room(", imge: x, comand: [a]"), want: []string{"write image", "write command"}},
		"no list":                      {now: with("template", "{spec: {container: [{name: a}]}}"), warnings: []string{"asks for nothing", "spec.template.spec.container: unknown field, which is kept"}},
		"a field of tomorrow":          {now: room(", memoryPolicyRules: [{a: b}]"), warnings: []string{"spec.template.spec.containers[0].memoryPolicyRules: unknown field, which is kept: see whether it is spelt right"}},
		"a short name":                 {now: with("template", "{spec: {volumes: [{name: a, cfs: {}}], containers: [{resources: {requests: {cpu: 1}}}]}}"), warnings: []string{"spec.template.spec.volumes[0].cfs: unknown field, which is kept"}},
		"upstream's sample":            {now: with("template", "{namespace: default, spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"), warnings: []string{"spec.template.namespace: unknown field"}},
		"keys of a map":                {now: with("template", "{metadata: {labels: {lables: a}}, spec: {nodeSelector: {conatiners: b}, containers: [{resources: {requests: {cpu: 1, memroy: 1}}}]}}")},
		"a name with dots":             {now: room(`, "x.y[": 1`), warnings: []string{"containers[0].x.y[: unknown field"}},
		"a long name":                  {now: room(", " + strings.Repeat("x", 999) + ": 1"), warnings: []string{"xxx: unknown field, which is kept"}},
		"it comes with a change":       {now: with("template", misspelt(1)), was: with("template", "{spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"), want: []string{conatiners}},
		"it stays, a longer life":      {now: with("template", misspelt(1), "ttl", "1h"), was: with("template", misspelt(1)), warnings: []string{conatiners}},
		"it stays, another amount":     {now: with("template", misspelt(2)), was: with("template", misspelt(1)), warnings: []string{conatiners}},
		"it stays, a finalizer goes":   {now: with("template", misspelt(1), "deletionTimestamp", `"2026-01-01T00:00:00Z"`), was: with("template", misspelt(1)), warnings: []string{conatiners}},
		"it is mended":                 {now: room(""), was: with("template", misspelt(1))},
		"it comes where none was read": {now: with("template", misspelt(1)), was: with("template", "3"), want: []string{conatiners}},
		"one of too many is mended":    {now: with("template", many(120, "image")), was: with("template", many(120, "imge")), warnings: make([]string, 21)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := handlers(t)
			says(t, ask(t, r, "user", c.now, c.was), c.want, c.warnings)
		})
	}
}

// many is a template with so many misspelt fields behind one of that name.
func many(n int, first string) string {
	container := func(field string) string { return "{resources: {requests: {cpu: 1}}, " + field + ": x}, " }
	return "{spec: {containers: [" + container(first) + strings.Repeat(container("imge"), n) + "]}}"
}

func TestJobSpelling(t *testing.T) {
	t.Parallel()
	job := func(template string) string {
		return "metadata: {name: j}\nspec: {podRef: {namespace: a, name: b}, reservationOptions: {template: " + template + "}}"
	}
	const at = "spec.reservationOptions.template."
	for name, c := range map[string]struct {
		now, was       string
		want, warnings []string
	}{
		"in the pod":            {now: job("{spec: {template: " + misspelt(1) + "}}"), want: []string{at + "spec.template.spec.conatiners: unknown field: write containers"}},
		"in the reservation":    {now: job("{spec: {ownrs: [{}]}}"), want: []string{at + "spec.ownrs: unknown field: write owners"}},
		"in its metadata":       {now: job("{metadata: {anotations: {}}}"), want: []string{at + "metadata.anotations: unknown field: write annotations"}},
		"a field of tomorrow":   {now: job("{spec: {replicas: 3}}"), warnings: []string{at + "spec.replicas: unknown field, which is kept"}},
		"it stays, and changes": {now: job("{spec: {ownrs: [{}], ttl: 5m}}"), was: job("{spec: {ownrs: [{}]}}"), warnings: []string{"write owners"}},
		"no template":           {now: job("null")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, j := handlers(t)
			says(t, ask(t, j, "user", c.now, c.was), c.want, c.warnings)
		})
	}
}

// TestNewFieldsAreNoMisspelling: no two fields of one struct are a letter apart. Had we known all but one of them, that one would not have been
// refused when Kubernetes got it: so it is, as far as this can be told, with the next one.
func TestNewFieldsAreNoMisspelling(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if seen[of] {
			return
		}
		seen[of] = true
		all := fields(of)
		for _, a := range slices.Sorted(maps.Keys(all)) {
			for b := range all {
				if a != b && misspells(a, b) {
					t.Errorf("%s: %s counts as a misspelling of %s", of, a, b)
				}
			}
			walk(all[a])
		}
	}
	walk(reflect.TypeFor[schedulingv1alpha1.PodMigrationJobSpec]())
	if len(seen) < 150 {
		t.Errorf("%d types", len(seen))
	}
}
