// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/unit"
)

// link is one network interface.
type link struct {
	index      int
	name, kind string
}

// ifinfo is struct ifinfomsg.
func ifinfo(index int, flags, change uint32) message {
	b := make(message, 4, 128)
	b = binary.NativeEndian.AppendUint32(b, uint32(index)) //nolint:gosec // an interface's index
	b = binary.NativeEndian.AppendUint32(b, flags)
	return binary.NativeEndian.AppendUint32(b, change)
}

const ifinfoSize = 16

func readLink(b []byte) (l link, ok bool) {
	if len(b) < ifinfoSize {
		return l, false
	}
	rest := b[ifinfoSize:]
	return link{
		index: int(number(b, 4)), name: text(netlink.Attribute(rest, unix.IFLA_IFNAME)),
		kind: text(netlink.Attribute(netlink.Attribute(rest, unix.IFLA_LINKINFO), unix.IFLA_INFO_KIND)),
	}, true
}

// link finds one by its name; a missing one is unix.ENODEV.
func (c *conn) link(name string) (link, error) {
	b := ifinfo(0, 0, 0)
	b.text(unix.IFLA_IFNAME, name)
	out, err := c.get(unix.RTM_GETLINK, b)
	if err != nil {
		return link{}, fmt.Errorf("find link %s: %w", name, err)
	}
	l, ok := readLink(out)
	if !ok || l.name != name {
		return link{}, fmt.Errorf("find link %s: %w", name, errAnswer)
	}
	return l, nil
}

// linkAt finds one by its number.
func (c *conn) linkAt(index int) (link, error) {
	out, err := c.get(unix.RTM_GETLINK, ifinfo(index, 0, 0))
	if err != nil {
		return link{}, fmt.Errorf("find link %d: %w", index, err)
	}
	l, ok := readLink(out)
	if !ok {
		return link{}, fmt.Errorf("find link %d: %w", index, errAnswer)
	}
	return l, nil
}

// tunnelKinds hide the addresses of pods from the link that they leave by.
var tunnelKinds = []string{"vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "ipip", "ip6tnl", "sit", "wireguard"}

// fallbacks are made by the modules themselves and carry nothing.
var fallbacks = []string{"tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip6tnl0", "ip6gre0"}

// tunnels are the tunnel devices, "flannel.1 (vxlan)".
func (c *conn) tunnels() (out []string, err error) {
	err = c.dump(unix.RTM_GETLINK, ifinfo(0, 0, 0), func(b []byte) error {
		l, ok := readLink(b)
		if ok && slices.Contains(tunnelKinds, l.kind) && !slices.Contains(fallbacks, l.name) {
			out = append(out, l.name+" ("+l.kind+")")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the links: %w", err)
	}
	slices.Sort(out)
	return out, nil
}

// outside are addresses that no route but the default leads to: they are reserved for documents (RFC 5737, RFC 3849).
var outside = [...]netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, 1}), netip.MustParseAddr("2001:db8::1")}

// uplink is the number of the link of the default route, IPv4's before IPv6's; 0 without one.
func (c *conn) uplink() (int, error) {
	for _, a := range outside {
		raw := a.AsSlice()
		family := uint8(unix.AF_INET)
		if a.Is6() {
			family = unix.AF_INET6
		}
		b := message{family, uint8(len(raw) * 8), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} //nolint:gosec // struct rtmsg: 32 or 128 bits
		b.bytes(unix.RTA_DST, raw)
		out, err := c.get(unix.RTM_GETROUTE, b)
		switch {
		case is(err, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EACCES, unix.EINVAL):
			continue // no route, a route that forbids, or no such protocol
		case err != nil:
			return 0, fmt.Errorf("find the default route: %w", err)
		case len(out) > 12 && number(netlink.Attribute(out[12:], unix.RTA_OIF), 0) > 1: // 1 is the loopback
			return int(number(netlink.Attribute(out[12:], unix.RTA_OIF), 0)), nil
		}
	}
	return 0, nil
}

// speed is what a link says of itself; 0 where it does not (Documentation/ABI/testing/sysfs-class-net: Mbit/s, -1 or an error for
// one that is down or virtual).
func speed(sys, name string) unit.BitRate {
	path, err := root.Join(sys, "class/net/"+name+"/speed")
	if err != nil {
		return 0
	}
	raw, err := root.Read(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(raw), 10, 64)
	if err != nil || n <= 0 || n > 1e7 {
		return 0
	}
	return unit.BitRate(n) * unit.Megabit
}

// ifbQueue is the length of the queue of an IFB device; its default of 32 would drop every burst.
const ifbQueue = 1000

// ifbName is the name of the device that what comes in by a link is sent through.
func ifbName(index int) string { return "krt" + strconv.Itoa(index) }

// ifb finds the device of a link, and makes it where it is missing. It has one queue, as the shaping is one.
func (c *conn) ifb(index int) (link, error) {
	name := ifbName(index)
	l, err := c.link(name)
	if is(err, unix.ENODEV) {
		b := ifinfo(0, 0, 0)
		b.text(unix.IFLA_IFNAME, name)
		b.u32(unix.IFLA_TXQLEN, ifbQueue)
		b.u32(unix.IFLA_NUM_TX_QUEUES, 1)
		b.u32(unix.IFLA_NUM_RX_QUEUES, 1)
		b.nest(unix.IFLA_LINKINFO, func(i *message) { i.text(unix.IFLA_INFO_KIND, "ifb") })
		if err = c.change(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
			return l, fmt.Errorf("make the device %s of kind ifb: %w", name, err)
		}
		l, err = c.link(name)
	}
	switch {
	case err != nil:
		return l, err
	case l.kind != "ifb":
		return l, &ForeignError{"the link " + name + " of kind " + strconv.Quote(l.kind)}
	}
	if err = c.change(unix.RTM_NEWLINK, 0, ifinfo(l.index, unix.IFF_UP, unix.IFF_UP)); err != nil {
		return l, fmt.Errorf("set %s up: %w", name, err)
	}
	return l, nil
}

// removeIFB takes the device away; what is on its way through it is lost.
func (c *conn) removeIFB(index int) error {
	l, err := c.link(ifbName(index))
	switch {
	case is(err, unix.ENODEV):
		return nil
	case err != nil:
		return err
	case l.kind != "ifb":
		return nil // not ours
	}
	if err = c.change(unix.RTM_DELLINK, 0, ifinfo(l.index, 0, 0)); err != nil && !is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", l.name, err)
	}
	return nil
}
