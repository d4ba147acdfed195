// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
	"github.com/koord-rt/koord-rt/model/shape"
)

// Attributes of u32 and mirred (include/uapi/linux/pkt_cls.h, tc_act/tc_mirred.h).
const (
	u32ClassID = 1
	u32Hash    = 2
	u32Link    = 3
	u32Divisor = 4
	u32Sel     = 5
	u32Act     = 7

	actKind, actOptions = 1, 2
	mirredParms         = 2
	egressRedirect      = 1 // TCA_EGRESS_REDIR
	actStolen           = 4 // TC_ACT_STOLEN

	// terminal: a match ends the search (TC_U32_TERMINAL).
	terminal = 1
	// selSize and keySize are struct tc_u32_sel without keys, and struct tc_u32_key.
	selSize, keySize = 16, 16
	// tableMask takes the hash table out of a handle, bucketShift places the bucket.
	tableMask   = uint32(0xfff00000)
	bucketShift = 12
	buckets     = 256
)

// redirectPref is the preference of the filter that sends all that comes in to our IFB device.
const redirectPref = uint16(0x4b52)

// family is one of the two protocols with all that differs between them.
type family struct {
	proto, pref uint16
	// table is its hash table's handle.
	table uint32
	// source and destination are the offsets of the addresses in the header; words are their length.
	source, destination, words int
}

// families: RFC 791 and RFC 8200.
var families = [...]family{
	{proto: unix.ETH_P_IP, pref: 0x10, table: 0x01000000, source: 12, destination: 16, words: 1},
	{proto: unix.ETH_P_IPV6, pref: 0x11, table: 0x02000000, source: 8, destination: 24, words: 4},
}

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return &families[0]
	}
	return &families[1]
}

// offset is where a direction's address begins: a pod is the source of what leaves and the destination of what comes.
func (f *family) offset(d shape.Direction) int {
	if d == shape.Ingress {
		return f.destination
	}
	return f.source
}

// info is tcm_info: preference and protocol, the latter in the network's order.
func info(pref, proto uint16) uint32 {
	return uint32(pref)<<16 | uint32(bits.ReverseBytes16(proto))
}

// filter is one address of a pod.
type filter struct {
	address netip.Addr
	minor   uint16
	// handle is the kernel's.
	handle uint32
}

// key is one comparison of 32 bits of the header.
type key struct {
	mask, value uint32
	offset      int
}

