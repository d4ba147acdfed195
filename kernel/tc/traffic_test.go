// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
)

// pods of the tests: one of LS, one of BE with two addresses, one of BE with a limit.
func pods() []shape.Pod {
	return []shape.Pod{
		{Name: "a/ls", Class: shape.LS, Addresses: []netip.Addr{podLS}},
		{Name: "a/be", Class: shape.BE, Addresses: []netip.Addr{podBE, podBE6}},
		{Name: "a/slow", Class: shape.BE, Limit: 8 * unit.Megabit, Addresses: []netip.Addr{podSlow}},
	}
}

// exchange sends n datagrams and waits until all have arrived.
func exchange(t *testing.T, from, to int, n int) {
	t.Helper()
	data, got := make([]byte, 200), 0
	for deadline := time.Now().Add(time.Minute); got < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d datagrams arrived", got, n)
		}
		// One at a time, so that no queue overflows.
		if _, err := unix.Write(from, data); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(to), Events: unix.POLLIN}}, 200)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if ready > 0 {
			if _, err = unix.Read(to, data); err == nil {
				got++
			}
		}
	}
}

// Every packet is counted by the class of its pod: by its source on the way out, by its destination on the way in, with IPv4 and
// IPv6; the node's own are the system's. What comes in arrives in spite of its way through the other device.
func TestPacketsMeetTheirClass(t *testing.T) {
	t.Parallel()
	const packets = 20
	for _, key := range []string{upEgress, upIngress} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.set(key, testShape)
			n.sync(key, pods()...)
			slow := uint16(minorPod)
			for _, tc := range []struct {
				pod, world netip.Addr
				minor      uint16
			}{{podLS, world, 0x14}, {podBE, world, 0x15}, {podBE6, world6, 0x15}, {podSlow, world, slow}, {own, world, minorSystem}} {
				before := n.counts(key)
				inside, outside := n.udp(tc.pod, tc.world), n.out.udp(tc.world, tc.pod)
				if key == upEgress {
					exchange(t, inside, outside, packets)
				} else {
					exchange(t, outside, inside, packets)
				}
				after := n.counts(key)
				for m, k := range after {
					seen := k.sent.Packets - before[m].sent.Packets
					leaf := m == minorSystem || m >= 0x10
					if leaf && m == tc.minor && seen < packets || leaf && m != tc.minor && m != minorSystem && seen > 0 {
						t.Errorf("%s: class %x has seen %d packets", tc.pod, m, seen)
					}
				}
			}
			var counts map[string]Count
			var err error
			n.do(func() { counts, err = Shaper{}.Counts(key) })
			if err != nil || counts[shape.BE].Packets < 3*packets || counts[shape.LS].Packets < packets || counts[shape.LSR] != (Count{}) {
				t.Errorf("%+v, %v", counts, err)
			}
		})
	}
}

