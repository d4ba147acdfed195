// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/node"
)

// nvidiaControls are the nodes that every process using a GPU opens. The uvm pair exists once nvidia-uvm is loaded.
var nvidiaControls = [...]string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}

// GPUs lists NVIDIA's device nodes: dev/nvidiaN with numbers by stat, UUID and PCI address from
// proc/driver/nvidia/gpus/ADDRESS/information, and the control nodes. Minor is N, which is also the driver's "Device
// Minor" and Koordinator's. Paths are those on the host ("/dev/nvidia0"), whatever dev is.
func GPUs(proc, dev string) ([]node.DeviceNode, error) {
	entries, err := os.ReadDir(dev)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dev, err)
	}
	cards, err := readCards(proc)
	errs := []error{err}
	var out []node.DeviceNode
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "nvidia")
		index, err := strconv.ParseUint(digits, 10, 16)
		if !ok || err != nil {
			continue
		}
		d, err := statDevice(dev, e.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d.Minor = int(index)
		d.UUID, d.BusID = cards[d.Minor].uuid, cards[d.Minor].busID
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	for _, name := range nvidiaControls {
		d, err := statDevice(dev, name)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		d.Control, d.Minor = true, -1
		out = append(out, d)
	}
	return out, errors.Join(errs...)
}

// errNotDevice is what a plain file in /dev gives: somebody's mistake, never passed on to a container.
var errNotDevice = errors.New("no character device")

func statDevice(dev, name string) (node.DeviceNode, error) {
	path := filepath.Join(dev, name)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return node.DeviceNode{}, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return node.DeviceNode{}, fmt.Errorf("stat %s: %w", path, errNotDevice)
	}
	rdev := uint64(st.Rdev) //nolint:unconvert // 32 bits on some architectures
	return node.DeviceNode{Type: "gpu", Path: "/dev/" + name, Major: int64(unix.Major(rdev)), MinorNumber: int64(unix.Minor(rdev))}, nil
}

// card is what the driver tells of one GPU.
type card struct {
	minor       int
	uuid, busID string
}

// readCards reads driver/nvidia/gpus/*/information by device minor; without the driver there is none.
func readCards(proc string) (map[int]card, error) {
	files, err := filepath.Glob(filepath.Join(proc, "driver/nvidia/gpus/*/information"))
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	out := map[int]card{}
	var errs []error
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", f, err))
			continue
		}
		c, err := parseCard(string(b))
		if err != nil {
			errs = append(errs, fmt.Errorf("parse %s: %w", f, err))
			continue
		}
		out[c.minor] = c
	}
	return out, errors.Join(errs...)
}

// parseCard reads lines of "Name: value" with any white space between (NVIDIA driver README, "The /proc file system"):
//
//	GPU UUID:        GPU-8f6d1f4e-…
//	Bus Location:    0000:3b:00.0
//	Device Minor:    0
//
// A UUID with question marks stands for one the driver has not read yet and counts as unknown.
func parseCard(s string) (card, error) {
	c := card{minor: -1}
	for line := range strings.Lines(s) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "GPU UUID":
			if !strings.Contains(value, "?") {
				c.uuid = value
			}
		case "Bus Location":
			c.busID = strings.ToLower(value)
		case "Device Minor":
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return c, fmt.Errorf("%.40q is no device minor", value)
			}
			c.minor = int(n)
		}
	}
	if c.minor < 0 {
		return c, errors.New("no Device Minor")
	}
	return c, nil
}
