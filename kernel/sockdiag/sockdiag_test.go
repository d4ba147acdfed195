// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sockdiag

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
)

// part is a message as the kernel sends it.
func part(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerSize+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, make([]byte, 10)...)
	b = append(b, body...)
	return append(b, make([]byte, netlink.Align(len(b))-len(b))...)
}

// end is NLMSG_DONE with an error number.
func end(errno int32) []byte {
	return part(unix.NLMSG_DONE, binary.NativeEndian.AppendUint32(nil, uint32(-errno)))
}

// connection is inet_diag_msg with an INET_DIAG_INFO of a size; offsets are those of the kernel's headers.
func connection(from, to string, state uint8, sent, heard, rtt uint32, size int) []byte {
	b := make([]byte, 72)
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
	b[0], b[1] = unix.AF_INET, state
	if src.Is6() {
		b[0] = unix.AF_INET6
	}
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	b = append(b, 5, 0, 8, 0, 'x', 0, 0, 0) // another attribute before it
	info := make([]byte, max(size, 72))
	binary.NativeEndian.PutUint32(info[44:], sent)
	binary.NativeEndian.PutUint32(info[56:], heard)
	binary.NativeEndian.PutUint32(info[68:], rtt)
	b = binary.NativeEndian.AppendUint16(b, uint16(4+size))
	b = binary.NativeEndian.AppendUint16(b, 2)
	return part(18, append(b, info[:size]...))
}

func TestConnections(t *testing.T) {
	t.Parallel()
	const pod, peer = "10.1.0.5", "10.2.0.9"
	for name, c := range map[string]struct {
		msg  []byte
		want uint32 // 0: does not count
	}{
		"active":               {connection(pod, peer, 1, 3000, 2000, 250, 232), 250},
		"of an older kernel":   {connection(pod, peer, 1, 3000, 2000, 250, 104), 250},
		"IPv6":                 {connection("fd00::5", "fd00::9", 1, 0, 0, 90, 280), 90},
		"at the limit":         {connection(pod, peer, 1, 10000, 10000, 250, 232), 250},
		"sent long ago":        {connection(pod, peer, 1, 10001, 20, 250, 232), 0},
		"heard long ago":       {connection(pod, peer, 1, 20, 10001, 250, 232), 0},
		"never measured":       {connection(pod, peer, 1, 0, 0, 0, 232), 0},
		"closing":              {connection(pod, peer, 4, 0, 0, 250, 232), 0},
		"loopback":             {connection("127.0.0.1", "127.0.0.2", 1, 0, 0, 20, 232), 0},
		"to itself":            {connection(pod, pod, 1, 0, 0, 20, 232), 0},
		"loopback by IPv6":     {connection("::1", "::1", 1, 0, 0, 20, 232), 0},
		"loopback by a mapped": {connection("::ffff:127.0.0.1", "::ffff:127.0.0.1", 1, 0, 0, 20, 232), 0},
		"to itself by IPv6":    {connection("fd00::5", "fd00::5", 1, 0, 0, 20, 232), 0},
		"information too old":  {connection(pod, peer, 1, 0, 0, 250, 68), 0},
		"without information":  {part(18, make([]byte, 72)), 0},
		"cut short":            {part(18, make([]byte, 40)), 0},
		"another kind":         {part(20, connection(pod, peer, 1, 0, 0, 250, 232)[16:]), 0},
	} {
		var conn conn
		_, done, err := conn.parts(c.msg, 10*time.Second)
		if err != nil || done {
			t.Errorf("%s: done %v, %v", name, done, err)
		}
		if got := append(conn.rtts, 0)[0]; got != c.want || len(conn.rtts) > 1 {
			t.Errorf("%s: %v, want %d", name, conn.rtts, c.want)
		}
		if len(conn.active) != len(conn.rtts) {
			t.Errorf("%s: %d to follow", name, len(conn.active))
		}
	}
}

// TestParts: several messages in one read, and the ends of a dump.
func TestParts(t *testing.T) {
	t.Parallel()
	two := append(connection("10.1.0.5", "10.2.0.9", 1, 0, 0, 250, 232), connection("10.1.0.5", "10.2.0.8", 1, 0, 0, 300, 232)...)
	for name, c := range map[string]struct {
		b    []byte
		seen int
		done bool
		err  error
	}{
		"to be continued":         {two, 2, false, nil},
		"whole":                   {append(two[:len(two):len(two)], end(0)...), 2, true, nil},
		"end without number":      {part(unix.NLMSG_DONE, nil), 0, true, nil},
		"not all":                 {end(int32(unix.ENOMEM)), 0, true, unix.ENOMEM},
		"refused":                 {part(unix.NLMSG_ERROR, binary.NativeEndian.AppendUint32(nil, ^uint32(unix.ENOENT)+1)), 0, true, unix.ENOENT},
		"error cut short":         {part(unix.NLMSG_ERROR, nil), 0, true, errAnswer},
		"header cut short":        {[]byte{1, 2, 3}, 0, true, errAnswer},
		"longer than it is":       {two[:100], 0, true, errAnswer},
		"shorter than its header": {append([]byte{8}, make([]byte, 19)...), 0, true, errAnswer},
	} {
		var conn conn
		seen, done, err := conn.parts(c.b, time.Second)
		if seen != c.seen || done != c.done || !errors.Is(err, c.err) || len(conn.rtts) != c.seen {
			t.Errorf("%s: %d seen, %v, done %v, %v", name, seen, conn.rtts, done, err)
		}
	}
}

