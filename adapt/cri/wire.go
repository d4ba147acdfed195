// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

var errWire = errors.New("bad protobuf message")

// message is what is read of a protobuf message: the last value of each field, and every entry of repeated ones.
type message map[protowire.Number][]field

type field struct {
	n int64
	b []byte
}

// parse splits a message into its fields. Groups, which CRI has none of, are refused.
func parse(raw []byte) (message, error) {
	m := message{}
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
		}
		raw = raw[n:]
		var f field
		switch typ {
		case protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(raw)
			f.n = int64(v)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(raw)
		default:
			n = protowire.ConsumeFieldValue(num, typ, raw)
		}
		if n < 0 {
			return nil, fmt.Errorf("%w: field %d: %w", errWire, num, protowire.ParseError(n))
		}
		raw = raw[n:]
		m[num] = append(m[num], f)
	}
	return m, nil
}

func (m message) last(num protowire.Number) field {
	if fs := m[num]; len(fs) > 0 {
		return fs[len(fs)-1]
	}
	return field{}
}

func (m message) text(num protowire.Number) string { return string(m.last(num).b) }

func (m message) number(num protowire.Number) int64 { return m.last(num).n }

// sub reads an embedded message; a missing one is empty.
func (m message) sub(num protowire.Number) (message, error) { return parse(m.last(num).b) }

// texts reads a map<string,string>.
func (m message) texts(num protowire.Number) (map[string]string, error) {
	if len(m[num]) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(m[num]))
	for _, f := range m[num] {
		entry, err := parse(f.b)
		if err != nil {
			return nil, err
		}
		out[entry.text(1)] = entry.text(2)
	}
	return out, nil
}

// statusRequest is ContainerStatusRequest and PodSandboxStatusRequest: id = 1, verbose = 2.
func statusRequest(id string) []byte {
	b := protowire.AppendTag(nil, 1, protowire.BytesType)
	b = protowire.AppendString(b, id)
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	return protowire.AppendVarint(b, 1)
}

// answer is ContainerStatusResponse and PodSandboxStatusResponse: status = 1, info = 2.
func answer(raw []byte) (status message, verbose map[string]string, err error) {
	m, err := parse(raw)
	if err != nil {
		return nil, nil, err
	}
	if status, err = m.sub(1); err != nil {
		return nil, nil, err
	}
	verbose, err = m.texts(2)
	return status, verbose, err
}
