// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
	"github.com/koord-rt/koord-rt/model/shape"
)

// answer is a netlink message.
func answer(kind, flags uint16, seq uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerSize+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return append(binary.NativeEndian.AppendUint32(b, 4711), body...)
}

func TestErrorsSayWhy(t *testing.T) {
	t.Parallel()
	refused := unix.ENOENT
	body := binary.NativeEndian.AppendUint32(nil, uint32(-int32(refused)))
	body = append(body, answer(unix.RTM_NEWQDISC, 0, 1, nil)...)
	var m message
	m.text(unix.NLMSGERR_ATTR_MSG, "Specified qdisc kind is unknown")
	capped := append(append([]byte(nil), body...), m...)
	for name, tc := range map[string]struct {
		body  []byte
		flags uint16
		want  string
	}{
		"capped":     {capped, unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS, "no such file or directory (Specified qdisc kind is unknown)"},
		"whole":      {append(body, m...), unix.NLM_F_ACK_TLVS, "no such file or directory (Specified qdisc kind is unknown)"},
		"old kernel": {body, 0, "no such file or directory"},
		"cut short":  {body[:6], unix.NLM_F_ACK_TLVS, "no such file or directory"},
	} {
		c := &conn{seq: 1}
		done, err := c.parts(answer(unix.NLMSG_ERROR, tc.flags, 1, tc.body), func(uint16, []byte) { t.Error("an object") })
		if !done || err == nil || err.Error() != tc.want || !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %v, %v", name, done, err)
		}
	}
}

func TestInterruptedDump(t *testing.T) {
	t.Parallel()
	c := &conn{seq: 1}
	if done, err := c.parts(answer(unix.RTM_NEWLINK, unix.NLM_F_DUMP_INTR, 1, nil), func(uint16, []byte) {}); !done || err == nil {
		t.Errorf("%v, %v", done, err)
	}
}

// Whatever the kernel, or somebody in its place, answers: no panic, and no object where the message is broken.
func FuzzAnswer(f *testing.F) {
	k := class{minor: 5, parent: 1, rate: 1e6, ceil: 1 << 33, prio: 3, quantum: quantum}
	f.Add(answer(unix.RTM_NEWTCLASS, 0, 1, k.body(2)))
	f.Add(answer(unix.RTM_NEWTFILTER, 0, 1, families[1].message(2, 0)))
	f.Add(answer(unix.RTM_NEWLINK, 0, 1, ifinfo(1, 0, 0)))
	f.Add(answer(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, 1, make([]byte, 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &conn{seq: 1}
		_, _ = c.parts(b, func(_ uint16, b []byte) {
			if k, ok := readClass(b); ok && len(b) < tcmsgSize+parmsSize {
				t.Errorf("%+v of %x", k, b)
			}
			readLink(b)
			if _, rest, ok := readTcmsg(b); ok {
				for i := range families {
					if a, ok := families[i].address(netlink.Attribute(netlink.Attribute(rest, unix.TCA_OPTIONS), u32Sel), shape.Ingress); ok && !a.IsValid() {
						t.Errorf("%x", b)
					}
				}
			}
		})
	})
}

// A class reads back as it was written; the kernel fills in the rest.
func TestClassText(t *testing.T) {
	t.Parallel()
	for _, k := range []class{
		{minor: 5, parent: 1, rate: 1e6, ceil: 2e6, prio: 3, quantum: quantum},
		{minor: 0x100, parent: 5, rate: leafRate, ceil: 1 << 33, prio: 7, quantum: 1},
		{minor: 1, parent: 0, rate: 1 << 40, ceil: 1 << 40},
	} {
		if got, ok := readClass(k.body(2)); !ok || got != k {
			t.Errorf("%+v, %v, want %+v", got, ok, k)
		}
	}
	if k := (class{rate: 1, ceil: 1}); burst(k.rate) == 0 || burst(1<<50) == 0 {
		t.Error("no burst")
	}
}

func TestSelector(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"10.1.2.3", "fd00::1:2", "255.255.255.255", "::ffff:1.2.3.4"} {
		addr := netip.MustParseAddr(a)
		for d := range shape.NumDirections {
			f := familyOf(addr)
			raw := addr.AsSlice()
			var keys []key
			for i := range f.words {
				keys = append(keys, key{0xffffffff, binary.BigEndian.Uint32(raw[4*i:]), f.offset(d) + 4*i})
			}
			s := sel(terminal, 0, 0, keys...)
			if got, ok := f.address(s, d); !ok || got != addr {
				t.Errorf("%s %s: %s, %v", addr, d, got, ok)
			}
			if got, ok := f.address(s, 1-d); ok {
				t.Errorf("%s: read in the other direction as %s", addr, got)
			}
			if _, ok := f.address(s[:len(s)-1], d); ok {
				t.Error("cut short")
			}
		}
	}
}

// What a ledger says is not believed.
func FuzzRoot(f *testing.F) {
	f.Add("qdisc fq 8001 AAAA")
	f.Add(shape.Default)
	f.Fuzz(func(t *testing.T, in string) {
		q, err := parseRoot(in)
		if err != nil || q == nil {
			return
		}
		text, err := rootText([]qdisc{*q})
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if back, err := parseRoot(text); err != nil || !reflect.DeepEqual(back, q) {
			t.Errorf("%q became %q, %v", in, text, err)
		}
	})
}
