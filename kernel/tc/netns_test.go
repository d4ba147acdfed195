// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/shape"
)

// place is a network namespace with a thread of its own, which runs what it is given.
type place struct {
	t    *testing.T
	work chan func()
	// file keeps the namespace and names it.
	file *os.File
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, work: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.file, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
		for f := range p.work {
			f()
		}
	}()
	err := <-made
	t.Cleanup(func() {
		close(p.work)
		if p.file != nil {
			p.file.Close()
		}
	})
	kerneltest.Permitted(t, err, unix.CAP_SYS_ADMIN)
	return p
}

// do runs f in the namespace. Failures are reported with Errorf inside.
func (p *place) do(f func()) {
	p.t.Helper()
	done := make(chan struct{})
	p.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// must runs f in the namespace and ends the test at an error.
func (p *place) must(what string, f func(*conn) error) {
	p.t.Helper()
	var err error
	p.do(func() { err = with(f) })
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// node is a machine with one link, "up0", to an outside world.
type node struct {
	*place
	out   *place
	index int
}

// The addresses of pods on the node, of the node itself and of the world.
var (
	podLS   = netip.MustParseAddr("10.9.0.2")
	podBE   = netip.MustParseAddr("10.9.0.3")
	podSlow = netip.MustParseAddr("10.9.0.4")
	podBE6  = netip.MustParseAddr("fd09::3")
	own     = netip.MustParseAddr("10.9.0.9")
	world   = netip.MustParseAddr("10.9.0.1")
	world6  = netip.MustParseAddr("fd09::1")
)

// newNode connects two namespaces by a veth pair.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{place: newPlace(t), out: newPlace(t)}
	n.must("make the link", func(c *conn) error {
		b := ifinfo(0, 0, 0)
		b.text(unix.IFLA_IFNAME, "up0")
		b.nest(unix.IFLA_LINKINFO, func(i *message) {
			i.text(unix.IFLA_INFO_KIND, "veth")
			i.nest(unix.IFLA_INFO_DATA, func(d *message) {
				peer := ifinfo(0, 0, 0)
				peer.text(unix.IFLA_IFNAME, "peer0")
				peer.u32(unix.IFLA_NET_NS_FD, uint32(n.out.file.Fd()))
				d.bytes(1, peer) // VETH_INFO_PEER
			})
		})
		return c.change(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
	})
	n.must("set the link up", func(c *conn) error {
		l, err := c.link("up0")
		n.index = l.index
		if err != nil {
			return err
		}
		return c.bringUp("up0", podLS, podBE, podSlow, podBE6, own)
	})
	n.out.must("set the world up", func(c *conn) error { return c.bringUp("peer0", world, world6) })
	return n
}

// bringUp sets a link and the loopback up and gives the link addresses.
func (c *conn) bringUp(name string, addresses ...netip.Addr) error {
	for _, n := range []string{"lo", name} {
		l, err := c.link(n)
		if err != nil {
			return err
		}
		if err = c.change(unix.RTM_NEWLINK, 0, ifinfo(l.index, unix.IFF_UP, unix.IFF_UP)); err != nil {
			return err
		}
		if n == "lo" {
			continue
		}
		for _, a := range addresses {
			family, bits := uint8(unix.AF_INET), uint8(24)
			if a.Is6() {
				family, bits = unix.AF_INET6, 64
			}
			b := message{family, bits, unix.IFA_F_NODAD, 0}
			b = binary.NativeEndian.AppendUint32(b, uint32(l.index))
			b.bytes(unix.IFA_LOCAL, a.AsSlice())
			b.bytes(unix.IFA_ADDRESS, a.AsSlice())
			if err = c.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
	}
	return nil
}

// snapshot is every qdisc, class and filter of the node's links, and the links themselves, as the kernel tells.
func (n *node) snapshot() string {
	n.t.Helper()
	var b strings.Builder
	n.must("take a snapshot", func(c *conn) error {
		var links []link
		err := c.dump(unix.RTM_GETLINK, ifinfo(0, 0, 0), func(raw []byte) error {
			l, _ := readLink(raw)
			links = append(links, l)
			return nil
		})
		for _, l := range links {
			fmt.Fprintf(&b, "link %s %s\n", l.name, l.kind)
			all, qerr := c.qdiscs(l.index)
			if qerr != nil {
				return qerr
			}
			for _, q := range all {
				fmt.Fprintf(&b, "  %s %x %x %x\n", q.kind, q.handle, q.parent, uncounted(q))
				for _, parent := range []uint32{q.handle, onIngress, onEgress} {
					ferr := c.dump(unix.RTM_GETTFILTER, tcmsg{index: l.index, parent: parent}.body(), func(raw []byte) error {
						fmt.Fprintf(&b, "    filter %x\n", raw[tcmsgSize:min(len(raw), 60)])
						return nil
					})
					if ferr != nil && !is(ferr, unix.EINVAL, unix.EOPNOTSUPP) {
						return ferr
					}
				}
			}
		}
		return err
	})
	return b.String()
}

// uncounted are a qdisc's options without what the kernel counts there: htb's direct_pkts grows with each neighbour solicitation of
// the link (struct tc_htb_glob behind an attribute's header).
func uncounted(q qdisc) []byte {
	const directPackets = 4 + 16
	out := slices.Clone(q.options)
	if q.kind == "htb" && len(out) >= directPackets+4 && out[2] == htbInit {
		clear(out[directPackets : directPackets+4])
	}
	return out
}

// udp is a socket from an address to another one.
func (p *place) udp(from, to netip.Addr) int {
	p.t.Helper()
	fd := -1
	var err error
	p.do(func() {
		family := unix.AF_INET
		if from.Is6() {
			family = unix.AF_INET6
		}
		if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return
		}
		// The world has one address for several sockets; each hears whom it is connected to.
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return
		}
		if err = unix.Bind(fd, sockaddr(from, port)); err == nil {
			err = unix.Connect(fd, sockaddr(to, port))
		}
	})
	if err != nil {
		p.t.Fatalf("socket from %s to %s: %v", from, to, err)
	}
	p.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

const port = 9999

func sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16(), Port: port}
	}
	return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
}

