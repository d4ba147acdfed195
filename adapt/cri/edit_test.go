// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/koord-rt/koord-rt/model/unit"
)

// field builds one length-delimited field.
func lengthDelimited(num protowire.Number, inside ...[]byte) []byte {
	b := protowire.AppendTag(nil, num, protowire.BytesType)
	return protowire.AppendBytes(b, bytes.Join(inside, nil))
}

func varintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// strange are fields that no CRI message has, one of each wire type, and a varint that is longer than it need be.
func strange() []byte {
	b := lengthDelimited(1999, []byte("kept"))
	b = append(b, varintField(2000, 7)...)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 2001, protowire.Fixed32Type), 1)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 2002, protowire.Fixed64Type), 2)
	b = protowire.AppendTag(b, 2003, protowire.StartGroupType)
	b = append(b, varintField(5, 9)...)
	b = protowire.AppendTag(b, 2003, protowire.EndGroupType)
	b = protowire.AppendTag(b, 2004, protowire.VarintType)
	return append(b, 0x83, 0x80, 0x00)
}

func TestPatchKeepsEveryOtherByte(t *testing.T) {
	t.Parallel()
	odd := strange()
	entry := lengthDelimited(9, lengthDelimited(1, []byte("memory.high")), odd, lengthDelimited(2, []byte("1")))
	other := lengthDelimited(9, odd, lengthDelimited(2, []byte("x")), lengthDelimited(1, []byte("other")))
	resources := func(shares []byte, high string) []byte {
		changed := lengthDelimited(9, lengthDelimited(1, []byte("memory.high")), odd, lengthDelimited(2, []byte(high)))
		return lengthDelimited(1, odd, varintField(2, 5), changed, shares, other, varintField(2005, 3))
	}
	request := func(inside []byte, tail ...[]byte) []byte {
		linux := lengthDelimited(15, odd, inside, lengthDelimited(2, odd))
		config := lengthDelimited(2, odd, lengthDelimited(3, []byte("run")), linux, lengthDelimited(3, []byte("fast")), odd, bytes.Join(tail, nil))
		return bytes.Join([][]byte{odd, config, lengthDelimited(3, odd), odd, lengthDelimited(1, []byte("sb"))}, nil)
	}
	before := request(resources(varintField(3, 1024), "1"))
	if !bytes.Contains(before, entry) {
		t.Fatal("the request is not what the test thinks")
	}
	r, err := ReadCreateContainer(before)
	if err != nil {
		t.Fatal(err)
	}
	patch := &ContainerPatch{
		Resources:   ResourcesPatch{Shares: unit.Some(512), Unified: []Pair{{"memory.high", "max"}}},
		Annotations: []Pair{{"a", "b"}},
	}
	got, err := r.Patch(patch)
	if err != nil {
		t.Fatal(err)
	}
	added := lengthDelimited(10, lengthDelimited(1, []byte("a")), lengthDelimited(2, []byte("b")))
	if want := request(resources(varintField(3, 512), "max"), added); !bytes.Equal(want, got) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	for name, nothing := range map[string]*ContainerPatch{
		"no patch": nil, "empty patch": {},
		"what stands": {Resources: ResourcesPatch{Shares: unit.Some(1024), Quota: unit.Some(5), Memory: unit.Some(0), Unified: []Pair{{"other", "x"}}}},
	} {
		if got, err := r.Patch(nothing); err != nil || !bytes.Equal(got, before) {
			t.Errorf("%s: %v, %x, want %x", name, err, got, before)
		}
	}
}

func TestPatchTakesOut(t *testing.T) {
	t.Parallel()
	resources := bytes.Join([][]byte{varintField(3, 7), varintField(1, 9), varintField(3, 8), lengthDelimited(3, []byte("no varint"))}, nil)
	p := ResourcesPatch{Shares: unit.Some(0)}
	got, err := patch(resources, p.edits())
	want := bytes.Join([][]byte{varintField(1, 9), lengthDelimited(3, []byte("no varint"))}, nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, %x, want %x", err, got, want)
	}
}

// FuzzPatchNothing: edits that reach every level and change nothing leave every byte, also of messages that were sent in
// parts or with longer lengths than need be.
func FuzzPatchNothing(f *testing.F) {
	f.Add(append(strange(), lengthDelimited(2, lengthDelimited(15, lengthDelimited(1, varintField(3, 4))), lengthDelimited(15))...))
	f.Add(bytes.Join([][]byte{lengthDelimited(2, []byte{0x7a, 0x80, 0x00}), lengthDelimited(2, lengthDelimited(6, lengthDelimited(1)))}, nil))
	f.Add([]byte{0x12, 0x05, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		deep := inside(nil, 2, inside(inside(inside(nil, 15, []edit{
			{num: 1, verb: within, sub: []edit{{num: fieldShares, verb: setNumber}}}, {num: 2, verb: within},
		}), fieldEnvs, []edit{{num: 2, verb: within}}), 99, []edit{{num: 1, verb: setText}}))
		deep = append(deep, edit{num: 3, verb: within, sub: []edit{{num: 8, verb: within}}})
		deep[0].sub[0].sub[0].sub = nil // shares stay
		deep[0].sub[2].sub = nil
		got, err := patch(raw, deep)
		if err == nil && !bytes.Equal(got, raw) {
			t.Errorf("got  %x\nwant %x", got, raw)
		}
		if err != nil && got != nil {
			t.Error("a failed patch has a result")
		}
	})
}
