// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sockdiag

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// MaxKnown connections of a namespace are told of at most, enough for a median. Their answers fit into the smallest receive buffer that a distribution sets.
const MaxKnown = 16

// Connection names one TCP connection of a namespace: its ends, and the kernel's number for the socket, which no later one has.
type Connection struct {
	family uint8
	id     [48]byte // struct inet_diag_sockid
}

// follow asks about each of the known connections, which the kernel finds by their ends, without a walk: rtts are those of who has sent
// and heard something since. What is left of them stays in known's memory.
func (c *conn) follow(known []Connection, since time.Duration) (left []Connection, err error) {
	c.rtts = c.rtts[:0]
	fd, err := c.open(questions(c.buf[:0], known))
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing to do about it
	left = known[:0]
	for next := 0; next < len(known); {
		b, err := c.read(fd)
		if err != nil {
			return nil, err
		}
		if left, next, err = c.single(b, known, left, next, since); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// questions are nlmsghdr and inet_diag_req_v2 for each connection, numbered.
func questions(b []byte, known []Connection) []byte {
	for i := range known {
		b = binary.NativeEndian.AppendUint32(b, headerSize+requestV2Size)
		b = binary.NativeEndian.AppendUint16(b, sockDiagByFamily)
		b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
		b = binary.NativeEndian.AppendUint32(b, uint32(i)) //nolint:gosec // at most MaxKnown
		b = binary.NativeEndian.AppendUint32(b, 0)
		req := [requestV2Size]byte{known[i].family, unix.IPPROTO_TCP, 1 << (diagInfo - 1)}
		binary.NativeEndian.PutUint32(req[4:], 1<<established)
		copy(req[idInV2At:], known[i].id[:])
		b = append(b, req[:]...)
	}
	return b
}

// single reads the answers of one read, which come in the order of the questions; next is the number of the first. One that has ended, or whose
// place another has, is left out (ENOENT, ESTALE).
func (c *conn) single(b []byte, known, left []Connection, next int, since time.Duration) ([]Connection, int, error) {
	for len(b) > 0 {
		kind, seq, body, rest, err := message(b)
		if err != nil {
			return nil, next, err
		}
		if next == len(known) || uint64(seq) != uint64(next) { //nolint:gosec // counted from 0
			return nil, next, errAnswer
		}
		b = rest
		switch kind {
		case unix.NLMSG_ERROR:
			if err := failure(kind, body); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) {
				return nil, next, errors.Join(errAnswer, err)
			}
		case sockDiagByFamily:
			if _, rtt, ok := parseConnection(body, since); ok {
				left = append(left, known[next])
				if rtt > 0 {
					c.rtts = append(c.rtts, rtt)
				}
			}
		default:
			return nil, next, errAnswer
		}
		next++
	}
	return left, next, nil
}
