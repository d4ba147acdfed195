// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Offsets of the x86 boot header (kernel doc: arch/x86/boot).
const (
	offSetupSects     = 0x1f1
	offHeaderMagic    = 0x202
	offPayloadOffset  = 0x248
	offPayloadLength  = 0x24c
	bootSector        = 512
	zstdMagic         = 0xfd2fb528
	maxVmlinux        = 512 << 20
	jneBytes          = 6
	resctrlMatchBytes = 5
)

// extractVmlinux returns the ELF kernel inside a bzImage. Debian packs it with LZ4 (6.1) or zstd (6.12 and later); the
// last four bytes of the payload are the unpacked size.
func extractVmlinux(image []byte) ([]byte, error) {
	if len(image) < offPayloadLength+4 || string(image[offHeaderMagic:offHeaderMagic+4]) != "HdrS" {
		return nil, errors.New("extract vmlinux: no x86 boot header")
	}
	sectors := int(image[offSetupSects])
	if sectors == 0 {
		sectors = 4 // the boot protocol's default
	}
	start := (sectors+1)*bootSector + int(binary.LittleEndian.Uint32(image[offPayloadOffset:]))
	length := int(binary.LittleEndian.Uint32(image[offPayloadLength:]))
	if length < 8 || start+length > len(image) {
		return nil, errors.New("extract vmlinux: payload lies outside the image")
	}
	payload := image[start : start+length-4]
	size := int(binary.LittleEndian.Uint32(image[start+length-4:]))
	if size > maxVmlinux {
		return nil, fmt.Errorf("extract vmlinux: unpacked size %d is not plausible", size)
	}
	switch binary.LittleEndian.Uint32(payload) {
	case lz4LegacyMagic:
		return decodeLZ4Legacy(payload, size)
	case zstdMagic:
		return decodeZstd(payload, size)
	default:
		return nil, fmt.Errorf("extract vmlinux: payload starts with %x, neither lz4 nor zstd", payload[:4])
	}
}

func decodeZstd(in []byte, size int) ([]byte, error) {
	// The kernel is packed with a window of up to 128 MiB, above the decoder's default limit.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxVmlinux))
	if err != nil {
		return nil, fmt.Errorf("open zstd decoder: %w", err)
	}
	defer dec.Close()
	out, err := dec.DecodeAll(in, make([]byte, 0, size))
	if err != nil {
		return nil, fmt.Errorf("decompress zstd: %w", err)
	}
	if len(out) != size {
		return nil, fmt.Errorf("decompress zstd: got %d bytes, header says %d", len(out), size)
	}
	return out, nil
}

// enableResctrl makes the kernel believe its probe for cache allocation. Without CPUID enumeration a Haswell server is
// probed by writing the mask MSR and reading it back; emulation reads 0, so the kernel's "cmp eax,0xfffff; jne" leaves.
// The jne is replaced by NOPs. Anything but exactly one match in .init.text is an error: no kernel is changed by guess.
func enableResctrl(vmlinux []byte) ([]byte, error) {
	file, err := elf.NewFile(bytes.NewReader(vmlinux))
	if err != nil {
		return nil, fmt.Errorf("parse vmlinux: %w", err)
	}
	section := file.Section(".init.text")
	if section == nil {
		return nil, errors.New("patch vmlinux: no .init.text")
	}
	text, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read .init.text: %w", err)
	}
	pattern := []byte{0x3d, 0xff, 0xff, 0x0f, 0x00, 0x0f, 0x85} // cmp eax,0xfffff; jne rel32
	if n := bytes.Count(text, pattern); n != 1 {
		return nil, fmt.Errorf("patch vmlinux: resctrl probe found %d times in .init.text, want once", n)
	}
	at := int(section.Offset) + bytes.Index(text, pattern) + resctrlMatchBytes
	out := slices.Clone(vmlinux)
	for i := range jneBytes {
		out[at+i] = 0x90
	}
	return out, nil
}
