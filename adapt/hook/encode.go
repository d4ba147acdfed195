// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrText is wrapped when a text is not UTF-8, which a protobuf string must be.
var ErrText = errors.New("text is not UTF-8")

// Encode renders the request. The same request gives the same bytes.
func (r *PodRequest) Encode() ([]byte, error) {
	var e encoder
	e.message(1, true, func(e *encoder) { e.pod(&r.Pod) })
	e.text(2, r.RuntimeHandler)
	e.texts(3, r.Labels)
	e.texts(4, r.Annotations)
	e.text(5, r.CgroupParent)
	e.resources(6, r.Overhead)
	e.resources(7, r.Resources)
	return e.done("PodSandboxHookRequest")
}

// Encode renders the request. The same request gives the same bytes.
func (r *ContainerRequest) Encode() ([]byte, error) {
	var e encoder
	e.message(1, true, func(e *encoder) { e.pod(&r.Pod) })
	e.message(2, true, func(e *encoder) {
		e.text(1, r.Container.Name)
		e.number(2, uint64(r.Container.Attempt))
		e.text(3, r.Container.ID)
	})
	e.texts(3, r.Annotations)
	e.resources(4, r.Resources)
	e.resources(5, r.PodResources)
	e.texts(6, r.PodAnnotations)
	e.texts(7, r.PodLabels)
	e.text(8, r.PodCgroupParent)
	e.texts(9, r.Env)
	return e.done("ContainerResourceHookRequest")
}

// encoder appends fields in the order of their numbers, maps in the order of their keys, and leaves out zeros, as
// protobuf's deterministic encoding does. The first bad text sticks.
type encoder struct {
	b   []byte
	err error
}

func (e *encoder) done(name string) ([]byte, error) {
	if e.err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, e.err)
	}
	return e.b, nil
}

func (e *encoder) check(num protowire.Number, s string) {
	if e.err == nil && !utf8.ValidString(s) {
		// The text itself stays out: it may be a variable's value.
		e.err = fmt.Errorf("field %d: %w", num, ErrText)
	}
}

func (e *encoder) number(num protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendVarint(protowire.AppendTag(e.b, num, protowire.VarintType), v)
	}
}

func (e *encoder) text(num protowire.Number, s string) {
	if s != "" {
		e.check(num, s)
		e.b = protowire.AppendString(protowire.AppendTag(e.b, num, protowire.BytesType), s)
	}
}

// message appends an embedded message; an empty one is written only when it is present.
func (e *encoder) message(num protowire.Number, present bool, fill func(*encoder)) {
	if !present {
		return
	}
	inner := encoder{err: e.err}
	fill(&inner)
	e.err = inner.err
	e.b = protowire.AppendBytes(protowire.AppendTag(e.b, num, protowire.BytesType), inner.b)
}

// texts appends a map<string,string>: one embedded message per entry, key and value always written.
func (e *encoder) texts(num protowire.Number, m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		e.check(num, key)
		e.check(num, value)
		e.b = protowire.AppendTag(e.b, num, protowire.BytesType)
		e.b = protowire.AppendVarint(e.b, uint64(2+protowire.SizeBytes(len(key))+protowire.SizeBytes(len(value))))
		e.b = protowire.AppendString(protowire.AppendTag(e.b, 1, protowire.BytesType), key)
		e.b = protowire.AppendString(protowire.AppendTag(e.b, 2, protowire.BytesType), value)
	}
}

func (e *encoder) pod(p *Pod) {
	e.text(1, p.Name)
	e.text(2, p.UID)
	e.text(3, p.Namespace)
	e.number(4, uint64(p.Attempt))
}

func (e *encoder) resources(num protowire.Number, r *Resources) {
	e.message(num, r != nil, func(e *encoder) {
		e.number(1, uint64(r.Period))
		e.number(2, uint64(r.Quota))
		e.number(3, uint64(r.Shares))
		e.number(4, uint64(r.Memory))
		e.number(5, uint64(r.OOMScoreAdj))
		e.text(6, r.CPUs)
		e.text(7, r.Mems)
		for _, h := range r.Hugepages {
			e.message(8, true, func(e *encoder) {
				e.text(1, h.Size)
				e.number(2, h.Limit)
			})
		}
		e.texts(9, r.Unified)
		e.number(10, uint64(r.Swap))
	})
}
