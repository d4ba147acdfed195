// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/packaging/crds"
)

// definition is what the tests read of a CustomResourceDefinition.
type definition struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Group      string         `json:"group"`
		Scope      string         `json:"scope"`
		Names      names          `json:"names"`
		Conversion map[string]any `json:"conversion"`
		Versions   []version      `json:"versions"`
	} `json:"spec"`
}

type names struct {
	Kind       string   `json:"kind"`
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	ShortNames []string `json:"shortNames"`
	Categories []string `json:"categories"`
}

type version struct {
	Name         string                    `json:"name"`
	Served       bool                      `json:"served"`
	Storage      bool                      `json:"storage"`
	Subresources map[string]map[string]any `json:"subresources"`
	Columns      []map[string]any          `json:"additionalPrinterColumns"`
	Schema       struct {
		Root *schema `json:"openAPIV3Schema"`
	} `json:"schema"`
}

// schema is a structural schema: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/.
type schema struct {
	Description string             `json:"description"`
	Type        string             `json:"type"`
	Format      string             `json:"format"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Values      *schema            `json:"additionalProperties"`
	Required    []string           `json:"required"`
	Enum        []any              `json:"enum"`
	Pattern     string             `json:"pattern"`
	Default     any                `json:"default"`
	Nullable    bool               `json:"nullable"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	MinLength   *float64           `json:"minLength"`
	MaxLength   *float64           `json:"maxLength"`
	MinItems    *float64           `json:"minItems"`
	MaxItems    *float64           `json:"maxItems"`
	MinProps    *float64           `json:"minProperties"`
	MaxProps    *float64           `json:"maxProperties"`
	MultipleOf  *float64           `json:"multipleOf"`
	AllOf       []any              `json:"allOf"`
	AnyOf       []any              `json:"anyOf"`
	OneOf       []any              `json:"oneOf"`
	Not         any                `json:"not"`
	IntOrString bool               `json:"x-kubernetes-int-or-string"`
	Embedded    bool               `json:"x-kubernetes-embedded-resource"`
	MapType     string             `json:"x-kubernetes-map-type"`
	Preserve    bool               `json:"x-kubernetes-preserve-unknown-fields"`
	ListType    string             `json:"x-kubernetes-list-type"`
	ListKeys    []string           `json:"x-kubernetes-list-map-keys"`
	Rules       []rule             `json:"x-kubernetes-validations"`
}

type rule struct {
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// kind is what sort of value a schema takes.
func (s *schema) kind() string {
	if s.IntOrString {
		return "int-or-string"
	}
	return s.Type
}

// walk visits every place of a schema: a.b[] for items, a.b{} for values of a map.
func (s *schema) walk(path string, visit func(path string, s *schema)) {
	if s == nil {
		return
	}
	visit(path, s)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		s.Properties[name].walk(strings.TrimPrefix(path+"."+name, "."), visit)
	}
	s.Items.walk(path+"[]", visit)
	s.Values.walk(path+"{}", visit)
}

// at finds a place.
func (s *schema) at(path string) *schema {
	var found *schema
	s.walk("", func(p string, s *schema) {
		if p == path {
			found = s
		}
	})
	return found
}

// parse reads one definition.
func parse(text []byte) (*definition, error) {
	var d definition
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("parse definition: %w", err)
	}
	if d.Kind != "CustomResourceDefinition" || len(d.Spec.Versions) == 0 {
		return nil, fmt.Errorf("parse definition: %q with %d versions", d.Kind, len(d.Spec.Versions))
	}
	return &d, nil
}

