// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package slo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// ClusterManager is the field manager as which koord-manager applies: what it has written is the cluster's.
const ClusterManager = "koord-manager"

// Bounds of what is kept: names of managers, of extensions and of kernel features are anybody's text. Lengths are in bytes.
const (
	MaxOverrides  = 64
	maxOwners     = 4
	maxFieldBytes = 160
	maxOwnerBytes = 64
)

// Overrides are the fields of a NodeSLO's spec that others than koord-manager have written (ADR 20), sorted by name.
type Overrides struct {
	Fields []Override
	// LeftOut is how many more there are; one that two have written counts twice.
	LeftOut int
}

// Override is one field.
type Override struct {
	// Field in the spelling in which it was written: cpuBurstStrategy.cpuBurstPercent. A list is one field, and so is an extension.
	Field string
	// Value is a number, a word or a truth value; "" for everything else.
	Value string
	// By has everybody who has written it, sorted by name.
	By []Owner
}

// Owner is a field manager.
type Owner struct {
	Manager string
	// Time is when it last changed which fields are its, or their values; zero where that is not told.
	Time time.Time
}

// managed is one entry of metadata.managedFields.
type managed struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation"`
	Subresource string `json:"subresource"`
	Time        string `json:"time"`
	FieldsType  string `json:"fieldsType"`
	FieldsV1    struct {
		Spec json.RawMessage `json:"f:spec"`
	} `json:"fieldsV1"`
}

// ours reports whether an entry is no override: the cluster's strategy, or about the status.
func (m *managed) ours() bool {
	return m.Subresource != "" || m.Manager == ClusterManager && m.Operation == "Apply"
}

// overridesOf reads who has written the fields of an object; nil where that is not told or cannot be read, which is no reason to
// refuse the object. spec is the object's. Of a field in two spellings that differ the one that does not count is left out.
func overridesOf(raw []byte, spec strategy.Wire, conflicts []strategy.Conflict) *Overrides {
	var o struct {
		Metadata struct {
			ManagedFields []managed `json:"managedFields"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &o) != nil || len(o.Metadata.ManagedFields) == 0 {
		return nil
	}
	r := overrideReader{conflicts: conflicts}
	for i := range o.Metadata.ManagedFields {
		m := &o.Metadata.ManagedFields[i]
		if m.ours() {
			continue
		}
		if err := r.read(m, spec); err != nil {
			return nil
		}
	}
	slices.SortFunc(r.out.Fields, func(a, b Override) int { return cmp.Compare(a.Field, b.Field) })
	for i := range r.out.Fields {
		slices.SortFunc(r.out.Fields[i].By, func(a, b Owner) int { return cmp.Compare(a.Manager, b.Manager) })
	}
	return &r.out
}

// overrideReader gathers fields. It looks into an entry only where the spec has something, so that neither depth nor length of what
// somebody has made of managedFields counts.
type overrideReader struct {
	out       Overrides
	conflicts []strategy.Conflict
	// values is the spec as JSON has it, made for the first who needs it; owner is whose fields are being read.
	values map[string]any
	owner  Owner
}

var errFields = errors.New("not a set of fields")

// read adds the fields of one entry.
func (r *overrideReader) read(m *managed, spec strategy.Wire) error {
	if m.FieldsType != "" && m.FieldsType != "FieldsV1" {
		return fmt.Errorf("%w: type %.40q", errFields, m.FieldsType)
	}
	if len(m.FieldsV1.Spec) == 0 {
		return nil
	}
	if r.values == nil {
		var err error
		if r.values, err = valuesOf(spec); err != nil {
			return err
		}
	}
	r.owner = Owner{Manager: clean(m.Manager, maxOwnerBytes)}
	if r.owner.Manager == "" {
		r.owner.Manager = "(no name)"
	}
	if at, err := time.Parse(time.RFC3339, m.Time); err == nil {
		r.owner.Time = at.UTC()
	}
	_, err := r.below(json.NewDecoder(bytes.NewReader(m.FieldsV1.Spec)), nil, r.values)
	return err
}

// valuesOf is a spec as a tree. Extensions are other programs': they have names, and nothing within.
func valuesOf(spec strategy.Wire) (map[string]any, error) {
	extensions := make(map[string]any, len(spec.Extensions))
	for name := range spec.Extensions {
		extensions[name] = []any{}
	}
	spec.Extensions = nil
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // as it is written
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	out["extensions"] = extensions
	return out, nil
}

// below reads the set of fields of the group at path; named reports whether there is any.
func (r *overrideReader) below(d *json.Decoder, path []string, group any) (named bool, err error) {
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return false, errFields
	}
	here, _ := group.(map[string]any)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return named, err
		}
		key, _ := token.(string)
		name, is := strings.CutPrefix(key, "f:") // the others are the group itself and elements of lists
		named = named || is
		value, there := here[name]
		if !is || !there {
			var skipped struct{}
			if err := d.Decode(&skipped); err != nil {
				return named, err
			}
			continue
		}
		if err := r.field(d, append(path, name), value); err != nil {
			return named, err
		}
	}
	_, err = d.Token()
	return named, err
}

// field reads one field: a group is one only where nothing below it is named.
func (r *overrideReader) field(d *json.Decoder, path []string, value any) error {
	named, err := r.below(d, path, value)
	if _, group := value.(map[string]any); err == nil && !(group && named) {
		r.add(strings.Join(path, "."), value)
	}
	return err
}

func (r *overrideReader) add(field string, value any) {
	for _, c := range r.conflicts {
		if field == c.Seed || strings.HasPrefix(field, c.Seed+".") {
			return
		}
	}
	field = clean(field, maxFieldBytes)
	i := slices.IndexFunc(r.out.Fields, func(o Override) bool { return o.Field == field })
	switch {
	case i >= 0:
		r.out.Fields[i].also(r.owner)
	case len(r.out.Fields) == MaxOverrides:
		r.out.LeftOut++
	default:
		r.out.Fields = append(r.out.Fields, Override{Field: field, Value: scalar(value), By: []Owner{r.owner}})
	}
}

// also adds an owner. One may have written and applied: its newest time counts.
func (o *Override) also(by Owner) {
	i := slices.IndexFunc(o.By, func(b Owner) bool { return b.Manager == by.Manager })
	switch {
	case i >= 0 && by.Time.After(o.By[i].Time):
		o.By[i] = by
	case i < 0 && len(o.By) < maxOwners:
		o.By = append(o.By, by)
	}
}

func scalar(v any) string {
	switch v := v.(type) {
	case map[string]any, []any:
		return ""
	default:
		return clean(fmt.Sprint(v), maxOwnerBytes)
	}
}

// clean drops what is not to be printed, and cuts without splitting a character. What it returns shares no memory with a longer text.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
