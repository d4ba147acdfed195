// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// deviceWire is one device as written.
type deviceWire struct {
	Minor     int32                        `json:"minor"`
	ID        string                       `json:"id,omitempty"`
	Resources map[string]strategy.Quantity `json:"resources,omitempty"`
	Extension *deviceExtensionWire         `json:"extension,omitempty"`
}

type deviceExtensionWire struct {
	VFs      []VirtualFunction `json:"vfs,omitempty"`
	Template string            `json:"gpuSharedResourceTemplate,omitempty"`
}

// ParseDeviceAllocated reads device-allocated: the scheduler's devices by type. Ids, templates and PCI addresses are
// checked because they end in environment variables and paths. Types without a device are dropped; the map is never nil
// without error.
func ParseDeviceAllocated(s string) (map[string][]DeviceAllocation, error) {
	var wire map[string][]deviceWire
	if err := decode(s, &wire); err != nil {
		return nil, err
	}
	out := make(map[string][]DeviceAllocation, len(wire))
	for _, kind := range sortedKeys(wire) {
		if kind == "" || len(kind) > 63 || strings.ContainsFunc(kind, notTypeRune) {
			return nil, fmt.Errorf("device type %s: want lower-case letters, digits, dot and dash", quote(kind))
		}
		for i, w := range wire[kind] {
			device, err := deviceFrom(w)
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", kind, i, err)
			}
			out[kind] = append(out[kind], device)
		}
	}
	return out, nil
}

// deviceFrom checks one device.
func deviceFrom(w deviceWire) (DeviceAllocation, error) {
	if w.Minor < 0 {
		return DeviceAllocation{}, fmt.Errorf("minor %d: want >= 0", w.Minor)
	}
	out := DeviceAllocation{Minor: w.Minor, ID: w.ID}
	if len(w.ID) > MaxName || strings.ContainsFunc(w.ID, notIDRune) {
		return DeviceAllocation{}, fmt.Errorf("id %s: want letters, digits and -_.:/", quote(w.ID))
	}
	for _, name := range sortedKeys(w.Resources) {
		if err := checkAmount(name, w.Resources[name]); err != nil {
			return DeviceAllocation{}, err
		}
		if out.Resources == nil {
			out.Resources = make(map[string]int64, len(w.Resources))
		}
		value, err := w.Resources[name].Value()
		if err != nil {
			return DeviceAllocation{}, err
		}
		out.Resources[name] = value
	}
	if w.Extension == nil {
		return out, nil
	}
	if err := checkName(w.Extension.Template, true); err != nil {
		return DeviceAllocation{}, fmt.Errorf("gpuSharedResourceTemplate: %w", err)
	}
	out.GPUSharedResourceTemplate = w.Extension.Template
	for _, vf := range w.Extension.VFs {
		if vf.Minor < 0 || vf.BusID != "" && !isPCIAddress(vf.BusID) {
			return DeviceAllocation{}, fmt.Errorf("vf minor %d busID %s: want minor >= 0, busID dddd:bb:dd.f", vf.Minor,
				quote(vf.BusID))
		}
		out.VFs = append(out.VFs, vf)
	}
	return out, nil
}

// isPCIAddress checks dddd:bb:dd.f in hexadecimal; the domain may be longer (Intel VMD uses five digits).
func isPCIAddress(s string) bool {
	domain, rest, ok := strings.Cut(s, ":")
	if !ok || len(domain) < 4 || len(domain) > 8 || len(rest) != len("bb:dd.f") || rest[2] != ':' || rest[5] != '.' {
		return false
	}
	digits := domain + rest[:2] + rest[3:5] + rest[6:]
	return !strings.ContainsFunc(digits, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F')
	})
}

func notTypeRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
}

// notIDRune keeps commas and spaces out of ids: they are joined into lists.
func notIDRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:/", r)
}
