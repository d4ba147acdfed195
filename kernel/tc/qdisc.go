// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
	"github.com/koord-rt/koord-rt/model/shape"
)

// Handles of struct tcmsg (include/uapi/linux/pkt_sched.h): major number in the upper, minor in the lower 16 bits.
const (
	// major is ours: "KR".
	major      = uint32(0x4b520000)
	majorMask  = uint32(0xffff0000)
	parentRoot = uint32(0xffffffff) // TC_H_ROOT
	// parentIngress is where ingress and clsact stand (TC_H_INGRESS, TC_H_CLSACT); handleIngress is their handle and onIngress
	// the place of clsact's filters for what comes in (TC_H_MIN_INGRESS).
	parentIngress = uint32(0xfffffff1)
	handleIngress = uint32(0xffff0000)
	onIngress     = uint32(0xfffffff2)
	onEgress      = uint32(0xfffffff3)
)

// tcmsg is struct tcmsg (include/uapi/linux/rtnetlink.h).
type tcmsg struct {
	index          int
	handle, parent uint32
	info           uint32
}

const tcmsgSize = 20

func (t tcmsg) body() message {
	b := make(message, 4, 256)                               // family and padding
	b = binary.NativeEndian.AppendUint32(b, uint32(t.index)) //nolint:gosec // an interface's index
	b = binary.NativeEndian.AppendUint32(b, t.handle)
	b = binary.NativeEndian.AppendUint32(b, t.parent)
	return binary.NativeEndian.AppendUint32(b, t.info)
}

// readTcmsg splits an object into header and attributes; false when it is cut short.
func readTcmsg(b []byte) (t tcmsg, rest []byte, ok bool) {
	if len(b) < tcmsgSize {
		return t, nil, false
	}
	return tcmsg{index: int(number(b, 4)), handle: number(b, 8), parent: number(b, 12), info: number(b, 16)}, b[tcmsgSize:], true
}

// qdisc is one queueing discipline.
type qdisc struct {
	tcmsg
	kind string
	// options are the attributes as the kernel tells them, which is also how it takes them.
	options []byte
}

// qdiscs are those of one link, in the kernel's order.
func (c *conn) qdiscs(index int) (out []qdisc, err error) {
	err = c.dump(unix.RTM_GETQDISC, tcmsg{index: index}.body(), func(b []byte) error {
		t, rest, ok := readTcmsg(b)
		if !ok {
			return errAnswer
		}
		if t.index == index {
			out = append(out, qdisc{t, text(netlink.Attribute(rest, unix.TCA_KIND)), slices.Clone(netlink.Attribute(rest, unix.TCA_OPTIONS))})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the queueing disciplines of link %d: %w", index, err)
	}
	return out, nil
}

// at is the one at a place, nil without one.
func at(all []qdisc, parent uint32) *qdisc {
	i := slices.IndexFunc(all, func(q qdisc) bool { return q.parent == parent })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// isOurs reports our HTB.
func (q *qdisc) isOurs() bool { return q != nil && q.kind == "htb" && q.handle == major }

// classless are the kinds that can be put back from their own dump: they have no classes and no filters of their own.
var classless = []string{
	"bfifo", "blue", "cake", "choke", "codel", "etf", "fq", "fq_codel", "fq_pie", "gred", "hhf", "noqueue", "pfifo", "pfifo_fast",
	"pfifo_head_drop", "pie", "plug", "red", "sfb", "sfq", "skbprio", "tbf",
}

// ForeignError says what somebody else has set up where we would have to.
type ForeignError struct{ What string }

// Error names it.
func (e *ForeignError) Error() string { return "somebody else has set up " + e.What }

// rootText is what stands at the root of a link that is not ours: shape.Default for the kernel's own choice, which has no handle,
// else a text from which it can be made again, "qdisc fq 8001 <options>". What cannot be made again is a *ForeignError.
func rootText(all []qdisc) (string, error) {
	q := at(all, parentRoot)
	switch {
	case q == nil || q.handle == 0:
		return shape.Default, nil
	case !slices.Contains(classless, q.kind):
		return "", &ForeignError{"the root qdisc " + q.name()}
	}
	if i := slices.IndexFunc(all, func(o qdisc) bool {
		return o.parent != parentRoot && o.parent != parentIngress && o.parent&majorMask == q.handle
	}); i >= 0 {
		return "", &ForeignError{"the root qdisc " + q.name() + " with " + all[i].name() + " below it"}
	}
	return "qdisc " + q.kind + " " + strconv.FormatUint(uint64(q.handle>>16), 16) + " " + base64.RawStdEncoding.EncodeToString(q.options), nil
}

// name is "fq 8001:", as tc(8) writes it.
func (q *qdisc) name() string {
	return q.kind + " " + strconv.FormatUint(uint64(q.handle>>16), 16) + ":"
}

// parseRoot is rootText's way back; nil for shape.Default.
func parseRoot(s string) (*qdisc, error) {
	if s == shape.Default {
		return nil, nil
	}
	f := strings.Split(s, " ")
	if len(f) != 4 || f[0] != "qdisc" || !slices.Contains(classless, f[1]) {
		return nil, fmt.Errorf("%.60q is no root qdisc that can be made again", s)
	}
	handle, err := strconv.ParseUint(f[2], 16, 16)
	if err != nil || handle == 0 {
		return nil, fmt.Errorf("%.60q: bad handle", s)
	}
	options, err := base64.RawStdEncoding.Strict().DecodeString(f[3])
	if err != nil || len(options) > 4096 {
		return nil, fmt.Errorf("%.60q: bad options", s)
	}
	return &qdisc{tcmsg{parent: parentRoot, handle: uint32(handle) << 16}, f[1], options}, nil
}

// add makes a qdisc, in the place of another when flags say so.
func (c *conn) add(q qdisc, flags uint16) error {
	b := q.tcmsg.body()
	b.text(unix.TCA_KIND, q.kind)
	if len(q.options) > 0 {
		b.bytes(unix.TCA_OPTIONS, q.options)
	}
	if err := c.change(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|flags, b); err != nil {
		return fmt.Errorf("set qdisc %s: %w", q.name(), err)
	}
	return nil
}

// remove takes a qdisc away. At the root the kernel then sets its default.
func (c *conn) remove(q qdisc) error {
	err := c.change(unix.RTM_DELQDISC, 0, tcmsg{index: q.index, handle: q.handle, parent: q.parent}.body())
	if err != nil && !is(err, unix.ENOENT, unix.EINVAL) {
		return fmt.Errorf("remove qdisc %s: %w", q.name(), err)
	}
	return nil
}

// restoreRoot makes the root of a link what it was. The order keeps the link from being without a queue: another qdisc takes ours'
// place, the default comes by itself.
func (c *conn) restoreRoot(index int, before string) error {
	q, err := parseRoot(before)
	if err != nil {
		return err
	}
	all, err := c.qdiscs(index)
	if err != nil {
		return err
	}
	if ours := at(all, parentRoot); !ours.isOurs() {
		return errors.New("the root qdisc is not ours any more")
	} else if q == nil {
		return c.remove(*ours)
	}
	q.index = index
	// The kernel numbers the queues of our classes itself, and the number has been free since ours took that place.
	for _, o := range all {
		if o.handle == q.handle && o.parent&majorMask == major {
			if err := c.remove(o); err != nil { // the class then has the kernel's default queue
				return err
			}
		}
	}
	return c.add(*q, unix.NLM_F_REPLACE)
}