// load reads the definitions of a folder by name.
func load(t *testing.T, from fs.FS) map[string]*definition {
	t.Helper()
	files, err := fs.Glob(from, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*definition{}
	for _, f := range files {
		text, err := fs.ReadFile(from, f)
		if err != nil {
			t.Fatal(err)
		}
		d, err := parse(text)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[d.Metadata.Name] = d
	}
	return out
}

// current are the definitions as they are generated.
func current(t *testing.T) map[string]*definition {
	t.Helper()
	all := load(t, crds.Files)
	if len(all) < 15 {
		t.Fatalf("%d definitions", len(all))
	}
	return all
}

// root is the schema of one kind's storage version.
func root(t *testing.T, name string) *schema {
	t.Helper()
	d := current(t)[name]
	if d == nil {
		t.Fatalf("no definition %s", name)
	}
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return v.Schema.Root
		}
	}
	t.Fatalf("%s stores no version", name)
	return nil
}

// free are the places whose content is another's: a pod, a patch of one, or what a third party puts there.
var free = []string{
	"nodeslos.slo.koordinator.sh spec.extensions", "nodeslos.slo.koordinator.sh spec.hostApplications[].strategy",
	"nodemetrics.slo.koordinator.sh status.podsMetric[].extensions",
	"reservations.scheduling.koordinator.sh spec.template",
	"podmigrationjobs.scheduling.koordinator.sh spec.reservationOptions.template",
	"scheduleexplanations.scheduling.koordinator.sh spec.questionObjectTemplate",
	"clustercolocationprofiles.config.koordinator.sh spec.patch",
}

// TestDefinitions: one version is stored and served, status is written apart, unknown fields are refused but where another says
// what stands there, no two kinds share a name that kubectl knows them by, and kubectl get has a short one and shows more than name and age.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	taken, open := map[string]string{}, map[string]bool{}
	for name, d := range current(t) {
		if name != d.Spec.Names.Plural+"."+d.Spec.Group {
			t.Errorf("%s is called %s", d.Spec.Names.Plural, name)
		}
		for _, n := range append([]string{d.Spec.Names.Plural, d.Spec.Names.Singular}, d.Spec.Names.ShortNames...) {
			if other := taken[n]; other != "" && other != name {
				t.Errorf("%s and %s are both called %s", name, other, n)
			}
			taken[n] = name
		}
		if strings.HasSuffix(d.Spec.Group, ".k8s.io") && !strings.HasPrefix(d.Metadata.Annotations["api-approved.kubernetes.io"], "https://") {
			t.Errorf("%s: the API server wants to know who has approved a group of k8s.io", name)
		}
		if len(d.Spec.Versions) == 1 && d.Spec.Conversion != nil {
			t.Errorf("%s has one version and a conversion", name)
		}
		if len(d.Spec.Names.ShortNames) == 0 {
			t.Errorf("%s has no short name", name)
		}
		stored := 0
		for _, v := range d.Spec.Versions {
			if v.Storage {
				stored++
			}
			if !slices.ContainsFunc(v.Columns, func(c map[string]any) bool { return c["name"] != "Age" }) {
				t.Errorf("%s %s: kubectl get shows name and age alone", name, v.Name)
			}
			if !v.Served {
				t.Errorf("%s does not serve %s", name, v.Name)
			}
			_, status := v.Subresources["status"]
			if has := v.Schema.Root.Properties["status"] != nil; has != status {
				t.Errorf("%s %s: status in the schema %v, as subresource %v", name, v.Name, has, status)
			}
			v.Schema.Root.walk("", func(path string, s *schema) {
				if s.Preserve {
					open[name+" "+path] = true
				}
			})
		}
		if stored != 1 {
			t.Errorf("%s stores %d versions", name, stored)
		}
	}
	for _, f := range free {
		if !open[f] {
			t.Errorf("%s does not keep what it does not know", f)
		}
		delete(open, f)
	}
	for f := range open {
		t.Errorf("%s keeps what it does not know: a typo there is not refused", f)
	}
	if plural := taken["elasticquota"]; plural != "elasticquotas.scheduling.sigs.k8s.io" {
		t.Errorf("kubectl get elasticquota finds %q", plural)
	}
}

// released is the folder of the last release.
func released(t *testing.T) map[string]*definition {
	t.Helper()
	return load(t, os.DirFS("released"))
}
