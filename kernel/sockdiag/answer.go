// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sockdiag

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
)

// conn asks with a socket for each question, in the calling thread's namespace.
type conn struct {
	buf  []byte
	rtts []uint32 // microseconds
	// active and idle are connections that a walk has met.
	active, idle []Connection
}

const (
	// bufferSize holds the largest part of a dump (NLMSG_GOODSIZE is at most 32 KiB).
	bufferSize = 32 << 10
	// answerTimeout bounds the wait for an answer, which the kernel gives before the question's system call returns.
	answerTimeout = 1 // second
	// maxSeen bounds the connections that are looked at for some that are active.
	maxSeen = 4096
)

// Numbers and sizes of include/uapi/linux/netlink.h, sock_diag.h and inet_diag.h.
const (
	headerSize = 16

	// tcpDiagGetSock asks for both address families in one walk of the table; sockDiagByFamily takes two, but finds one connection
	// without a walk.
	tcpDiagGetSock   = 18
	sockDiagByFamily = 20
	requestSize      = 60 // struct inet_diag_req
	requestV2Size    = 56 // struct inet_diag_req_v2
	statesAt         = 52
	extAt            = 3
	diagInfo         = 2  // INET_DIAG_INFO
	messageSize      = 72 // struct inet_diag_msg
	idAt             = 4  // struct inet_diag_sockid, in the message
	idInV2At         = 8  // and in inet_diag_req_v2
	sourceAt         = 8
	destinationAt    = 24
	established      = 1 // TCP_ESTABLISHED
)

// Offsets in struct tcp_info (include/uapi/linux/tcp.h), which grows at its end. Times since are milliseconds, the round trip time is
// smoothed (RFC 6298) and in microseconds.
const (
	lastSentAt  = unsafe.Offsetof(unix.TCPInfo{}.Last_data_sent)
	lastHeardAt = unsafe.Offsetof(unix.TCPInfo{}.Last_ack_recv)
	rttAt       = unsafe.Offsetof(unix.TCPInfo{}.Rtt)
)

var (
	errAnswer = errors.New("netlink answer is cut short")
	errDump   = errors.New("not all connections were told")
)

// open is a socket for one question, which it writes.
func (c *conn) open(question []byte) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return -1, fmt.Errorf("open sock_diag: %w", err)
	}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout})
	if err == nil {
		_, err = unix.Write(fd, question)
	}
	if err != nil {
		unix.Close(fd) //nolint:errcheck // nothing to do about it
		return -1, fmt.Errorf("ask sock_diag: %w", err)
	}
	return fd, nil
}

// read is the next part of the answer, valid until the one after it.
func (c *conn) read(fd int) ([]byte, error) {
	for {
		n, err := unix.Read(fd, c.buf[:cap(c.buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read sock_diag: %w", err)
		}
		return c.buf[:n], nil
	}
}

// walk has the kernel walk its table: rtts are those of connections that have sent and heard something since.
func (c *conn) walk(since time.Duration) error {
	c.rtts, c.active, c.idle = c.rtts[:0], c.active[:0], c.idle[:0]
	fd, err := c.open(question(c.buf[:0]))
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing to do about it; it ends a dump that goes on
	for seen := 0; seen < maxSeen && len(c.active) < MaxKnown; {
		b, err := c.read(fd)
		if err != nil {
			return err
		}
		got, done, err := c.parts(b, since)
		if err != nil || done {
			return err
		}
		seen += got
	}
	return nil
}

// keep appends what a walk has met that is worth asking about again, MaxKnown at most: who was active first.
func (c *conn) keep(known []Connection) []Connection {
	known = append(known, c.active...)
	return append(known, c.idle[:min(len(c.idle), MaxKnown-len(known))]...)
}

// question is nlmsghdr and inet_diag_req: established TCP connections, with INET_DIAG_INFO.
func question(b []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, headerSize+requestSize)
	b = binary.NativeEndian.AppendUint16(b, tcpDiagGetSock)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = append(b, make([]byte, 8)...) // sequence and port: the socket is asked once
	req := make([]byte, requestSize)
	req[0] = unix.AF_INET
	req[extAt] = 1 << (diagInfo - 1)
	binary.NativeEndian.PutUint32(req[statesAt:], 1<<established)
	return append(b, req...)
}

// message takes the first message off the answer.
func message(b []byte) (kind uint16, seq uint32, body, rest []byte, err error) {
	if len(b) < headerSize {
		return 0, 0, nil, nil, errAnswer
	}
	length := binary.NativeEndian.Uint32(b)
	if length < headerSize || uint64(length) > uint64(len(b)) {
		return 0, 0, nil, nil, errAnswer
	}
	return binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[headerSize:length], b[min(netlink.Align(int(length)), len(b)):], nil
}

// parts walks the messages of one read.
func (c *conn) parts(b []byte, since time.Duration) (seen int, done bool, err error) {
	for len(b) > 0 {
		kind, _, body, rest, err := message(b)
		if err != nil {
			return seen, true, err
		}
		b = rest
		switch kind {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			return seen, true, failure(kind, body)
		case tcpDiagGetSock:
			seen++
			id, rtt, ok := parseConnection(body, since)
			switch {
			case !ok:
			case rtt == 0:
				if len(c.idle) < MaxKnown {
					c.idle = append(c.idle, id)
				}
			case len(c.active) < MaxKnown:
				c.rtts, c.active = append(c.rtts, rtt), append(c.active, id)
			}
		}
	}
	return seen, false, nil
}

// failure reads NLMSG_ERROR and NLMSG_DONE: a negative error number, or the end.
func failure(kind uint16, body []byte) error {
	if len(body) < 4 {
		if kind == unix.NLMSG_DONE {
			return nil
		}
		return errAnswer
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 { //nolint:gosec // an errno, negative
		return fmt.Errorf("%w: %w", errDump, unix.Errno(-int64(code)))
	}
	return nil
}

// parseConnection reads struct inet_diag_msg (include/uapi/linux/inet_diag.h) with the attribute INET_DIAG_INFO: the name of an
// established connection that leaves the namespace, and its round trip time, 0 where it has not sent and heard something since, or where
// the time was never measured.
func parseConnection(b []byte, since time.Duration) (id Connection, rtt uint32, ok bool) {
	if len(b) < messageSize || b[1] != established || within(b) {
		return Connection{}, 0, false
	}
	info := netlink.Attribute(b[messageSize:], diagInfo)
	if uintptr(len(info)) < rttAt+4 {
		return Connection{}, 0, false
	}
	id.family = b[0]
	copy(id.id[:], b[idAt:])
	at := func(offset uintptr) uint32 { return binary.NativeEndian.Uint32(info[offset:]) }
	limit := since.Milliseconds()
	if int64(at(lastSentAt)) > limit || int64(at(lastHeardAt)) > limit {
		return id, 0, true
	}
	return id, at(rttAt), true
}

// within reports a connection whose ends are in one namespace: on the loopback, or from an address to itself.
func within(b []byte) bool {
	from, to := b[sourceAt:sourceAt+16], b[destinationAt:destinationAt+16]
	if b[0] == unix.AF_INET6 {
		addr := netip.AddrFrom16([16]byte(to)).Unmap()
		return addr.IsLoopback() || bytes.Equal(from, to)
	}
	return to[0] == 127 || bytes.Equal(from[:4], to[:4])
}
