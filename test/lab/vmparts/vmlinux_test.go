// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// probe is the code that enableResctrl looks for, with a jump target.
var probe = []byte{0x3d, 0xff, 0xff, 0x0f, 0x00, 0x0f, 0x85, 1, 2, 3, 4}

// elfWith builds the smallest ELF file with a .init.text section of that content.
func elfWith(t *testing.T, text []byte) []byte {
	t.Helper()
	names := []byte("\x00.init.text\x00.shstrtab\x00")
	const header, entry = 64, 64
	textAt := header
	namesAt := textAt + len(text)
	sectionsAt := namesAt + len(names)
	var b bytes.Buffer
	put := func(v ...any) {
		for _, x := range v {
			if err := binary.Write(&b, binary.LittleEndian, x); err != nil {
				t.Fatal(err)
			}
		}
	}
	put([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9), uint16(2), uint16(62), uint32(1), uint64(0), uint64(0),
		uint64(sectionsAt), uint32(0), uint16(header), uint16(0), uint16(0), uint16(entry), uint16(3), uint16(2))
	put(text, names)
	section := func(name, kind uint32, at, size int) {
		put(name, kind, uint64(0), uint64(0), uint64(at), uint64(size), uint32(0), uint32(0), uint64(1), uint64(0))
	}
	section(0, 0, 0, 0)
	section(1, 1, textAt, len(text))
	section(12, 3, namesAt, len(names))
	return b.Bytes()
}

func TestEnableResctrl(t *testing.T) {
	t.Parallel()
	text := append(append([]byte("before"), probe...), "after"...)
	in := elfWith(t, text)
	out, err := enableResctrl(in)
	if err != nil {
		t.Fatal(err)
	}
	patched := append(append([]byte("before"), probe[:5]...), bytes.Repeat([]byte{0x90}, 6)...)
	want := bytes.Replace(in, text, append(patched, "after"...), 1)
	if !bytes.Equal(out, want) {
		t.Errorf("got %x, want %x", out, want)
	}
	if !bytes.Contains(in, probe) {
		t.Error("the input was changed")
	}
}

func TestEnableResctrlRefusesToGuess(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][]byte{
		"absent": []byte("no such code"),
		"twice":  append(bytes.Clone(probe), probe...),
	} {
		if _, err := enableResctrl(elfWith(t, text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := enableResctrl([]byte("no ELF file")); err == nil {
		t.Error("no ELF file: accepted")
	}
}

func TestExtractVmlinux(t *testing.T) {
	t.Parallel()
	payload := append(frame(0x14, 'a', 1, 0, 0x10, 'z'), 10, 0, 0, 0)
	image := make([]byte, 2*bootSector, 2*bootSector+len(payload))
	image[offSetupSects] = 1
	copy(image[offHeaderMagic:], "HdrS")
	binary.LittleEndian.PutUint32(image[offPayloadLength:], uint32(len(payload)))
	image = append(image, payload...)
	got, err := extractVmlinux(image)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "aaaaaaaaaz" {
		t.Errorf("got %q", got)
	}
	for name, broken := range map[string][]byte{
		"cut off":   image[:len(image)-1],
		"no header": make([]byte, 2*bootSector),
		"too short": []byte("x"),
	} {
		if _, err := extractVmlinux(broken); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAtLeast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		release, series string
		want            bool
	}{
		{"6.12.107+deb13-cloud-amd64", "6.12", true},
		{"6.1.0-50-cloud-amd64", "6.12", false},
		{"7.3.1+deb14-cloud-amd64", "7.2", true},
		{"7.2.13", "6.12", true},
		{"cloud-amd64", "6.1", false},
	} {
		if got := atLeast(tc.release, tc.series); got != tc.want {
			t.Errorf("atLeast(%q, %q) is %v", tc.release, tc.series, got)
		}
	}
}

func TestQEMUVersion(t *testing.T) {
	t.Parallel()
	version, major, err := qemuVersion("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright\n")
	if err != nil || version != "10.0.2" || major != 10 {
		t.Errorf("got %q, %d, %v", version, major, err)
	}
	if _, _, err := qemuVersion("something else"); err == nil {
		t.Error("text without a version was accepted")
	}
}
