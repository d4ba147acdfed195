// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
)

// Attributes of HTB (include/uapi/linux/pkt_sched.h).
const (
	htbParms  = 1
	htbInit   = 2
	htbRate64 = 6
	htbCeil64 = 7
	// htbVersion is what the kernel checks of struct tc_htb_glob; rateToQuantum counts only where no quantum is given.
	htbVersion    = 3
	rateToQuantum = 10
	// parmsSize is struct tc_htb_opt: two struct tc_ratespec of 12 bytes, then buffer, cbuffer, quantum, level, prio.
	parmsSize = 44
	// linkEthernet tells the kernel that no rate table comes along (TC_LINKLAYER_ETHERNET).
	linkEthernet = 1
)

// Minor numbers of our classes.
const (
	minorAll    = 1
	minorSystem = 2
	// minorLeaf is added to a class's own to get the leaf of its pods without a limit.
	minorLeaf = 0x10
	// minorPod is the first of a pod with a limit.
	minorPod = 0x100
	lastPod  = 0xffef
)

// quantum is what a pod may send before the next one of its class has its turn: a few full frames. A leaf that pods share gets as
// much for each, up to so many.
const (
	quantum   = 12_000
	mostTurns = 20
)

// class is one HTB class. Rates are bytes per second.
type class struct {
	// parent is 0 directly below the qdisc.
	minor, parent uint16
	rate, ceil    uint64
	// prio and quantum are a leaf's.
	prio, quantum uint32
	// sent is what has gone through, of classes that were read.
	sent Count
}

// Count is what has gone through a class.
type Count struct {
	Bytes   uint64
	Packets uint32
	// Dropped is what found its queue full.
	Dropped uint32
}

// same reports whether the kernel's class needs no change; leaf says that priority and quantum count.
func (k *class) same(want *class, leaf bool) bool {
	return k.parent == want.parent && k.rate == want.rate && k.ceil == want.ceil && (!leaf || k.prio == want.prio && k.quantum == want.quantum)
}

// htb is our root qdisc for a link.
func htb(index int) qdisc {
	glob := binary.NativeEndian.AppendUint32(nil, htbVersion)
	for _, v := range [...]uint32{rateToQuantum, minorSystem, 0, 0} { // default class, debug, direct packets
		glob = binary.NativeEndian.AppendUint32(glob, v)
	}
	var o message
	o.bytes(htbInit, glob)
	return qdisc{tcmsg{index: index, handle: major, parent: parentRoot}, "htb", o}
}

// burst is what a class may send at once: 2 ms of its rate and at least a large segment, so that neither timers nor segmentation
// offload keep it below its rate. The kernel takes it as a time in ticks of 64 ns (PSCHED_SHIFT).
func burst(rate uint64) uint32 {
	bytes := max(rate/500, 16<<10)
	return uint32(min(float64(bytes)/float64(rate)*1e9/64, 1<<31))
}

// body is the message that makes or changes the class.
func (k *class) body(index int) message {
	b := tcmsg{index: index, handle: major | uint32(k.minor), parent: major | uint32(k.parent)}.body()
	b.text(unix.TCA_KIND, "htb")
	b.nest(unix.TCA_OPTIONS, func(o *message) {
		p := ratespec(make([]byte, 0, parmsSize), k.rate)
		p = ratespec(p, k.ceil)
		for _, v := range [...]uint32{burst(k.rate), burst(k.ceil), k.quantum, 0, k.prio} {
			p = binary.NativeEndian.AppendUint32(p, v)
		}
		o.bytes(htbParms, p)
		if k.rate > 1<<32-1 {
			o.u64(htbRate64, k.rate)
		}
		if k.ceil > 1<<32-1 {
			o.u64(htbCeil64, k.ceil)
		}
	})
	return b
}

// ratespec is struct tc_ratespec.
func ratespec(b []byte, rate uint64) []byte {
	b = append(b, 0, linkEthernet, 0, 0, 0, 0, 0, 0) // cell_log, linklayer, overhead, cell_align, mpu
	return binary.NativeEndian.AppendUint32(b, uint32(min(rate, 1<<32-1)))
}

// readClass reads a class of ours; false for any other.
func readClass(b []byte) (k class, ok bool) {
	t, rest, ok := readTcmsg(b)
	if !ok || t.handle&majorMask != major {
		return k, false
	}
	k.minor = uint16(t.handle) //nolint:gosec // the lower half
	if t.parent != parentRoot {
		k.parent = uint16(t.parent) //nolint:gosec // the lower half
	}
	options := netlink.Attribute(rest, unix.TCA_OPTIONS)
	p := netlink.Attribute(options, htbParms)
	if len(p) < parmsSize {
		return k, false
	}
	k.rate, k.ceil = uint64(number(p, 8)), uint64(number(p, 20))
	k.quantum, k.prio = number(p, 32), number(p, 40)
	if v := netlink.Attribute(options, htbRate64); v != nil {
		k.rate = long(v)
	}
	if v := netlink.Attribute(options, htbCeil64); v != nil {
		k.ceil = long(v)
	}
	const basic, queue = 1, 3 // TCA_STATS_BASIC, TCA_STATS_QUEUE of include/uapi/linux/gen_stats.h
	stats := netlink.Attribute(rest, unix.TCA_STATS2)
	s := netlink.Attribute(stats, basic)
	k.sent = Count{Bytes: long(s), Packets: number(s, 8), Dropped: number(netlink.Attribute(stats, queue), 8)}
	return k, true
}

// classes are ours of a link, by minor number.
func (c *conn) classes(index int) (map[uint16]class, error) {
	out := map[uint16]class{}
	err := c.dump(unix.RTM_GETTCLASS, tcmsg{index: index}.body(), func(b []byte) error {
		if k, ok := readClass(b); ok {
			out[k.minor] = k
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the classes of link %d: %w", index, err)
	}
	return out, nil
}

func (c *conn) setClass(index int, k *class) error {
	if err := c.change(unix.RTM_NEWTCLASS, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, k.body(index)); err != nil {
		return fmt.Errorf("set class 4b52:%x: %w", k.minor, err)
	}
	return nil
}

func (c *conn) removeClass(index int, minor uint16) error {
	err := c.change(unix.RTM_DELTCLASS, 0, tcmsg{index: index, handle: major | uint32(minor)}.body())
	if err != nil && !is(err, unix.ENOENT) {
		return fmt.Errorf("remove class 4b52:%x: %w", minor, err)
	}
	return nil
}
