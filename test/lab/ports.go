// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports below those that the kernel gives to whoever connects or asks for any (32768 on) and those of Services (30000 on): between
// the choice and its use no connection takes one.
const (
	firstPort = 20000
	lastPort  = 29999
)

// FreePorts are ports of an address that nobody listens on. Another lab can still take one before its user does; that one then
// says so and its start fails.
func FreePorts(address string, n int) ([]int, error) {
	var (
		out  []int
		errs []error
	)
	for len(out) < n {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			if errs = append(errs, err); len(errs) > 20 {
				return nil, fmt.Errorf("find a free port: %w", errors.Join(errs...))
			}
			continue
		}
		defer l.Close() // held until all are found, so that they differ
		out = append(out, port)
	}
	return out, nil
}

// FreeAddress is an address of loopback that nobody listens on.
func FreeAddress() (string, error) {
	ports, err := FreePorts("127.0.0.1", 1)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), nil
}
