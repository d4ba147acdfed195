// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package quantity reads JSON with Kubernetes quantities that no schema has looked at: annotations, templates that a schema leaves
// open, and objects that a mutating webhook sees before their schema is checked.
//
// Kubernetes' parser (k8s.io/apimachinery/pkg/api/resource) computes a power of ten as large as the exponent says: "1e-9999999"
// takes seconds, a digit more takes minutes, and nobody can end it. To write a number of a million digits takes it minutes too. So
// quantities are looked at before. Input: JSON and the Go type it is read into, which says where quantities stand: a label may be
// "1e23456". Output: the value, or an error that names the place. It must not import Kubernetes clients.
package quantity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ErrNumber is wrapped by the errors about numbers.
var ErrNumber = errors.New("more digits than an amount can have")

// What quantities need is less by far: their smallest unit is 1e-9, their largest value 9.2e18. These are cheap to compute.
const (
	maxExponentDigits = 3
	maxNumber         = 64
	// maxSuffix is the longest of "Ki", "m" and the like.
	maxSuffix = 2
)

// Unmarshal is [json.Unmarshal] of a value that may hold quantities.
func Unmarshal(data []byte, to any) error {
	if err := Check(data, to); err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// Check refuses JSON in which a quantity is one that Kubernetes' parser had better not see, also one that a later value of the same key
// replaces: the parser sees both. What does not fit the type it leaves to the decoder. Only the type of the second argument counts.
//
// Example: as a corev1.ResourceList {"cpu":"1e-99999999"} is refused, with "cpu" in the error; as a map of strings it is not.
func Check(data []byte, as any) error {
	t := reflect.TypeOf(as)
	w := walk{decoder: json.NewDecoder(bytes.NewReader(data)), fields: map[reflect.Type]map[string]reflect.Type{}}
	w.decoder.UseNumber()
	if !w.holds(t) {
		return nil
	}
	err := w.value(t)
	if far := (*placed)(nil); errors.As(err, &far) {
		return fmt.Errorf("%.100s: %w", strings.TrimPrefix(far.path, "."), far.err)
	}
	return nil // what is no JSON json.Unmarshal says
}

// placed is an error about a number, and where it stands. The path is made on the way out: made on the way in it would cost a key's
// length for each value beneath it.
type placed struct {
	path string
	err  error
}

func (p *placed) Error() string { return p.err.Error() }

// under adds a step to the place of an error.
func under(err error, step string) error {
	if p := (*placed)(nil); errors.As(err, &p) {
		return &placed{step + p.path, p.err}
	}
	return err
}

// walk reads one document beside the type it is meant for.
type walk struct {
	decoder *json.Decoder
	// fields are those of a struct that hold quantities, by folded name.
	fields map[reflect.Type]map[string]reflect.Type
}

var (
	amount  = reflect.TypeFor[resource.Quantity]()
	decodes = reflect.TypeFor[json.Unmarshaler]()
)

// value reads one value. An error that is none of a number is the decoder's.
func (w walk) value(t reflect.Type) error {
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	t = held(t)
	switch v := token.(type) {
	case json.Number:
		return checked(t, string(v))
	case string:
		return checked(t, v)
	case json.Delim:
		switch {
		case v == '{' && t.Kind() == reflect.Map:
			return w.object(func(string) reflect.Type { return t.Elem() })
		case v == '{' && t.Kind() == reflect.Struct && t != amount:
			fields := w.of(t)
			return w.object(func(key string) reflect.Type { return fields[fold(key)] })
		case v == '[' && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
			return w.list(t.Elem())
		}
		return w.skip(1)
	}
	return nil
}

// object reads what follows '{'.
func (w walk) object(typeOf func(key string) reflect.Type) error {
	for w.decoder.More() {
		token, err := w.decoder.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string) // nothing else stands there
		if t := typeOf(key); t == nil || !w.holds(t) {
			err = w.skip(0)
		} else if err = w.value(t); err != nil {
			err = under(err, fmt.Sprintf(".%.40s", key))
		}
		if err != nil {
			return err
		}
	}
	_, err := w.decoder.Token() // the end of it
	return err
}

// list reads what follows '['.
func (w walk) list(t reflect.Type) error {
	for i := 0; w.decoder.More(); i++ {
		if err := w.value(t); err != nil {
			return under(err, fmt.Sprintf("[%d]", i))
		}
	}
	_, err := w.decoder.Token()
	return err
}

// skip reads to the end of one value, or of so many that are open.
func (w walk) skip(open int) error {
	for {
		token, err := w.decoder.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			open++
		case json.Delim('}'), json.Delim(']'):
			open--
		}
		if open == 0 {
			return nil
		}
	}
}

// of are the fields of a struct that hold quantities, those of embedded ones among them where no field of its own has the name. A struct
// with an embedded quantity reads its JSON as a quantity does, and is none that is known here: objects of Kubernetes have no such.
func (w walk) of(t reflect.Type) map[string]reflect.Type {
	if out, known := w.fields[t]; known {
		return out
	}
	w.fields[t] = nil // until it is known; see holds
	out := map[string]reflect.Type{}
	own := map[string]bool{}
	var embedded []reflect.Type
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if inner := held(f.Type); tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		} else if name == "" && f.Anonymous && inner.Kind() == reflect.Struct && !plain(inner) {
			embedded = append(embedded, inner)
			continue
		}
		if name == "" {
			name = f.Name
		}
		if own[fold(name)] = true; w.holds(f.Type) {
			out[fold(name)] = f.Type
		}
	}
	for _, e := range embedded {
		for name, t := range w.of(e) {
			if !own[name] {
				out[name] = t
			}
		}
	}
	w.fields[t] = out
	return out
}

// holds reports whether values of a type can hold quantities that [json.Unmarshal] reads.
func (w walk) holds(t reflect.Type) bool {
	t = held(t)
	if t == amount {
		return true
	}
	if plain(t) {
		return false
	}
	switch t.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return w.holds(t.Elem())
	case reflect.Struct:
		if fields, known := w.fields[t]; known && fields == nil {
			return true // a type within itself: better looked at in vain
		}
		return len(w.of(t)) > 0
	}
	return false
}

// held is what a pointer points to.
func held(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// plain reports whether a type reads its JSON itself: of those quantities alone compute.
func plain(t reflect.Type) bool { return t == amount || reflect.PointerTo(t).Implements(decodes) }

// fold is a name as [json.Unmarshal] compares it, for which Kelvin's sign is a k and the long s an s.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// checked refuses a quantity with too many digits, before its exponent or in it. The parser trims spaces, and reads the exponent as
// [strconv.ParseInt] does; without digits before it the number is a zero, to compare which takes the power all the same.
func checked(t reflect.Type, text string) error {
	const shown, digits = 40, "0123456789"
	if t != amount {
		return nil
	}
	text = strings.TrimSpace(text)
	rest := strings.TrimLeft(text, "+-."+digits)
	exponent, scientific := "", false
	if rest != "" && (rest[0] == 'e' || rest[0] == 'E') {
		exponent = strings.TrimLeft(rest[1:], "+-")
		scientific = strings.Trim(exponent, digits) == ""
	}
	long := len(text)-len(rest) > maxNumber && (len(rest) <= maxSuffix || scientific)
	if scientific && len(exponent) > maxExponentDigits || long {
		return &placed{"", fmt.Errorf("%.*q has %w", shown, text, ErrNumber)}
	}
	return nil // another suffix the parser refuses before it computes
}
