// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"bytes"
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// Interface is one network interface's traffic since it was made.
type Interface struct {
	Name                     string
	ReceivedBytes, SentBytes uint64
}

// NetDev is the interfaces of one network namespace, in the kernel's order.
type NetDev struct{ Interfaces []Interface }

// Traffic is the bytes of every interface but the loopback.
func (n *NetDev) Traffic() (received, sent uint64) {
	for i := range n.Interfaces {
		if d := &n.Interfaces[i]; d.Name != "lo" {
			received += d.ReceivedBytes
			sent += d.SentBytes
		}
	}
	return received, sent
}

// NetDev reads /proc/PID/net/dev: the interfaces of a process's network namespace; init's are the machine's. It opens and
// closes the file, since an open one would keep a dead pod's namespace alive.
func (fs FS) NetDev(b *root.Buffer, pid int, out *NetDev) error {
	var digits [20]byte
	raw, err := b.Read(string(fs), "/", string(strconv.AppendInt(digits[:0], int64(pid), 10)), "/net/dev")
	if err != nil {
		return err
	}
	if err := parseNetDev(raw, out); err != nil {
		return &root.FileError{Op: "parse", Path: fs.pid(pid, "net/dev"), Err: err}
	}
	return nil
}

// parseNetDev reads /proc/PID/net/dev, of which it keeps the bytes:
//
//	Inter-|   Receive                                                |  Transmit
//	 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
//	  eth0: 106032760    5055    0    0    0     0          0         0   396221    3091    0    0    0     0       0          0
//
// Documentation/filesystems/proc.rst, 1.4. Rows and names of the last reading are reused.
func parseNetDev(b []byte, out *NetDev) error {
	rows := out.Interfaces[:cap(out.Interfaces)]
	n := 0
	for header := 0; len(b) > 0; header++ {
		var line []byte
		line, b = scan.Line(b)
		if header < 2 {
			continue
		}
		i := bytes.IndexByte(line, ':') // an interface's name has none
		if i < 0 {
			return scan.ErrFormat
		}
		name, _ := scan.Field(line[:i])
		if n == len(rows) {
			rows = append(rows, Interface{})
		}
		d := &rows[n]
		if string(name) != d.Name {
			d.Name = string(name)
		}
		if !d.counters(line[i+1:]) {
			return scan.ErrFormat
		}
		n++
	}
	out.Interfaces = rows[:n]
	return nil
}

func (d *Interface) counters(rest []byte) (ok bool) {
	var c [12]uint64
	for i := range c {
		if c[i], rest, ok = scan.UintField(rest); !ok {
			return false
		}
	}
	d.ReceivedBytes, d.SentBytes = c[0], c[8]
	return true
}

// NetNS is the path of a process's network namespace, to be entered (namespaces(7)).
func (fs FS) NetNS(pid int) string { return fs.pid(pid, "ns", "net") }
