// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import "unsafe"

const (
	fineBlocks   = 31  // 5 minutes whole and the block that is being filled
	coarseBlocks = 150 // 25 minutes
	allBlocks    = fineBlocks + coarseBlocks

	// Bytes of a series as the allocator rounds them (size classes of the Go runtime).
	fastBytes = 2304
	slowBytes = 768
)

// Compile-time proof that the series fit their size classes.
const (
	_ = uint(fastBytes - unsafe.Sizeof(fast{}))
	_ = uint(slowBytes - unsafe.Sizeof(slow{}))
)

// fast is a series with a sample per second. Block b of 10 s lies in fine while b > head-31 and, once pushed out by a newer
// one, in coarse while b > head-181. Values are as encode makes them, 0 is a gap.
type fast struct {
	head   int32 // the newest block; 0 before the first sample
	fine   [fineBlocks * perBlock]uint32
	coarse [coarseBlocks]packed
}

// tens is the fine part of one block.
func (f *fast) tens(block int64) *[perBlock]uint32 {
	i := block % fineBlocks * perBlock
	return (*[perBlock]uint32)(f.fine[i : i+perBlock])
}

// put stores a value; false when its block has left the fine part already.
func (f *fast) put(slot int64, v uint32) bool {
	block := slot / perBlock
	if block > int64(f.head) {
		f.advance(block)
	}
	if block <= int64(f.head)-fineBlocks {
		return false
	}
	f.tens(block)[slot%perBlock] = v
	return true
}

// advance makes block the newest: blocks in between are gaps, what falls out of the fine part is packed.
func (f *fast) advance(block int64) {
	if block-int64(f.head) >= allBlocks {
		*f = fast{head: int32(block)}
		return
	}
	for b := int64(f.head) + 1; b <= block; b++ {
		t := f.tens(b)
		if old := b - fineBlocks; old > 0 {
			f.coarse[old%coarseBlocks] = pack(t)
		}
		*t = [perBlock]uint32{}
	}
	f.head = int32(block)
}

// collect adds the samples of the slots first..last to g, oldest first.
func (f *fast) collect(first, last int64, g *gather) {
	head := int64(f.head)
	first, last = max(first, (head-allBlocks+1)*perBlock), min(last, head*perBlock+perBlock-1)
	var unpacked [perBlock]uint32
	for slot := first; slot <= last; {
		block := slot / perBlock
		t := &unpacked
		if block > head-fineBlocks {
			t = f.tens(block)
		} else {
			f.coarse[block%coarseBlocks].unpack(t)
		}
		for end := min(last, block*perBlock+perBlock-1); slot <= end; slot++ {
			if v := t[slot%perBlock]; v != 0 {
				g.add(slot, v)
			}
		}
	}
}

// newest is the last sample of the slots first..last; v is 0 for none.
func (f *fast) newest(first, last int64) (slot int64, v uint32) {
	head := int64(f.head)
	last = min(last, head*perBlock+perBlock-1)
	fine := max(first, (head-fineBlocks+1)*perBlock, perBlock)
	for slot = last; slot >= fine; slot-- {
		if v = f.tens(slot / perBlock)[slot%perBlock]; v != 0 {
			return slot, v
		}
	}
	var room [perBlock]uint32
	for block := slot / perBlock; slot >= first && block > max(head-allBlocks, 0); block-- {
		f.coarse[block%coarseBlocks].unpack(&room)
		for ; slot >= max(first, block*perBlock); slot-- {
			if v = room[slot%perBlock]; v != 0 {
				return slot, v
			}
		}
	}
	return 0, 0
}

// slow is a series with a sample per 10 s: the value with 1 + its second within the block in the lowest four bits, which
// costs it a relative 1e-6.
type slow struct {
	head   int32
	blocks [allBlocks]uint32
}

const offsetBits = 0xf

func (s *slow) put(slot int64, v uint32) bool {
	block := slot / perBlock
	head := int64(s.head)
	switch {
	case block <= head-allBlocks:
		return false
	case block-head >= allBlocks:
		*s = slow{head: int32(block)}
	case block > head:
		for b := head + 1; b <= block; b++ {
			s.blocks[b%allBlocks] = 0
		}
		s.head = int32(block)
	}
	offset := uint32(slot%perBlock) + 1
	at := &s.blocks[block%allBlocks]
	if offset >= *at&offsetBits {
		*at = (v-1)&^offsetBits | offset
	}
	return true
}

// newest is fast's.
func (s *slow) newest(first, last int64) (slot int64, v uint32) {
	head := int64(s.head)
	for block := min(last/perBlock, head); block >= max(first/perBlock, head-allBlocks+1, 1); block-- {
		if v = s.blocks[block%allBlocks]; v == 0 {
			continue
		}
		if slot = block*perBlock + int64(v&offsetBits) - 1; slot >= first && slot <= last {
			return slot, v&^offsetBits + 1
		}
	}
	return 0, 0
}

func (s *slow) collect(first, last int64, g *gather) {
	head := int64(s.head)
	from := max(first/perBlock, head-allBlocks+1)
	for block := from; block <= min(last/perBlock, head); block++ {
		v := s.blocks[block%allBlocks]
		if v == 0 {
			continue
		}
		if slot := block*perBlock + int64(v&offsetBits) - 1; slot >= first && slot <= last {
			g.add(slot, v&^offsetBits+1)
		}
	}
}
