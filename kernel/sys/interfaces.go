// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"errors"
	"fmt"
	"os"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// HardwareInterfaces lists the network interfaces that belong to a device, real or a hypervisor's, in the order of names: all that
// /sys/class/net/NAME/device says so of. Bridges, bonds, tunnels and the ends of pods' links do not
// (Documentation/ABI/testing/sysfs-class-net).
func (fs FS) HardwareInterfaces() ([]string, error) {
	names, err := fs.names("class/net")
	if err != nil {
		return nil, fmt.Errorf("read network interfaces: %w", err)
	}
	var out []string
	for _, name := range names {
		if _, err := os.Stat(fs.Path("class/net", name, "device")); err == nil {
			out = append(out, name)
		}
	}
	return out, nil
}

// Interface is a network interface whose counters are kept open. Not for concurrent use.
type Interface struct {
	Name           string
	received, sent *root.File[uint64]
	in, out        uint64
}

// Interface opens class/net/NAME/statistics/{rx,tx}_bytes: the counters of one interface, where /proc/net/dev gathers those of all.
func (fs FS) Interface(name string) (*Interface, error) {
	dir := fs.Path("class/net", name, "statistics")
	received, err := root.NewFile(dir, "rx_bytes", parseCounter)
	if err != nil {
		return nil, err
	}
	sent, err := root.NewFile(dir, "tx_bytes", parseCounter)
	if err != nil {
		received.Close()
		return nil, err
	}
	return &Interface{Name: name, received: received, sent: sent}, nil
}

// Bytes are what came in and went out since the interface was made.
func (i *Interface) Bytes(b *root.Buffer) (received, sent uint64, err error) {
	err = errors.Join(i.received.Read(b, &i.in), i.sent.Read(b, &i.out))
	return i.in, i.out, err
}

// Close gives the descriptors back.
func (i *Interface) Close() {
	i.received.Close()
	i.sent.Close()
}

// parseCounter reads a file of statistics, one decimal (Documentation/ABI/testing/sysfs-class-net-statistics):
//
//	106032760
func parseCounter(b []byte, out *uint64) error {
	n, ok := scan.Uint(b)
	if !ok {
		return scan.ErrFormat
	}
	*out = n
	return nil
}
