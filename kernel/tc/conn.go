// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/netlink"
)

// conn is one rtnetlink socket of the calling thread's network namespace. Not for concurrent use.
type conn struct {
	fd  int
	seq uint32
	buf []byte
}

const (
	headerSize = 16
	// answerTimeout bounds the wait for an answer, which the kernel gives before the question's system call returns.
	answerTimeout = 5 // seconds
	// bufferSize holds the largest part of a dump (NLMSG_GOODSIZE is at most 32 KiB).
	bufferSize = 64 << 10
)

func dial() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	c := &conn{fd: fd, buf: make([]byte, bufferSize)}
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout}),
	)
	if err != nil {
		c.close()
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	// Since Linux 4.12 the kernel can say what was wrong; without that the error number has to do.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	return c, nil
}

func (c *conn) close() { unix.Close(c.fd) } //nolint:errcheck // nothing to do about it

// with opens a socket for one piece of work.
func with(do func(*conn) error) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.close()
	return do(c)
}

// kernelError is an error number with what the kernel says about it.
type kernelError struct {
	errno unix.Errno
	why   string
}

// Error is "no such file or directory (Specified qdisc kind is unknown)".
func (e *kernelError) Error() string {
	if e.why == "" {
		return e.errno.Error()
	}
	return e.errno.Error() + " (" + e.why + ")"
}

// Unwrap is the error number.
func (e *kernelError) Unwrap() error { return e.errno }

var errAnswer = errors.New("netlink answer is cut short")

// change asks for a change and waits for its acknowledgement.
func (c *conn) change(kind, flags uint16, body message) error {
	if err := c.send(kind, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK, body); err != nil {
		return err
	}
	return c.receive(func(uint16, []byte) error { return nil })
}

// get asks for one object.
func (c *conn) get(kind uint16, body message) (out []byte, err error) {
	if err = c.send(kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK, body); err != nil {
		return nil, err
	}
	err = c.receive(func(_ uint16, b []byte) error {
		out = append([]byte(nil), b...)
		return nil
	})
	return out, err
}

// dump asks for all objects; what each gets is valid during the call only. A dump that the kernel had to interrupt is an error:
// it may have left something out.
func (c *conn) dump(kind uint16, body message, each func(b []byte) error) error {
	if err := c.send(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, body); err != nil {
		return err
	}
	return c.receive(func(_ uint16, b []byte) error { return each(b) })
}

func (c *conn) send(kind, flags uint16, body message) error {
	c.seq++
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerSize+len(body))) //nolint:gosec // far below 64 KiB
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, c.seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel fills in the port
	_, err := unix.Write(c.fd, append(b, body...))
	return err
}

// receive reads until the answer to the last question ends. Every part is read even after each has failed, so that the next
// question is not answered by this one.
func (c *conn) receive(each func(kind uint16, b []byte) error) error {
	var failed error
	for {
		n, err := unix.Read(c.fd, c.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		done, err := c.parts(c.buf[:n], func(kind uint16, b []byte) {
			if failed == nil {
				failed = each(kind, b)
			}
		})
		if done || err != nil {
			return errors.Join(failed, err)
		}
	}
}

// parts walks the messages of one read.
func (c *conn) parts(b []byte, each func(kind uint16, b []byte)) (done bool, err error) {
	for len(b) > 0 {
		if len(b) < headerSize {
			return true, errAnswer
		}
		length := int(number(b, 0))
		if length < headerSize || length > len(b) {
			return true, errAnswer
		}
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		body, mine := b[headerSize:length], number(b, 8) == c.seq
		b = b[min(netlink.Align(length), len(b)):]
		switch {
		case !mine:
		case kind == unix.NLMSG_ERROR:
			return true, parseError(body, flags)
		case kind == unix.NLMSG_DONE:
			return true, parseError(body, flags)
		case flags&unix.NLM_F_DUMP_INTR != 0:
			return true, &kernelError{errno: unix.EINTR, why: "something changed during the dump"}
		default:
			each(kind, body)
		}
	}
	return false, nil
}

// parseError reads NLMSG_ERROR and NLMSG_DONE (Documentation/userspace-api/netlink/intro.rst): a negative error number, and with extended
// acknowledgements what is wrong.
func parseError(body []byte, flags uint16) error {
	code := int32(number(body, 0)) //nolint:gosec // an errno, negative
	if code >= 0 {
		return nil
	}
	e := &kernelError{errno: unix.Errno(-int64(code))}
	if flags&unix.NLM_F_ACK_TLVS == 0 || len(body) < 4+headerSize {
		return e
	}
	rest := body[4:] // the question's header, and the whole question unless it is capped
	skip := headerSize
	if flags&unix.NLM_F_CAPPED == 0 {
		skip = netlink.Align(int(number(rest, 0)))
	}
	if skip >= headerSize && skip <= len(rest) {
		e.why = text(netlink.Attribute(rest[skip:], unix.NLMSGERR_ATTR_MSG))
	}
	return e
}

// is reports one of some error numbers.
func is(err error, numbers ...unix.Errno) bool {
	for _, n := range numbers {
		if errors.Is(err, n) {
			return true
		}
	}
	return false
}
