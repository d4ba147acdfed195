// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxEntries bounds the map entries and huge page limits of one answer.
const maxEntries = 10000

var (
	// ErrWire is wrapped when an answer is no protobuf message of its type.
	ErrWire = errors.New("bad protobuf message")
	// ErrBounds is wrapped when an answer is well-formed and larger than any real one.
	ErrBounds = errors.New("answer has too many entries")
)

// DecodePodAnswer reads a PodSandboxHookResponse. Unknown fields are skipped; the texts are copies.
func DecodePodAnswer(raw []byte) (PodAnswer, error) {
	var a PodAnswer
	d := decoder{left: maxEntries}
	err := d.fields(raw, func(num protowire.Number, f field) error {
		switch {
		case num == 1 && f.bytes:
			return d.entry(&a.Labels, f.b)
		case num == 2 && f.bytes:
			return d.entry(&a.Annotations, f.b)
		case num == 3 && f.bytes:
			return text(&a.CgroupParent, f.b)
		case num == 4 && f.bytes:
			return d.resources(&a.Resources, f.b)
		}
		return nil
	})
	if err != nil {
		return PodAnswer{}, fmt.Errorf("decode PodSandboxHookResponse: %w", err)
	}
	return a, nil
}

// DecodeContainerAnswer reads a ContainerResourceHookResponse. Unknown fields are skipped; the texts are copies.
func DecodeContainerAnswer(raw []byte) (ContainerAnswer, error) {
	var a ContainerAnswer
	d := decoder{left: maxEntries}
	err := d.fields(raw, func(num protowire.Number, f field) error {
		switch {
		case num == 1 && f.bytes:
			return d.entry(&a.Annotations, f.b)
		case num == 2 && f.bytes:
			return d.resources(&a.Resources, f.b)
		case num == 3 && f.bytes:
			return text(&a.PodCgroupParent, f.b)
		case num == 4 && f.bytes:
			return d.entry(&a.Env, f.b)
		}
		return nil
	})
	if err != nil {
		return ContainerAnswer{}, fmt.Errorf("decode ContainerResourceHookResponse: %w", err)
	}
	return a, nil
}

// field is a value on the wire: bytes, a varint, or a type that no message here has (both false).
type field struct {
	b             []byte
	n             uint64
	bytes, varint bool
}

// decoder counts what an answer makes us allocate.
type decoder struct{ left int }

// fields calls each for every field. A field of another wire type than ours is an unknown one, as for protobuf.
func (d *decoder) fields(raw []byte, each func(protowire.Number, field) error) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 || num > protowire.MaxValidNumber {
			return fmt.Errorf("%w: %w", ErrWire, protowire.ParseError(min(n, -1)))
		}
		raw = raw[n:]
		var f field
		switch typ {
		case protowire.VarintType:
			f.varint = true
			f.n, n = protowire.ConsumeVarint(raw)
		case protowire.BytesType:
			f.bytes = true
			f.b, n = protowire.ConsumeBytes(raw)
		default:
			n = protowire.ConsumeFieldValue(num, typ, raw)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d: %w", ErrWire, num, protowire.ParseError(n))
		}
		raw = raw[n:]
		if err := each(num, f); err != nil {
			return fmt.Errorf("field %d: %w", num, err)
		}
	}
	return nil
}

func text(to *string, raw []byte) error {
	if !utf8.Valid(raw) {
		return fmt.Errorf("%w: %w", ErrWire, ErrText)
	}
	*to = string(raw)
	return nil
}

func (d *decoder) count() error {
	if d.left--; d.left < 0 {
		return ErrBounds
	}
	return nil
}

// entry adds an entry of a map<string,string>; a key or value that is missing is empty, the last of a key counts.
func (d *decoder) entry(to *map[string]string, raw []byte) error {
	if err := d.count(); err != nil {
		return err
	}
	var key, value string
	err := d.fields(raw, func(num protowire.Number, f field) error {
		switch {
		case num == 1 && f.bytes:
			return text(&key, f.b)
		case num == 2 && f.bytes:
			return text(&value, f.b)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if *to == nil {
		*to = make(map[string]string)
	}
	(*to)[key] = value
	return nil
}

// resources reads into what is there already: a message that comes in pieces is merged.
func (d *decoder) resources(to **Resources, raw []byte) error {
	if *to == nil {
		*to = new(Resources)
	}
	r := *to
	return d.fields(raw, func(num protowire.Number, f field) error {
		switch {
		case f.varint:
			r.setNumber(num, int64(f.n))
		case !f.bytes:
		case num == 6:
			return text(&r.CPUs, f.b)
		case num == 7:
			return text(&r.Mems, f.b)
		case num == 8:
			return d.hugepage(r, f.b)
		case num == 9:
			return d.entry(&r.Unified, f.b)
		}
		return nil
	})
}

func (r *Resources) setNumber(num protowire.Number, n int64) {
	switch num {
	case 1:
		r.Period = n
	case 2:
		r.Quota = n
	case 3:
		r.Shares = n
	case 4:
		r.Memory = n
	case 5:
		r.OOMScoreAdj = n
	case 10:
		r.Swap = n
	}
}

func (d *decoder) hugepage(r *Resources, raw []byte) error {
	if err := d.count(); err != nil {
		return err
	}
	var h Hugepage
	err := d.fields(raw, func(num protowire.Number, f field) error {
		switch {
		case num == 1 && f.bytes:
			return text(&h.Size, f.b)
		case num == 2 && f.varint:
			h.Limit = f.n
		}
		return nil
	})
	r.Hugepages = append(r.Hugepages, h)
	return err
}
