// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// TestNodesWritesAreKept: every field of what the node agent reads and writes (api/slo) has a place in the schema that takes it;
// the API server drops the rest of a status without a word.
func TestNodesWritesAreKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		definition, path string
		value            any
	}{
		{"nodemetrics.slo.koordinator.sh", "status", slo.NodeMetricStatus{}},
		{"nodemetrics.slo.koordinator.sh", "spec", slo.NodeMetricSpec{}},
		{"nodeslos.slo.koordinator.sh", "status", slo.NodeSLOStatus{}},
		{"nodeslos.slo.koordinator.sh", "spec", strategy.Wire{}},
	} {
		k := keeper{t: t, what: c.definition}
		k.check(c.path, reflect.TypeOf(c.value), root(t, c.definition).at(c.path))
		if k.leaves < 3 {
			t.Errorf("%s %s: only %d fields looked at", c.definition, c.path, k.leaves)
		}
	}
}

// keeper walks a Go type beside a schema.
type keeper struct {
	t      *testing.T
	what   string
	leaves int
}

func (k *keeper) check(path string, typ reflect.Type, s *schema) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if s == nil {
		k.t.Errorf("%s %s is written by the node and has no place in the schema", k.what, path)
		return
	}
	if s.Preserve {
		k.leaves++
		return
	}
	want := ""
	switch {
	case typ == reflect.TypeFor[slo.Time]() || typ == reflect.TypeFor[slo.Duration]():
		want = "string"
	case typ == reflect.TypeFor[strategy.Quantity]() || typ == reflect.TypeFor[strategy.IntOrString]():
		want = "int-or-string"
	case typ == reflect.TypeFor[json.RawMessage]():
		k.t.Errorf("%s %s may hold anything, and the schema does not keep it", k.what, path)
		return
	}
	if want == "" {
		switch typ.Kind() {
		case reflect.Struct:
			k.fields(path, typ, s)
			return
		case reflect.Slice:
			k.check(path+"[]", typ.Elem(), s.Items)
			return
		case reflect.Map:
			k.check(path+"{}", typ.Elem(), s.Values)
			return
		case reflect.String:
			want = "string"
		case reflect.Bool:
			want = "boolean"
		case reflect.Int32, reflect.Int64:
			want = "integer"
		default:
			k.t.Errorf("%s %s: %s has no schema", k.what, path, typ)
			return
		}
	}
	k.leaves++
	if s.kind() != want {
		k.t.Errorf("%s %s is %s, the node writes %s", k.what, path, s.kind(), want)
	}
}

func (k *keeper) fields(path string, typ reflect.Type, s *schema) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			k.t.Errorf("%s %s: field %s has no name", k.what, path, f.Name)
			continue
		}
		k.check(path+"."+name, f.Type, s.Properties[name])
	}
}
