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

	"github.com/koord-rt/koord-rt/model/node"
)

// RDMA lists the user-verbs devices of class/infiniband_verbs (Documentation/infiniband/user_verbs.rst): uverbsN with
// its device number, the PCI address of the function behind it (PF or VF) as BusID and the RDMA device's name ("mlx5_0")
// as UUID; and rdma_cm as the control node where a device exists. Minor is N.
func (fs FS) RDMA() ([]node.DeviceNode, error) {
	names, err := fs.names("class/infiniband_verbs")
	if err != nil {
		return nil, fmt.Errorf("read RDMA devices: %w", err)
	}
	var out []node.DeviceNode
	var errs []error
	for _, name := range names {
		number, ok := strings.CutPrefix(name, "uverbs")
		index, err := strconv.ParseUint(number, 10, 31) // takes no sign
		if !ok || err != nil {
			continue // abi_version
		}
		d, err := fs.uverbs(name, int(index))
		if err != nil {
			errs = append(errs, fmt.Errorf("read RDMA device %s: %w", name, err))
			continue
		}
		out = append(out, d)
	}
	if len(out) > 0 {
		if major, minor, err := fs.devAt("class/misc/rdma_cm/dev"); err == nil {
			out = append(out, node.DeviceNode{Type: "rdma", Minor: -1, Path: "/dev/infiniband/rdma_cm", Major: major, MinorNumber: minor, Control: true})
		}
	}
	return out, errors.Join(errs...)
}

func (fs FS) uverbs(name string, index int) (node.DeviceNode, error) {
	dir := "class/infiniband_verbs/" + name
	major, minor, err := fs.devAt(dir, "dev")
	if err != nil {
		return node.DeviceNode{}, err
	}
	d := node.DeviceNode{Type: "rdma", Minor: index, Path: "/dev/infiniband/" + name, Major: major, MinorNumber: minor}
	if s, err := os.ReadFile(fs.Path(dir, "ibdev")); err == nil {
		d.UUID = strings.TrimSpace(string(s))
	}
	// A software device (rxe, siw) has no PCI function: its device link is absent or points to something else.
	if link, err := os.Readlink(fs.Path(dir, "device")); err == nil && isBusID(filepath.Base(link)) {
		d.BusID = strings.ToLower(filepath.Base(link))
	}
	return d, nil
}

// isBusID recognises a PCI address, "0000:3b:00.0".
func isBusID(s string) bool {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != 4 || strings.Count(s, ":") != 2 || strings.Count(s, ".") != 1 || strings.IndexByte(s, '.') < strings.LastIndexByte(s, ':') {
		return false
	}
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 16, 32); err != nil {
			return false
		}
	}
	return true
}
