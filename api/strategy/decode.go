// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// Bounds of one document: what aliases expand to, nesting, and how many errors are told.
const (
	maxNodes  = 50_000
	maxDepth  = 32
	maxErrors = 20
)

// decoder walks a node tree beside a Go value.
type decoder struct {
	nodes int
	// bytes are those of the texts that are copied, as often as aliases name them.
	bytes int
	errs  []error
}

// decodeInto fills out, a pointer to a struct.
func decodeInto(node *yaml.Node, out any) error {
	d := &decoder{}
	d.value(node, reflect.ValueOf(out).Elem(), "", 0)
	return errors.Join(d.errs...)
}

// fail records an error with path and line.
func (d *decoder) fail(node *yaml.Node, path string, err error) {
	if len(d.errs) >= maxErrors {
		return
	}
	if path == "" {
		path = "document"
	}
	d.errs = append(d.errs, FieldError{Line: node.Line, Path: path, Err: err})
}

// enter counts a node and follows aliases; false stops the walk.
func (d *decoder) enter(node *yaml.Node, path string, depth int) (*yaml.Node, bool) {
	for node.Kind == yaml.AliasNode && node.Alias != nil {
		d.nodes++
		node = node.Alias
	}
	d.nodes++
	if d.nodes > maxNodes || depth > maxDepth {
		d.fail(node, path, ErrTooLarge)
		return node, false
	}
	return node, true
}

// value decodes one node.
func (d *decoder) value(node *yaml.Node, out reflect.Value, path string, depth int) {
	node, ok := d.enter(node, path, depth)
	if !ok {
		return
	}
	if unmarshaler, ok := out.Addr().Interface().(json.Unmarshaler); ok {
		d.custom(node, unmarshaler, path, depth)
		return
	}
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		d.fail(node, path, fmt.Errorf("%w: no value (file cut short?)", ErrValue))
		return
	}
	switch out.Kind() {
	case reflect.Pointer:
		if out.IsNil() {
			out.Set(reflect.New(out.Type().Elem()))
		}
		d.value(node, out.Elem(), path, depth)
	case reflect.Struct:
		d.structure(node, out, path, depth)
	case reflect.Map:
		d.mapping(node, out, path, depth)
	case reflect.Slice:
		d.sequence(node, out, path, depth)
	default:
		d.scalar(node, out, path)
	}
}

// custom hands a node to a json.Unmarshaler.
func (d *decoder) custom(node *yaml.Node, out json.Unmarshaler, path string, depth int) {
	plain, ok := d.plain(node, path, depth)
	if !ok {
		return
	}
	data, err := json.Marshal(plain)
	if err != nil {
		d.fail(node, path, fmt.Errorf("%w: %w", ErrValue, err))
		return
	}
	if err := out.UnmarshalJSON(data); err != nil {
		d.fail(node, path, fmt.Errorf("%w: %w", ErrValue, err))
	}
}

// structure decodes a mapping by json tags.
func (d *decoder) structure(node *yaml.Node, out reflect.Value, path string, depth int) {
	if !d.wantKind(node, path, yaml.MappingNode, "a mapping") {
		return
	}
	for _, pair := range d.pairs(node, path) {
		field, ok := fieldByTag(out, pair.key)
		if !ok {
			d.fail(pair.at, join(path, pair.key), ErrUnknownKey)
			continue
		}
		d.value(pair.value, field, join(path, pair.key), depth+1)
	}
}

// mapping decodes a mapping into a map with string keys.
func (d *decoder) mapping(node *yaml.Node, out reflect.Value, path string, depth int) {
	if !d.wantKind(node, path, yaml.MappingNode, "a mapping") {
		return
	}
	made := reflect.MakeMap(out.Type())
	for _, pair := range d.pairs(node, path) {
		item := reflect.New(out.Type().Elem()).Elem()
		d.value(pair.value, item, join(path, pair.key), depth+1)
		made.SetMapIndex(reflect.ValueOf(pair.key).Convert(out.Type().Key()), item)
	}
	out.Set(made)
}

// sequence decodes a list.
func (d *decoder) sequence(node *yaml.Node, out reflect.Value, path string, depth int) {
	if !d.wantKind(node, path, yaml.SequenceNode, "a list") {
		return
	}
	made := reflect.MakeSlice(out.Type(), 0, 0)
	for i, item := range node.Content {
		if len(d.errs) >= maxErrors {
			return
		}
		value := reflect.New(out.Type().Elem()).Elem()
		d.value(item, value, fmt.Sprintf("%s[%d]", path, i), depth+1)
		made = reflect.Append(made, value)
	}
	out.Set(made)
}

