// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestVersionsKeepEachOther: what one version of a kind has every other has too, with the same type, and none asks for what another may leave
// out. Without a conversion webhook the API server goes from one to the other by the apiVersion alone: a write as the version that lacks a
// field takes it away, whoever wrote it.
func TestVersionsKeepEachOther(t *testing.T) {
	t.Parallel()
	several := 0
	for name, d := range current(t) {
		if len(d.Spec.Versions) > 1 {
			several++
		}
		for _, p := range apart(d) {
			t.Errorf("%s: %s", name, p)
		}
	}
	if several == 0 {
		t.Error("no kind has two versions: nothing is compared")
	}
}

// apart says in what the versions of a definition that converts by the apiVersion alone are not the same fields.
func apart(d *definition) []string {
	if d.Spec.Conversion["strategy"] == "Webhook" {
		return nil
	}
	var out []string
	for _, a := range d.Spec.Versions {
		for _, b := range d.Spec.Versions {
			if a.Name == b.Name {
				continue
			}
			places := map[string]*schema{}
			b.Schema.Root.walk("", func(path string, s *schema) { places[path] = s })
			lost := "\x00"
			a.Schema.Root.walk("", func(path string, s *schema) {
				other := places[path]
				switch {
				case below(path, lost): // said once
				case other == nil:
					lost = path
					out = append(out, fmt.Sprintf("%s of %s is not in %s, and goes with a write as that", path, a.Name, b.Name))
				case s.kind() != other.kind() || s.Format != other.Format:
					out = append(out, fmt.Sprintf("%s is %s %s in %s and %s %s in %s", path, s.kind(), s.Format, a.Name, other.kind(), other.Format, b.Name))
				default:
					for _, r := range other.Required {
						if !slices.Contains(s.Required, r) {
							out = append(out, fmt.Sprintf("%s.%s is required in %s and not in %s", path, r, b.Name, a.Name))
						}
					}
				}
			})
		}
	}
	return out
}

const twoVersions = `
kind: CustomResourceDefinition
metadata: {name: things.test}
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [a], properties: {a: {type: string}, b: {type: integer}}}}}
  - name: v2
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [a], properties: {a: {type: string}, b: {type: integer}}}}}
`

// TestApart: each way in which two versions lose something to each other.
func TestApart(t *testing.T) {
	t.Parallel()
	const last = "b: {type: integer}}}}}\n"
	for name, c := range map[string]struct{ from, to, want string }{
		"the same fields":           {"", "", ""},
		"a new field":               {last, "b: {type: integer}, c: {type: object, properties: {d: {type: string}}}}}}}\n", "spec.c of v2 is not in v1, and goes with a write as that"},
		"a field that went":         {", " + last, "}}}}\n", "spec.b of v1 is not in v2, and goes with a write as that"},
		"another type":              {last, "b: {type: string}}}}}\n", "spec.b is integer  in v1 and string  in v2; spec.b is string  in v2 and integer  in v1"},
		"required in one":           {"required: [a], properties: {a: {type: string}, " + last, "required: [a, b], properties: {a: {type: string}, " + last, "spec.b is required in v2 and not in v1"},
		"a webhook that knows both": {last, "}}}}\n  conversion: {strategy: Webhook}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head, text, _ := strings.Cut(twoVersions, "- name: v2")
			if !strings.Contains(text, c.from) {
				t.Fatalf("%q is not there", c.from)
			}
			var d definition
			if err := yaml.Unmarshal([]byte(head+"- name: v2"+strings.Replace(text, c.from, c.to, 1)), &d); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(apart(&d), "; "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
