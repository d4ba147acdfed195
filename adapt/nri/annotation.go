// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// member is one entry of an annotation's map: its name is name, or name[key] where key is not empty.
type member struct{ prefix, name, key, value, owner string }

// annotation is what protocol.FormatApplied makes of Mark, byte for byte, without the maps between: it stands in the
// reply to every CreateContainer.
type annotation struct {
	set, base []member
	text      []byte
}

var annotations = sync.Pool{New: func() any {
	return &annotation{set: make([]member, 0, 24), base: make([]member, 0, 16), text: make([]byte, 0, 2048)}
}}

// annotate is the annotation's content, "" when nothing changes.
func annotate(v *node.View, p plan.Plan, c *workload.Container, version string) string {
	a := annotations.Get().(*annotation)
	defer annotations.Put(a)
	a.set, a.base = a.set[:0], a.base[:0]
	for i := range p {
		s := &p[i]
		if !marks(v, s, c) {
			continue
		}
		m := member{name: s.Knob.String(), key: s.Key, value: "set", owner: s.Owner.String()}
		if s.Knob != plan.Env {
			m.value = s.Value.String()
		}
		a.set = insert(a.set, m)
		a.noteBase(c, s.Knob)
	}
	if len(a.set) == 0 {
		return ""
	}
	if idleInSpec(v, p) {
		a.noteBase(c, plan.CPUShares)
	}
	a.text = append(a.text[:0], `{"gen":`...)
	a.text = strconv.AppendUint(a.text, v.Generation, 10)
	a.text = append(a.text, `,"by":"`...)
	a.text = appendEscaped(appendEscaped(a.text, "koord-nri/"), version)
	a.text = append(a.text, '"')
	a.text = appendMembers(a.text, "set", a.set)
	a.text = appendMembers(a.text, "base", a.base)
	return string(append(a.text, '}'))
}

func (a *annotation) noteBase(c *workload.Container, k plan.Knob) {
	if prefix, name, value, ok := baseText(&c.Base, k); ok {
		a.base = insert(a.base, member{prefix: prefix, name: name, value: value})
	}
}

// insert keeps the list in the order of whole names and replaces a member of the same name, as a map does.
func insert(list []member, m member) []member {
	i := len(list)
	for i > 0 {
		c := compareNames(&list[i-1], &m)
		if c == 0 {
			list[i-1] = m
			return list
		}
		if c < 0 {
			break
		}
		i--
	}
	list = append(list, m)
	copy(list[i+1:], list[i:])
	list[i] = m
	return list
}

func compareNames(x, y *member) int {
	if c := strings.Compare(x.prefix, y.prefix); x.key == "" && y.key == "" && c == 0 {
		return strings.Compare(x.name, y.name)
	}
	return strings.Compare(x.whole(), y.whole())
}

func (m *member) whole() string {
	if m.key == "" {
		return m.prefix + m.name
	}
	return m.prefix + m.name + "[" + m.key + "]"
}

func appendMembers(b []byte, field string, list []member) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, field...)
	b = append(b, `":`...)
	for i := range list {
		m := &list[i]
		if i == 0 {
			b = append(b, `{"`...)
		} else {
			b = append(b, `,"`...)
		}
		b = append(append(b, m.prefix...), m.name...)
		if m.key != "" {
			b = append(b, '[')
			b = appendEscaped(b, m.key)
			b = append(b, ']')
		}
		b = append(b, `":"`...)
		b = appendEscaped(b, m.value)
		if m.owner != "" {
			b = append(b, ' ')
			b = append(b, m.owner...)
		}
		b = append(b, '"')
	}
	return append(b, '}')
}

// appendEscaped appends a JSON string's inside as encoding/json writes it without HTML escaping.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				b = append(b, `\ufffd`...)
			case r == '\u2028' || r == '\u2029':
				b = append(b, '\\', 'u', '2', '0', '2', hex[r&15])
			default:
				b = append(b, s[i:i+n]...)
			}
			i += n
			continue
		}
		i++
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		default:
			b = appendControl(b, c)
		}
	}
	return b
}

func appendControl(b []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	if i := strings.IndexByte("\b\f\n\r\t", c); i >= 0 {
		return append(b, '\\', "bfnrt"[i])
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
