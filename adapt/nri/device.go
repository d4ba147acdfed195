// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/model/plan"
)

// putDevice adds a device node and its cgroup rule. Key is the path in the container, value "TYPE MAJOR:MINOR ACCESS":
// "c 195:0 rwm".
func putDevice(a *api.ContainerAdjustment, s *plan.Setting) bool {
	d, access, ok := parseDevice(s.Key, s.Value.String())
	if !ok {
		return false
	}
	a.AddDevice(d)
	if access != "" && access != "rwm" {
		// The runtime's rule for an added device is rwm; a narrower one is stated beside it and wins by order.
		a.Linux.Resources = withDeviceRule(a.Linux.Resources, d, access)
	}
	return true
}

func withDeviceRule(r *api.LinuxResources, d *api.LinuxDevice, access string) *api.LinuxResources {
	if r == nil {
		r = &api.LinuxResources{}
	}
	r.Devices = append(r.Devices, &api.LinuxDeviceCgroup{
		Allow: true, Type: d.Type, Major: api.Int64(d.Major), Minor: api.Int64(d.Minor), Access: access,
	})
	return r
}

func parseDevice(path, value string) (d *api.LinuxDevice, access string, ok bool) {
	kind, rest, ok := strings.Cut(value, " ")
	if !ok || path == "" || kind != "c" && kind != "b" {
		return nil, "", false
	}
	numbers, access, _ := strings.Cut(rest, " ")
	major, minor, ok := strings.Cut(numbers, ":")
	if !ok {
		return nil, "", false
	}
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err1 != nil || err2 != nil {
		return nil, "", false
	}
	return &api.LinuxDevice{Path: path, Type: kind, Major: int64(ma), Minor: int64(mi)}, access, true
}

// putMount adds a bind mount. Key is the destination, value "SOURCE OPTION[,OPTION…]": "/run/mps bind,rw".
func putMount(a *api.ContainerAdjustment, s *plan.Setting) bool {
	source, options, _ := strings.Cut(s.Value.String(), " ")
	if source == "" || s.Key == "" {
		return false
	}
	m := &api.Mount{Source: source, Destination: s.Key, Type: "bind", Options: []string{"rbind"}}
	if options != "" {
		m.Options = strings.Split(options, ",")
	}
	a.AddMount(m)
	return true
}
