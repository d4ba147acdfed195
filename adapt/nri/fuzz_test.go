// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"fmt"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

func FuzzRuntime(f *testing.F) {
	f.Add("containerd", "v1.7.30-rc.1+unknown", "v0.12.3")
	f.Add("cri-o", "1.36", "")
	f.Add("containerd", "2.99999999999999999999.1", "-1.0.0")
	f.Fuzz(func(t *testing.T, name, version, told string) {
		if v, ok := parseVersion(version); ok {
			again, good := parseVersion(fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]))
			if !good || again != v || min(v[0], v[1], v[2]) < 0 {
				t.Fatalf("version %q is %v, again %v", version, v, again)
			}
		}
		r := Runtime(name, version, told)
		if why, ok := r.Supported(); ok != (r.NRI != "") || !ok && (r.Fields != node.Fields{} || why == "") {
			t.Fatalf("supported %t (%q) with NRI %q and %+v", ok, why, r.NRI, r.Fields)
		}
	})
}

func FuzzDevice(f *testing.F) {
	f.Add("/dev/nvidia0", "c 195:0 rwm")
	f.Add("/dev/x", "b 8:4294967296 r")
	f.Add("", "c :")
	f.Fuzz(func(t *testing.T, path, value string) {
		d, access, ok := parseDevice(path, value)
		if ok {
			again := fmt.Sprintf("%s %d:%d %s", d.Type, d.Major, d.Minor, access)
			if e, a, good := parseDevice(path, again); !good || a != access || e.Major != d.Major || e.Minor != d.Minor || d.Major < 0 || d.Minor < 0 {
				t.Fatalf("%q is %v %q, which is read as %v %q", value, d, access, e, a)
			}
		}
		adj := &api.ContainerAdjustment{Linux: &api.LinuxContainerAdjustment{}}
		s := plan.Setting{Knob: plan.Device, Key: path, Value: plan.Text(value)}
		if put := putDevice(adj, &s); put != ok || put != (len(adj.Linux.Devices) == 1) {
			t.Fatalf("put %t, parsed %t: %v", put, ok, adj.Linux.Devices)
		}
		s.Knob = plan.Mount
		if put := putMount(adj, &s); put != (len(adj.Mounts) == 1) || put && (adj.Mounts[0].Destination != path || adj.Mounts[0].Source == "") {
			t.Fatalf("mount %t: %v", put, adj.Mounts)
		}
	})
}