// the shape of most tests.
const (
	testShape = "htb total=1000000000 system=880000000/1000000000/0 ls=100000000/1000000000/2 be=20000000/500000000/3"
	upEgress  = "up0/egress"
	upIngress = "up0/ingress"
)

// set brings a direction to a text.
func (n *node) set(key, value string) {
	n.t.Helper()
	var err error
	n.do(func() { err = Shaper{}.SetShape(key, value) })
	if is(err, unix.ENOENT, unix.EOPNOTSUPP) {
		kerneltest.StepAside(n.t, kerneltest.AnyOf(kerneltest.Said(err, unix.ENOENT), kerneltest.Said(err, unix.EOPNOTSUPP)))
	}
	if err != nil {
		n.t.Fatalf("set %s to %s: %v", key, value, err)
	}
}

// get is what a direction has.
func (n *node) get(key string) (text string, err error) {
	n.t.Helper()
	n.do(func() { text, err = Shaper{}.Shape(key) })
	return text, err
}

// sync brings the pods of a direction to what is wanted and returns the number of changes.
func (n *node) sync(key string, pods ...shape.Pod) (changes int) {
	n.t.Helper()
	var err error
	n.do(func() { changes, err = Shaper{}.Sync(key, pods) })
	if err != nil {
		n.t.Fatalf("sync %s: %v", key, err)
	}
	return changes
}

// counts are what has gone through the classes of a direction, by minor number.
func (n *node) counts(key string) (out map[uint16]class) {
	n.t.Helper()
	n.must("count", func(c *conn) error {
		name, d, err := shape.ParseKey(key)
		if err != nil {
			return err
		}
		l, err := c.link(name)
		if err == nil && d == shape.Ingress {
			l, err = c.link(ifbName(l.index))
		}
		if err == nil {
			out, err = c.classes(l.index)
		}
		return err
	})
	return out
}
