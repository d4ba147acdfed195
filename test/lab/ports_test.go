// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import (
	"net"
	"slices"
	"testing"
)

// A port is free, differs from the others, and is none that the kernel gives away by itself.
func TestFreePorts(t *testing.T) {
	t.Parallel()
	ports, err := FreePorts("127.0.0.1", 50)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 50 || ports[0] < firstPort || ports[49] > lastPort {
		t.Errorf("ports %v", ports)
	}
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := FreePorts("192.0.2.1", 1); err == nil {
		t.Error("a port of an address that this machine does not have")
	}
}