// TestKeep: who was active is followed rather than who was not, and no more than the limit.
func TestKeep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ active, idle, want, wantActive int }{
		{0, 0, 0, 0}, {3, 2, 5, 3}, {0, 40, MaxKnown, 0}, {3, 40, MaxKnown, 3}, {40, 40, MaxKnown, MaxKnown},
	} {
		var conn conn
		for i := range max(c.active, c.idle) {
			for _, one := range []struct {
				told bool
				host byte
				sent uint32
			}{{i < c.idle, 2, 20000}, {i < c.active, 1, 0}} {
				if !one.told {
					continue
				}
				to := netip.AddrFrom4([4]byte{10, one.host, 0, byte(i)}).String()
				if _, _, err := conn.parts(connection("10.9.0.1", to, 1, one.sent, 0, 250, 232), 10*time.Second); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := conn.keep(make([]Connection, 0, MaxKnown))
		active := 0
		for _, k := range got {
			if k.id[20:24][1] == 1 { // behind two ports and the own address
				active++
			}
		}
		if len(got) != c.want || active != c.wantActive {
			t.Errorf("of %d active and %d idle: %d kept, %d of them active; want %d and %d", c.active, c.idle, len(got), active, c.want, c.wantActive)
		}
	}
}

// numbered is a message as the answer to a question.
func numbered(kind uint16, seq uint32, body []byte) []byte {
	b := part(kind, body)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return b
}

// single is the answer about one connection, refused one that it is not there.
func single(seq, sent, rtt uint32) []byte {
	return numbered(20, seq, connection("10.1.0.5", "10.2.0.9", 1, sent, 0, rtt, 232)[headerSize:])
}

func refused(seq uint32, errno unix.Errno) []byte {
	return numbered(unix.NLMSG_ERROR, seq, binary.NativeEndian.AppendUint32(nil, ^uint32(errno)+1))
}

// TestSingle: answers about known connections, in the order of the questions.
func TestSingle(t *testing.T) {
	t.Parallel()
	known := []Connection{{family: 2, id: [48]byte{1}}, {family: 2, id: [48]byte{2}}, {family: 10, id: [48]byte{3}}}
	for name, c := range map[string]struct {
		b    [][]byte
		left string // ids
		rtts []uint32
		err  error
	}{
		"all":              {[][]byte{single(0, 0, 250), single(1, 0, 300), single(2, 0, 90)}, "123", []uint32{250, 300, 90}, nil},
		"one was idle":     {[][]byte{single(0, 0, 250), single(1, 60000, 300), single(2, 0, 90)}, "123", []uint32{250, 90}, nil},
		"two have ended":   {[][]byte{refused(0, unix.ENOENT), single(1, 0, 300), refused(2, unix.ESTALE)}, "2", []uint32{300}, nil},
		"one is closing":   {[][]byte{single(0, 0, 250), numbered(20, 1, connection("10.1.0.5", "10.2.0.9", 8, 0, 0, 7, 232)[headerSize:]), single(2, 0, 90)}, "13", []uint32{250, 90}, nil},
		"not permitted":    {[][]byte{refused(0, unix.EPERM)}, "", nil, unix.EPERM},
		"out of order":     {[][]byte{single(1, 0, 250)}, "", nil, errAnswer},
		"one too many":     {[][]byte{single(0, 0, 1), single(1, 0, 1), single(2, 0, 1), single(3, 0, 1)}, "", nil, errAnswer},
		"another kind":     {[][]byte{numbered(18, 0, nil)}, "", nil, errAnswer},
		"an error of none": {[][]byte{refused(0, 0)}, "", nil, errAnswer},
		"cut short":        {[][]byte{{1, 2, 3}}, "", nil, errAnswer},
	} {
		for _, together := range []bool{false, true} { // in one read, or one each
			reads := c.b
			if together {
				reads = [][]byte{slices.Concat(c.b...)}
			}
			var conn conn
			mine := slices.Clone(known)
			left, next := mine[:0], 0
			var err error
			for _, b := range reads {
				if left, next, err = conn.single(b, mine, left, next, 10*time.Second); err != nil {
					break
				}
			}
			ids := ""
			for _, k := range left {
				ids += string('0' + k.id[0])
			}
			if !errors.Is(err, c.err) || err == nil && (ids != c.left || !slices.Equal(conn.rtts, c.rtts) || next != len(known)) {
				t.Errorf("%s (together %v): left %s, %v, next %d, %v", name, together, ids, conn.rtts, next, err)
			}
		}
	}
}

func FuzzSingle(f *testing.F) {
	f.Add(slices.Concat(single(0, 0, 250), refused(1, unix.ENOENT)))
	f.Add(refused(0, unix.EPERM))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c conn
		known := make([]Connection, 2)
		left, next, err := c.single(b, known, known[:0], 0, time.Second)
		if len(c.rtts) > next || len(left) > next || next > len(known) || err == nil && len(c.rtts) > len(left) {
			t.Errorf("%d round trips, %d of %d left, %v", len(c.rtts), len(left), next, err)
		}
	})
}

func FuzzParts(f *testing.F) {
	f.Add(append(connection("10.1.0.5", "10.2.0.9", 1, 0, 0, 250, 232), end(0)...))
	f.Add(connection("fd00::5", "fd00::9", 1, 0, 0, 250, 68))
	f.Add(end(int32(unix.ENOMEM)))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c conn
		seen, done, err := c.parts(b, time.Second)
		if len(c.rtts) > seen || err != nil && !done {
			t.Errorf("%d of %d, done %v, %v", len(c.rtts), seen, done, err)
		}
		for _, rtt := range c.rtts {
			if rtt == 0 {
				t.Error("a round trip of no time")
			}
		}
	})
}
