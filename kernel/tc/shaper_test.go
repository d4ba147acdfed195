// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
)

// A shape is what it reads back as, changes into another one class by class, and leaves nothing behind.
func TestShapeAndRestore(t *testing.T) {
	t.Parallel()
	const (
		other = "htb total=1000000000 system=500000000/1000000000/0 lsr=300000000/1000000000/1 be=200000000/200000000/3"
		fast  = "htb total=400000000000 system=200000000000/400000000000/0 be=200000000000/300000000000/3" // beyond 32 bits of bytes per second
	)
	n := newNode(t)
	before := n.snapshot()
	for key, original := range map[string]string{upEgress: shape.Default, upIngress: shape.None} {
		if text, err := n.get(key); text != original || err != nil {
			t.Fatalf("%s: %q, %v", key, text, err)
		}
		for _, want := range []string{testShape, other, fast, testShape, testShape} {
			n.set(key, want)
			if text, err := n.get(key); text != want || err != nil {
				t.Fatalf("%s: %q, %v, want %q", key, text, err, want)
			}
			n.sync(key, shape.Pod{Name: "be", Class: shape.BE, Addresses: []netip.Addr{podBE}}, shape.Pod{Name: "slow", Class: shape.BE, Limit: unit.Megabit, Addresses: []netip.Addr{podSlow}})
		}
		n.set(key, original)
		if after := n.snapshot(); after != before {
			t.Errorf("%s: before\n%safter\n%s", key, before, after)
		}
	}
	if text, err := n.get("up1/egress"); text != shape.Gone || err != nil {
		t.Errorf("a link that does not exist: %q, %v", text, err)
	}
	for _, bad := range []string{"htb total=1", "qdisc htb 1 AAAA", "qdisc fq 0 ", "qdisc fq 8001 *", "qdisc", ""} {
		var err error
		n.do(func() { err = errors.Join(Shaper{}.SetShape(upEgress, bad), Shaper{}.SetShape(upIngress, bad)) })
		if err == nil || n.snapshot() != before {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// fifo are the options of a pfifo: struct tc_fifo_qopt.
func fifo(limit uint32) []byte { return binary.NativeEndian.AppendUint32(nil, limit) }

// bucket are the options of a tbf: struct tc_tbf_qopt in TCA_TBF_PARMS, with what Linux adds on its own.
func bucket() []byte {
	p := ratespec(nil, 1_000_000)
	p = ratespec(p, 0)
	for _, v := range []uint32{30_000, burst(1_000_000), 0} { // limit, buffer, mtu
		p = binary.NativeEndian.AppendUint32(p, v)
	}
	var m message
	m.bytes(1, p)
	return m
}

// A classless qdisc of somebody else comes back byte for byte; what could not come back is refused and stays as it is.
func TestWhatSomebodyElseHasSetUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		key     string
		qdiscs  []qdisc
		want    string // what is read, or what the refusal names
		refused bool
	}{
		"pfifo":  {key: upEgress, qdiscs: []qdisc{{tcmsg{parent: parentRoot, handle: 0x80070000}, "pfifo", fifo(77)}}, want: "qdisc pfifo 8007 "},
		"bfifo":  {key: upEgress, qdiscs: []qdisc{{tcmsg{parent: parentRoot, handle: 0x10000}, "bfifo", fifo(123456)}}, want: "qdisc bfifo 1 "},
		"tbf":    {key: upEgress, qdiscs: []qdisc{{tcmsg{parent: parentRoot, handle: 0x20000}, "tbf", bucket()}}, want: "qdisc tbf 2 "},
		"clsact": {key: upIngress, qdiscs: []qdisc{{tcmsg{parent: parentIngress, handle: handleIngress}, "clsact", nil}}, want: "clsact"},
		"ingress": {
			key: upIngress, qdiscs: []qdisc{{tcmsg{parent: parentIngress, handle: handleIngress}, "ingress", nil}}, want: "ingress",
		},
		"htb": {key: upEgress, qdiscs: []qdisc{{tcmsg{parent: parentRoot, handle: 0x10000}, "htb", htb(0).options}}, want: "the root qdisc htb 1:", refused: true},
		"a queue below": {
			key: upEgress, refused: true, want: "the root qdisc tbf 2: with pfifo 3: below it",
			qdiscs: []qdisc{{tcmsg{parent: parentRoot, handle: 0x20000}, "tbf", bucket()}, {tcmsg{parent: 0x20001, handle: 0x30000}, "pfifo", fifo(9)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.must("set up", func(c *conn) error {
				for _, q := range tc.qdiscs {
					q.index = n.index
					if err := c.add(q, unix.NLM_F_EXCL); err != nil {
						return err
					}
				}
				return nil
			})
			before := n.snapshot()
			text, err := n.get(tc.key)
			if tc.refused {
				foreign := (*ForeignError)(nil)
				if !errors.As(err, &foreign) || foreign.What != tc.want {
					t.Errorf("%q, %v", text, err)
				}
				n.do(func() { err = Shaper{}.SetShape(tc.key, testShape) })
				if !errors.As(err, &foreign) || n.snapshot() != before {
					t.Errorf("%v\n%s", err, n.snapshot())
				}
				return
			}
			if !strings.HasPrefix(text, tc.want) || err != nil {
				t.Fatalf("%q, %v", text, err)
			}
			n.set(tc.key, testShape)
			if n.snapshot() == before {
				t.Error("nothing is set")
			}
			n.set(tc.key, text)
			if after := n.snapshot(); after != before {
				t.Errorf("before\n%safter\n%s", before, after)
			}
		})
	}
}

// Somebody else's filter would not see what we redirect.
func TestForeignIngressFilter(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.must("set up", func(c *conn) error {
		if err := c.add(qdisc{tcmsg{index: n.index, parent: parentIngress, handle: handleIngress}, "clsact", nil}, unix.NLM_F_EXCL); err != nil {
			return err
		}
		b := tcmsg{index: n.index, parent: onIngress, info: info(7, unix.ETH_P_ALL)}.body()
		b.text(unix.TCA_KIND, "u32")
		b.nest(unix.TCA_OPTIONS, func(o *message) { o.bytes(u32Sel, sel(terminal, 0, 0, key{})) })
		return c.change(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
	})
	before := n.snapshot()
	text, err := n.get(upIngress)
	if foreign := (*ForeignError)(nil); !errors.As(err, &foreign) || !strings.Contains(foreign.What, "a filter u32 with preference 7") {
		t.Errorf("%q, %v", text, err)
	}
	n.do(func() { err = Shaper{}.SetShape(upIngress, testShape) })
	if err == nil || n.snapshot() != before {
		t.Errorf("%v\n%s", err, n.snapshot())
	}
}

func TestUplink(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if name, _, err := n.uplinkNow(); name != "" || err != nil {
		t.Errorf("without a route: %q, %v", name, err)
	}
	n.must("set the route", func(c *conn) error {
		b := message{unix.AF_INET6, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
		b.bytes(unix.RTA_GATEWAY, world6.AsSlice())
		b.u32(unix.RTA_OIF, uint32(n.index))
		return c.change(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
	})
	if name, _, err := n.uplinkNow(); name != "up0" || err != nil {
		t.Errorf("IPv6 only: %q, %v", name, err)
	}
	n.must("set the route", func(c *conn) error {
		b := message{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
		b.bytes(unix.RTA_GATEWAY, world.AsSlice())
		return c.change(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, b)
	})
	sys := t.TempDir()
	dir := filepath.Join(sys, "class", "net", "up0")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "speed"), []byte("25000\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var name string
	var speed unit.BitRate
	var err error
	n.do(func() { name, speed, err = Shaper{Sys: sys}.Uplink() })
	if name != "up0" || speed != 25*unit.Gigabit || err != nil {
		t.Errorf("%q, %d, %v", name, speed, err)
	}
	n.do(func() { _, _, err = Shaper{Sys: sys, Proc: "/proc"}.Uplink() })
	if !errors.Is(err, ErrNamespace) {
		t.Errorf("a container's link is taken for the machine's: %v", err)
	}
	var tunnels []string
	n.do(func() { tunnels, err = Shaper{}.Tunnels() })
	if len(tunnels) != 0 || err != nil {
		t.Errorf("%q, %v", tunnels, err)
	}
}

func (n *node) uplinkNow() (name string, speed unit.BitRate, err error) {
	n.do(func() { name, speed, err = Shaper{}.Uplink() })
	return name, speed, err
}

// The machine itself, which is only looked at: what its uplink has can be told, or who has set it.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	name, _, err := Shaper{Sys: "/sys", Proc: "/proc"}.Uplink()
	if errors.Is(err, ErrNamespace) {
		return // in a container; TestUplink says that this is found out
	}
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		return // a machine without a default route
	}
	for d := range shape.NumDirections {
		text, err := Shaper{}.Shape(shape.Key(name, d))
		if foreign := (*ForeignError)(nil); err != nil && !errors.As(err, &foreign) || err == nil && text == "" {
			t.Errorf("%s %s: %q, %v", name, d, text, err)
		}
		t.Logf("%s %s: %q, %v", name, d, text, err)
	}
}
