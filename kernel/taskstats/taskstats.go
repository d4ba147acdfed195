// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package taskstats asks the kernel how long the threads of a process waited for CPU, memory and disk, all of them in one question.
//
// Input is a process id, output nanoseconds. procfs has the wait for a CPU of one thread at a time only, and the cgroup's pressure,
// which is better, is not on cgroup v1 and tells neither how often somebody waited nor for how many at once. It imports kernel/netlink,
// kernel/proc, kernel/root, golang.org/x/sys and the standard library only. Kernel documents: Documentation/accounting/taskstats.rst and
// delay-accounting.rst; CONFIG_TASKSTATS and CONFIG_TASK_DELAY_ACCT.
package taskstats

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// Client is one netlink socket. Not for concurrent use.
type Client struct {
	fd     int
	family uint16
	seq    uint32
	buf    []byte
	// version of the kernel's struct taskstats, as its last answer said.
	version uint16
}

// answerTimeout bounds the wait for an answer, which the kernel gives before the question's system call returns.
const answerTimeout = 1 // second

// Dial opens the socket and finds the family. Without the family in the kernel, or the right to ask, it is a
// *proc.UnsupportedError.
func Dial() (*Client, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink: %w", err)
	}
	c := &Client{fd: fd, buf: make([]byte, 4096)}
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout}),
	)
	if err == nil {
		err = c.findFamily()
	}
	if err == nil {
		_, err = c.Delays(unix.Getpid())
	}
	if err != nil {
		c.Close()
		return nil, explain(err)
	}
	return c, nil
}

func explain(err error) error {
	no := func(why string) error {
		return fmt.Errorf("%w (%w)", &proc.UnsupportedError{Feature: "taskstats", Why: why}, err)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return no("the kernel has no CONFIG_TASKSTATS")
	case errors.Is(err, unix.EPERM):
		return no("needs CAP_NET_ADMIN in the initial user namespace")
	}
	return fmt.Errorf("dial taskstats: %w", err)
}

// Delays is what the threads of a process have waited for, those that ended included, since it began. A process that is gone is
// unix.ESRCH.
func (c *Client) Delays(pid int) (Delays, error) {
	var id [4]byte
	binary.NativeEndian.PutUint32(id[:], uint32(pid)) //nolint:gosec // a process id
	payload, err := c.ask(c.family, unix.TASKSTATS_CMD_GET, unix.TASKSTATS_CMD_ATTR_TGID, id[:])
	if err != nil {
		return Delays{}, err
	}
	d, version, err := parseDelays(payload)
	if err == nil {
		c.version = version
	}
	return d, err
}

// Close gives the socket back.
func (c *Client) Close() { unix.Close(c.fd) } //nolint:errcheck // nothing to do about it

// findFamily asks for the number that this boot's kernel gave to "TASKSTATS".
func (c *Client) findFamily() error {
	payload, err := c.ask(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, unix.CTRL_ATTR_FAMILY_NAME, []byte("TASKSTATS\x00"))
	if err != nil {
		return err
	}
	id := netlink.Attribute(payload, unix.CTRL_ATTR_FAMILY_ID)
	if len(id) < 2 {
		return errAnswer
	}
	c.family = binary.NativeEndian.Uint16(id)
	return nil
}

// Sizes of the headers (include/uapi/linux/netlink.h, genetlink.h).
const (
	headerSize  = 16
	genericSize = 4
)

// ask sends one command with one attribute and returns the attributes of the answer, valid until the next.
func (c *Client) ask(family uint16, command uint8, attr uint16, value []byte) ([]byte, error) {
	c.seq++
	msg := question(c.buf[:0], family, command, attr, value, c.seq)
	if _, err := unix.Write(c.fd, msg); err != nil {
		return nil, err
	}
	for {
		n, err := unix.Read(c.fd, c.buf[:cap(c.buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		payload, mine, err := parseAnswer(c.buf[:n], c.seq)
		if mine || err != nil {
			return payload, err
		}
	}
}

// question is nlmsghdr, genlmsghdr and one attribute, padded to four bytes.
func question(b []byte, family uint16, command uint8, attr uint16, value []byte, seq uint32) []byte {
	length := netlink.Align(headerSize + genericSize + netlink.AttrSize + len(value))
	b = binary.NativeEndian.AppendUint32(b, uint32(length)) //nolint:gosec // a few dozen bytes
	b = binary.NativeEndian.AppendUint16(b, family)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel fills in the port
	b = append(b, command, 1, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, uint16(netlink.AttrSize+len(value))) //nolint:gosec // a few dozen bytes
	b = binary.NativeEndian.AppendUint16(b, attr)
	b = append(b, value...)
	for len(b) < length {
		b = append(b, 0)
	}
	return b
}

var errAnswer = errors.New("netlink answer is cut short")

// parseAnswer finds the attributes of the answer to question seq (Documentation/accounting/taskstats.rst), or its error. mine is false for an older
// answer.
func parseAnswer(b []byte, seq uint32) (payload []byte, mine bool, err error) {
	if len(b) < headerSize {
		return nil, false, errAnswer
	}
	length := binary.NativeEndian.Uint32(b)
	if length < headerSize || uint64(length) > uint64(len(b)) {
		return nil, false, errAnswer
	}
	kind := binary.NativeEndian.Uint16(b[4:])
	if binary.NativeEndian.Uint32(b[8:]) != seq {
		return nil, false, nil
	}
	b = b[headerSize:length]
	if kind == unix.NLMSG_ERROR {
		if len(b) < 4 {
			return nil, false, errAnswer
		}
		code := int32(binary.NativeEndian.Uint32(b)) //nolint:gosec // an errno, negative
		if code >= 0 {
			return nil, false, errAnswer // an acknowledgement, which nobody asked for
		}
		return nil, true, unix.Errno(-int64(code))
	}
	if len(b) < genericSize {
		return nil, false, errAnswer
	}
	return b[genericSize:], true, nil
}
