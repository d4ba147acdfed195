// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/sample"
)

// networks tells bytes per second that went in and out: of the node over the interfaces that are hardware, since what pods send passes
// several virtual ones on its way; of a pod over all interfaces of its network namespace but the loopback.
type networks struct {
	proc proc.FS
	sys  sys.FS
	now  proc.NetDev
	// hardware are the interfaces of devices; when there is none, in a container say, init's namespace counts as a pod's does.
	hardware []*nic
	node     traffic
	of       each[traffic]
}

// nic is one interface.
type nic struct {
	*sys.Interface
	traffic
}

type traffic struct{ in, out sample.Rate }

func newNetwork(m *machine) (collector, support) {
	return &networks{proc: m.proc, sys: m.sys}, support{}
}

// hostPID is the process whose network namespace is the machine's.
const hostPID = 1

func (c *networks) collect(t *tick) {
	if t.n%(t.slow*listEvery) == 1 {
		c.list(t)
	}
	c.machine(t)
	for _, p := range t.pods {
		if p.pod.PID > 0 && !p.pod.HostNetwork && p.fresh && t.due(&p.entry) {
			c.pod(t, p)
		}
	}
}

// list finds the hardware; an interface that stayed keeps its counters.
func (c *networks) list(t *tick) {
	names, err := c.sys.HardwareInterfaces()
	if err != nil {
		t.fail(err)
		return
	}
	old := c.hardware
	c.hardware = make([]*nic, 0, len(names))
	for _, name := range names {
		if i := slices.IndexFunc(old, func(n *nic) bool { return n.Name == name }); i >= 0 {
			c.hardware = append(c.hardware, old[i])
			old = slices.Delete(old, i, i+1)
			continue
		}
		n, err := c.sys.Interface(name)
		if err != nil {
			t.fail(err)
			continue
		}
		c.hardware = append(c.hardware, &nic{Interface: n})
	}
	for _, n := range old {
		n.Close()
	}
}

// machine sums up the growth of each interface: one that comes or goes is no jump.
func (c *networks) machine(t *tick) {
	if len(c.hardware) == 0 {
		if err := c.proc.NetDev(t.buf, hostPID, &c.now); err != nil {
			t.fail(err)
			return
		}
		in, out := c.now.Traffic()
		c.node.emit(t, sample.OfNode(), in, out)
		return
	}
	var in, out float64
	known := false
	at := t.clock()
	for _, n := range c.hardware {
		received, sent, err := n.Bytes(t.buf)
		if err != nil {
			t.fail(err)
			continue
		}
		at = t.clock()
		if d, ok := n.in.Next(received, at); ok {
			in, known = in+d.PerSecond(), true
		}
		if d, ok := n.out.Next(sent, at); ok {
			out += d.PerSecond()
		}
	}
	if known {
		t.emit(sample.OfNode(), sample.NetworkReceive, in, at)
		t.emit(sample.OfNode(), sample.NetworkTransmit, out, at)
	}
}

func (c *networks) pod(t *tick, p *podEntry) {
	err := c.proc.NetDev(t.buf, p.pod.PID, &c.now)
	switch {
	// ESRCH and EINVAL: the process ended between open and read.
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
	case err != nil:
		t.fail(err)
	default:
		in, out := c.now.Traffic()
		c.of.of(&p.entry).emit(t, p.subject, in, out)
	}
}

func (r *traffic) emit(t *tick, s sample.Subject, in, out uint64) {
	at := t.clock()
	t.emitRate(s, sample.NetworkReceive, &r.in, in, 1, at)
	t.emitRate(s, sample.NetworkTransmit, &r.out, out, 1, at)
}

func (c *networks) forget(e *entry) { c.of.forget(e) }

func (c *networks) close() {
	for _, n := range c.hardware {
		n.Close()
	}
}