// Under a flood of all, a class gets no more than its limit and a pod no more than its own, while another class is not held down.
// The bounds are of the token bucket, not of the machine's speed: bytes ≤ burst + rate × time.
func TestShaping(t *testing.T) {
	t.Parallel()
	const limited = "htb total=1000000000 system=800000000/1000000000/0 ls=100000000/1000000000/2 be=8000000/16000000/3"
	for _, key := range []string{upEgress, upIngress} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.set(key, limited)
			n.sync(key, pods()...)
			from, to := n.place, n.out
			pairs := [][2]netip.Addr{{podLS, world}, {podBE, world}, {podSlow, world}}
			if key == upIngress {
				from, to = n.out, n.place
				for i := range pairs {
					pairs[i][0], pairs[i][1] = pairs[i][1], pairs[i][0]
				}
			}
			var fds []int
			for _, p := range pairs {
				src, dst := from.udp(p[0], p[1]), to.udp(p[1], p[0])
				exchange(t, src, dst, 1) // the neighbour is known now
				fds = append(fds, src)
			}
			start, before := time.Now(), n.counts(key)
			data, offered := make([]byte, 1400), make([]float64, len(fds))
			for time.Since(start) < 1500*time.Millisecond {
				for i, fd := range fds {
					for range 8 {
						_, _ = unix.Write(fd, data) // full queues are the point
						offered[i] += float64(len(data))
					}
				}
			}
			after := n.counts(key)
			elapsed := time.Since(start).Seconds()
			sent := func(m uint16) float64 { return float64(after[m].sent.Bytes - before[m].sent.Bytes) }
			ls, be, slow := sent(4), sent(5), sent(minorPod)
			t.Logf("%s in %.2f s: LS %.0f bytes, BE %.0f, of them with a limit %.0f", key, elapsed, ls, be, slow)
			if most := 2e6*elapsed + 1<<17; be > most {
				t.Errorf("BE sent %.0f bytes, its limit allows %.0f", be, most)
			}
			if most := 1e6*elapsed + 1<<17; slow > most {
				t.Errorf("the pod sent %.0f bytes, its limit allows %.0f", slow, most)
			}
			// On a starved machine this is no flood: then LS has nearly all that was offered.
			if be < 1e5 || slow < be/4 || slow > 3*be/4 || ls < 2*be && ls < 0.9*offered[0] {
				t.Errorf("LS %.0f of %.0f, BE %.0f, limited pod %.0f bytes: somebody is held down for nothing, or two pods of one class are not alike",
					ls, offered[0], be, slow)
			}
		})
	}
}

// Pods come, move and go with as few changes as that takes.
func TestSync(t *testing.T) {
	t.Parallel()
	for _, key := range []string{upEgress, upIngress} {
		n := newNode(t)
		n.set(key, testShape)
		all := pods()
		steps := []struct {
			what    string
			change  func()
			changes int
		}{
			{"all come", func() {}, 5},
			{"nothing has changed", func() {}, 0},
			{"another limit", func() { all[2].Limit = unit.Megabit }, 1},
			{"another order", func() { all[0], all[2] = all[2], all[0] }, 0},
			{"another class", func() { all[2].Class = shape.BE }, 3},
			{"a limit more", func() { all[2].Limit = unit.Megabit }, 4},
			{"a limit less", func() { all[0].Limit = 0 }, 4},
			{"another address", func() { all[0].Addresses = []netip.Addr{netip.MustParseAddr("10.9.7.4")} }, 2},
			{"all go", func() { all = nil }, 6},
		}
		for _, s := range steps {
			s.change()
			if got := n.sync(key, all...); got != s.changes {
				t.Errorf("%s: %s: %d changes, want %d", key, s.what, got, s.changes)
			}
			if again := n.sync(key, all...); again != 0 {
				t.Errorf("%s: %s: %d changes more", key, s.what, again)
			}
		}
		for m := range n.counts(key) {
			if m >= minorPod {
				t.Errorf("%s: class %x is left", key, m)
			}
		}
	}
}

// Five hundred pods have their filters in as many buckets as their addresses spread over, and each leads where it shall.
func TestManyPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.set(upEgress, testShape)
	var all []shape.Pod
	for i := range 500 {
		a := netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})
		p := shape.Pod{Name: a.String(), Class: shape.BE, Addresses: []netip.Addr{a}}
		if i%2 == 0 {
			p.Limit = 10 * unit.Megabit
		}
		all = append(all, p)
	}
	if got := n.sync(upEgress, all...); got != 751 {
		t.Errorf("%d changes", got)
	}
	if got := n.sync(upEgress, all...); got != 0 {
		t.Errorf("%d changes for nothing", got)
	}
	n.must("list", func(c *conn) error {
		found, _, err := c.filters(n.index, shape.Egress)
		if len(found) != 500 {
			t.Errorf("%d filters", len(found))
		}
		for _, f := range found {
			if a := f.address.As4(); f.handle>>bucketShift&0xff != uint32(a[3]) {
				t.Errorf("%s is in bucket %x", f.address, f.handle)
			}
		}
		return err
	})
	// A class that is switched off takes its pods along.
	n.set(upEgress, "htb total=1000000000 system=900000000/1000000000/0 ls=100000000/1000000000/2")
	if left := n.counts(upEgress); len(left) != 4 {
		t.Errorf("%d classes are left", len(left))
	}
}