// sel is struct tc_u32_sel with its keys; hash, where not 0, is the mask of the word at hashAt that chooses the bucket.
func sel(flags uint8, hash uint32, hashAt int, keys ...key) []byte {
	b := []byte{flags, 0, uint8(len(keys)), 0, 0, 0, 0, 0, 0, 0} //nolint:gosec // at most 4 keys
	b = binary.NativeEndian.AppendUint16(b, uint16(hashAt))      //nolint:gosec // within a header
	b = binary.BigEndian.AppendUint32(b, hash)
	for _, k := range keys {
		b = binary.BigEndian.AppendUint32(b, k.mask)
		b = binary.BigEndian.AppendUint32(b, k.value)
		b = binary.NativeEndian.AppendUint32(b, uint32(k.offset)) //nolint:gosec // within a header
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

// message starts a filter of a family on our HTB.
func (f *family) message(index int, handle uint32) message {
	b := tcmsg{index: index, handle: handle, parent: major, info: info(f.pref, f.proto)}.body()
	b.text(unix.TCA_KIND, "u32")
	return b
}

// addTable makes a family's hash table and the filter that leads to it.
func (c *conn) addTable(index int, f *family, d shape.Direction) error {
	b := f.message(index, f.table)
	b.nest(unix.TCA_OPTIONS, func(o *message) { o.u32(u32Divisor, buckets) })
	if err := c.change(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
		return fmt.Errorf("make the hash table of addresses: %w", err)
	}
	b = f.message(index, 0)
	b.nest(unix.TCA_OPTIONS, func(o *message) {
		o.bytes(u32Sel, sel(0, 0xff, f.offset(d)+4*(f.words-1), key{}))
		o.u32(u32Link, f.table)
	})
	if err := c.change(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
		return fmt.Errorf("lead to the hash table of addresses: %w", err)
	}
	return nil
}

// addFilter sends what has a pod's address to a class.
func (c *conn) addFilter(index int, d shape.Direction, x *filter) error {
	f := familyOf(x.address)
	raw := x.address.AsSlice()
	keys := make([]key, f.words)
	for i := range keys {
		keys[i] = key{mask: 0xffffffff, value: binary.BigEndian.Uint32(raw[4*i:]), offset: f.offset(d) + 4*i}
	}
	b := f.message(index, 0)
	b.nest(unix.TCA_OPTIONS, func(o *message) {
		o.u32(u32ClassID, major|uint32(x.minor))
		o.u32(u32Hash, f.table|uint32(raw[len(raw)-1])<<bucketShift)
		o.bytes(u32Sel, sel(terminal, 0, 0, keys...))
	})
	if err := c.change(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
		return fmt.Errorf("send %s to class 4b52:%x: %w", x.address, x.minor, err)
	}
	return nil
}

func (c *conn) removeFilter(index int, x *filter) error {
	b := familyOf(x.address).message(index, x.handle)
	if err := c.change(unix.RTM_DELTFILTER, 0, b); err != nil && !is(err, unix.ENOENT) {
		return fmt.Errorf("take %s from class 4b52:%x: %w", x.address, x.minor, err)
	}
	return nil
}

// filters are our addresses on a link, in the kernel's order, and which families have their table.
func (c *conn) filters(index int, d shape.Direction) (out []filter, tables [len(families)]bool, err error) {
	linked := tables
	err = c.dump(unix.RTM_GETTFILTER, tcmsg{index: index, parent: major}.body(), func(b []byte) error {
		t, rest, ok := readTcmsg(b)
		if !ok {
			return errAnswer
		}
		options := netlink.Attribute(rest, unix.TCA_OPTIONS)
		for i := range families {
			f := &families[i]
			switch {
			case t.info != info(f.pref, f.proto):
			case t.handle == f.table:
				tables[i] = true
			case number(netlink.Attribute(options, u32Link), 0) == f.table:
				linked[i] = true
			default:
				if a, ok := f.address(netlink.Attribute(options, u32Sel), d); ok && t.handle&tableMask == f.table {
					out = append(out, filter{a, uint16(number(netlink.Attribute(options, u32ClassID), 0)), t.handle}) //nolint:gosec // the lower half
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, tables, fmt.Errorf("list the filters of link %d: %w", index, err)
	}
	for i := range tables {
		tables[i] = tables[i] && linked[i]
	}
	return out, tables, nil
}

// address reads the address out of a selector that addFilter has made.
func (f *family) address(s []byte, d shape.Direction) (netip.Addr, bool) {
	if len(s) < selSize+f.words*keySize || int(s[2]) != f.words {
		return netip.Addr{}, false
	}
	var raw []byte
	for i := range f.words {
		k := s[selSize+i*keySize:]
		if binary.BigEndian.Uint32(k) != 0xffffffff || int(number(k, 8)) != f.offset(d)+4*i {
			return netip.Addr{}, false
		}
		raw = append(raw, k[4:8]...)
	}
	return netip.AddrFromSlice(raw)
}

// clear takes a family's filters and tables away, for one that a killed process has left half made.
func (c *conn) clear(index int, f *family) error {
	b := f.message(index, 0)
	if err := c.change(unix.RTM_DELTFILTER, 0, b); err != nil && !is(err, unix.ENOENT) {
		return fmt.Errorf("take the filters of link %d away: %w", index, err)
	}
	return nil
}

// redirect sends all that comes in by a link to another one; place is the qdisc's.
func (c *conn) redirect(index int, place uint32, to int) error {
	b := redirection(index, place)
	b.nest(unix.TCA_OPTIONS, func(o *message) {
		o.bytes(u32Sel, sel(terminal, 0, 0, key{}))
		o.nest(u32Act, func(list *message) {
			list.nest(1, func(a *message) {
				a.text(actKind, "mirred")
				a.nest(actOptions, func(p *message) {
					parms := make([]byte, 8, 28)                                                 // index, capabilities
					for _, v := range [...]uint32{actStolen, 0, 0, egressRedirect, uint32(to)} { //nolint:gosec // an interface's index
						parms = binary.NativeEndian.AppendUint32(parms, v)
					}
					p.bytes(mirredParms, parms)
				})
			})
		})
	})
	if err := c.change(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
		return fmt.Errorf("redirect what comes in by link %d: %w", index, err)
	}
	return nil
}

func redirection(index int, place uint32) message {
	b := tcmsg{index: index, parent: place, info: info(redirectPref, unix.ETH_P_ALL)}.body()
	b.text(unix.TCA_KIND, "u32")
	return b
}

// unredirect ends it.
func (c *conn) unredirect(index int, place uint32) error {
	if err := c.change(unix.RTM_DELTFILTER, 0, redirection(index, place)); err != nil && !is(err, unix.ENOENT, unix.EINVAL) {
		return fmt.Errorf("end the redirection of link %d: %w", index, err)
	}
	return nil
}

// inbound are the filters at a place of the ingress qdisc: the link that ours redirects to, 0 without it, and what others have.
func (c *conn) inbound(index int, place uint32) (to int, others string, err error) {
	err = c.dump(unix.RTM_GETTFILTER, tcmsg{index: index, parent: place}.body(), func(b []byte) error {
		t, rest, ok := readTcmsg(b)
		if !ok {
			return errAnswer
		}
		if pref := uint16(t.info >> 16); pref != redirectPref { //nolint:gosec // the upper half
			others = fmt.Sprintf("a filter %s with preference %d", text(netlink.Attribute(rest, unix.TCA_KIND)), pref)
			return nil
		}
		for _, a := range netlink.Attributes(netlink.Attribute(netlink.Attribute(rest, unix.TCA_OPTIONS), u32Act)) {
			if n := number(netlink.Attribute(netlink.Attribute(a, actOptions), mirredParms), 24); n != 0 {
				to = int(n)
			}
		}
		return nil
	})
	return to, others, err
}