// scalar decodes text, number or boolean; the YAML type must be the Go type.
func (d *decoder) scalar(node *yaml.Node, out reflect.Value, path string) {
	want, tag := "a string (quote it)", "!!str"
	switch out.Kind() {
	case reflect.Bool:
		want, tag = "true or false", "!!bool"
	case reflect.Int, reflect.Int32, reflect.Int64:
		want, tag = "a whole number", "!!int"
	}
	if !d.wantKind(node, path, yaml.ScalarNode, want) {
		return
	}
	if node.ShortTag() != tag || node.Decode(out.Addr().Interface()) != nil {
		d.fail(node, path, fmt.Errorf("%w: want %s, have %.60q", ErrValue, want, node.Value))
	}
	d.copied(node, path)
}

// wantKind checks a node's kind.
func (d *decoder) wantKind(node *yaml.Node, path string, kind yaml.Kind, want string) bool {
	if node.Kind == kind {
		return true
	}
	d.fail(node, path, fmt.Errorf("%w: want %s", ErrValue, want))
	return false
}

// pair is one entry of a mapping.
type pair struct {
	key   string
	at    *yaml.Node
	value *yaml.Node
}

// pairs lists a mapping's entries; non-string and repeated keys are errors.
func (d *decoder) pairs(node *yaml.Node, path string) []pair {
	out := make([]pair, 0, len(node.Content)/2)
	seen := make(map[string]bool, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge":
			d.fail(key, path, fmt.Errorf("%w: merge and complex keys are not supported", ErrValue))
		case seen[key.Value]:
			d.fail(key, join(path, key.Value), ErrDuplicateKey)
		default:
			seen[key.Value] = true
			out = append(out, pair{key: key.Value, at: key, value: node.Content[i+1]})
		}
	}
	return out
}

// plain turns a node into what encoding/json writes.
func (d *decoder) plain(node *yaml.Node, path string, depth int) (any, bool) {
	node, ok := d.enter(node, path, depth)
	if !ok {
		return nil, false
	}
	switch node.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(node.Content)/2)
		for _, pair := range d.pairs(node, path) {
			if !d.copied(pair.at, path) {
				return nil, false
			}
			if out[pair.key], ok = d.plain(pair.value, join(path, pair.key), depth+1); !ok {
				return nil, false
			}
		}
		return out, true
	case yaml.SequenceNode:
		out := make([]any, len(node.Content))
		for i, item := range node.Content {
			if out[i], ok = d.plain(item, fmt.Sprintf("%s[%d]", path, i), depth+1); !ok {
				return nil, false
			}
		}
		return out, true
	}
	if !d.copied(node, path) {
		return nil, false
	}
	return d.plainScalar(node, path)
}

// copied counts a text that is kept or written out again, as often as it is named; false stops the walk. Without aliases it is shorter than
// twice the file: an escape of two characters stands for three bytes at most.
func (d *decoder) copied(node *yaml.Node, path string) bool {
	if d.bytes += len(node.Value); d.bytes > 2*MaxFileBytes {
		d.fail(node, path, ErrTooLarge)
		return false
	}
	return true
}

// plainScalar keeps numbers as they are written where JSON allows it.
func (d *decoder) plainScalar(node *yaml.Node, path string) (any, bool) {
	switch node.ShortTag() {
	case "!!null":
		return nil, true
	case "!!int", "!!float":
		if json.Valid([]byte(node.Value)) {
			return json.Number(node.Value), true
		}
		var number float64
		if err := node.Decode(&number); err == nil {
			if _, err := json.Marshal(number); err == nil {
				return number, true
			}
		}
		d.fail(node, path, fmt.Errorf("%w: number %.60q", ErrValue, node.Value))
		return nil, false
	case "!!bool":
		var flag bool
		if err := node.Decode(&flag); err == nil {
			return flag, true
		}
	}
	return node.Value, true
}

// fieldByTag finds a struct field by its json name, also in embedded structs.
func fieldByTag(out reflect.Value, name string) (reflect.Value, bool) {
	for i := range out.NumField() {
		if field := out.Type().Field(i); field.Anonymous && field.Type.Kind() == reflect.Struct {
			if found, ok := fieldByTag(out.Field(i), name); ok {
				return found, true
			}
			continue
		}
		tag, _, _ := strings.Cut(out.Type().Field(i).Tag.Get("json"), ",")
		if tag == name && tag != "" && tag != "-" {
			return out.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// join builds a path; a key that would blur it or the log line is quoted and cut.
func join(path, key string) string {
	if len(key) > 80 || strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' }) {
		key = fmt.Sprintf("%.80q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
