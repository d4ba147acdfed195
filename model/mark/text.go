// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package mark

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// member is one entry of a mark's map: its name is name, or name[key] where key is not empty.
type member struct{ prefix, name, key, value, owner string }

// Writer renders marks into buffers that it keeps. It is for one goroutine at a time; the zero value is ready.
type Writer struct {
	set, base []member
	text      []byte
}

// Text is what protocol.FormatApplied makes of Of, byte for byte, without the maps between; "" when nothing changes.
func (w *Writer) Text(by By, p plan.Plan, base *workload.Resources, keeps func(*plan.Setting) bool) string {
	w.set, w.base = w.set[:0], w.base[:0]
	for i := range p {
		s := &p[i]
		if !changes(s, base, keeps) {
			continue
		}
		m := member{name: s.Knob.String(), key: s.Key, value: "set", owner: s.By()}
		if s.Knob != plan.Env {
			m.value = s.Value.String()
		}
		w.set = insert(w.set, m)
		w.noteBase(base, s.Knob)
	}
	if len(w.set) == 0 {
		return ""
	}
	if Idle(p, keeps) {
		w.noteBase(base, plan.CPUShares)
	}
	w.text = append(w.text[:0], `{"gen":`...)
	w.text = strconv.AppendUint(w.text, by.Generation, 10)
	w.text = append(w.text, `,"by":"`...)
	w.text = appendEscaped(append(appendEscaped(w.text, by.Program), '/'), by.Version)
	w.text = append(w.text, '"')
	w.text = appendMembers(w.text, "set", w.set)
	w.text = appendMembers(w.text, "base", w.base)
	return string(append(w.text, '}'))
}

func (w *Writer) noteBase(base *workload.Resources, k plan.Knob) {
	if prefix, name, value, ok := baseText(base, k); ok {
		w.base = insert(w.base, member{prefix: prefix, name: name, value: value})
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
