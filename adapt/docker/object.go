// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Errors of a body that cannot be edited. The daemon gets such a body as it is and gives its own answer.
var (
	// ErrBody is a body that is not one JSON object, or has a field of the wrong type.
	ErrBody = errors.New("not a Docker API body")
	// ErrAmbiguous is an object that has a field twice: the daemon matches names without case, the last one wins there, and
	// objects are merged. An edit of one of them could be undone by the other.
	ErrAmbiguous = errors.New("field given more than once")
)

// object is a JSON object with the places of its members, so that one value can be replaced and every other byte stays.
type object struct {
	raw     []byte
	members []member
	end     int  // offset of the closing brace
	exact   bool // names are a map's keys, not a struct's fields
}

// member is one value: raw[from:to].
type member struct {
	key      string
	from, to int
}

// parseObject indexes raw, which must be one valid JSON object with nothing but space around it.
func parseObject(raw []byte) (object, error) {
	if !json.Valid(raw) {
		return object{}, fmt.Errorf("%w: invalid JSON", ErrBody)
	}
	i := space(raw, 0)
	if raw[i] != '{' {
		return object{}, fmt.Errorf("%w: not an object", ErrBody)
	}
	o := object{raw: raw}
	for i = space(raw, i+1); raw[i] != '}'; {
		if raw[i] == ',' {
			i = space(raw, i+1)
		}
		from := i
		i = value(raw, i)
		var key string
		if err := json.Unmarshal(raw[from:i], &key); err != nil {
			return object{}, fmt.Errorf("%w: unreadable field name", ErrBody)
		}
		i = space(raw, space(raw, i)+1) // the colon
		from, i = i, value(raw, i)
		o.members = append(o.members, member{key, from, i})
		i = space(raw, i)
	}
	o.end = i
	return o, nil
}

// space skips white space.
func space(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r') {
		i++
	}
	return i
}

// value skips one value of valid JSON.
func value(raw []byte, i int) int {
	depth := 0
	for {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
		default: // number or word
			for i < len(raw) && !strings.ContainsRune(",:]} \t\n\r", rune(raw[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// find returns the member of that name, matched as the daemon does, or nil. Two of them are ErrAmbiguous.
func (o *object) find(key string) (*member, error) {
	var found *member
	for i := range o.members {
		if name := o.members[i].key; name != key && (o.exact || !strings.EqualFold(name, key)) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: %s", ErrAmbiguous, key)
		}
		found = &o.members[i]
	}
	return found, nil
}

// get is the value of that name, nil when it is absent or null.
func (o *object) get(key string) ([]byte, error) {
	m, err := o.find(key)
	if err != nil || m == nil {
		return nil, err
	}
	v := o.raw[m.from:m.to]
	if string(v) == "null" {
		return nil, nil
	}
	return v, nil
}

// edit is one new value.
type edit struct {
	key  string
	text []byte
}

// with returns the object with the edits made: known members change their value in place, others are added at the end in
// the order given. The receiver's bytes are not written to. A key may stand only once in edits.
func (o *object) with(edits []edit) ([]byte, error) {
	news := make([][]byte, len(o.members))
	var added []edit
	size := len(o.raw)
	for _, e := range edits {
		m, err := o.find(e.key)
		if err != nil {
			return nil, err
		}
		size += len(e.text) + len(e.key) + 4
		if m == nil {
			added = append(added, e)
			continue
		}
		for i := range o.members {
			if &o.members[i] == m {
				news[i] = e.text
			}
		}
	}
	out, at := make([]byte, 0, size), 0
	for i, text := range news {
		if text != nil {
			out = append(append(out, o.raw[at:o.members[i].from]...), text...)
			at = o.members[i].to
		}
	}
	stop := o.end
	if len(o.members) > 0 {
		stop = o.members[len(o.members)-1].to
	}
	out = append(out, o.raw[at:stop]...)
	for i, e := range added {
		if i > 0 || len(o.members) > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), e.key...), '"', ':')
		out = append(out, e.text...)
	}
	return append(out, o.raw[stop:]...), nil
}

// decode reads a value into out. Its errors name the field but never the value, which may be secret.
func decode(raw []byte, out any) error {
	err := json.Unmarshal(raw, out)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return fmt.Errorf("%w: %s has the wrong type, want %s", ErrBody, wrong.Field, wrong.Type)
	}
	return fmt.Errorf("%w: unreadable JSON", ErrBody)
}
