// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

// FuzzTopology puts arbitrary lists and numbers into sysfs: an error, or every online CPU.
func FuzzTopology(f *testing.F) {
	f.Add("0-1", "0-1", "0,1", "0")
	f.Add("0", "0-4294967295", "", "-1")
	f.Add("1-0", "x", "0-", "99999999999999999999")
	f.Fuzz(func(t *testing.T, online, cpulist, siblings, id string) {
		dir := kerneltest.Lay(t, map[string]string{
			cpuDir + "/online": online, nodeDir + "/online": "0", nodeDir + "/node0/cpulist": cpulist, nodeDir + "/has_memory": "0",
			cpuDir + "/cpu0/topology/core_id": id, cpuDir + "/cpu0/topology/physical_package_id": id,
			cpuDir + "/cpu0/topology/thread_siblings_list": siblings,
			cpuDir + "/cpu0/cache/index3/level":            "3", cpuDir + "/cpu0/cache/index3/id": id,
		}, "")
		fs := FS(dir)
		set, err := fs.listAt(cpuDir, "online")
		top, terr := fs.Topology()
		if err != nil && terr == nil || (top == nil) != (terr != nil) || top != nil && !top.All().Equal(set) {
			t.Fatalf("online %q (%v): %v with error %v", online, err, top, terr)
		}
	})
}

func FuzzRDMA(f *testing.F) {
	f.Add("uverbs0", "231:192\n", "mlx5_0\n", "0000:3b:00.0")
	f.Add("uverbsx", "1", "", "..")
	f.Add("uverbs-5", "231:192", "", "")
	f.Fuzz(func(t *testing.T, name, dev, ibdev, function string) {
		const class = "class/infiniband_verbs/"
		if name = filepath.Base(name); strings.ContainsRune(name, 0) || name == "." || name == ".." || name == "/" || len(name) > 200 {
			return
		}
		dir := kerneltest.Lay(t, map[string]string{class + name + "/dev": dev, class + name + "/ibdev": ibdev, "class/misc/rdma_cm/dev": "10:58"}, "")
		if function != "" && !strings.ContainsRune(function, 0) && len(function) < 200 {
			if err := os.Symlink(function, filepath.Join(dir, class, name, "device")); err != nil {
				t.Fatal(err)
			}
		}
		devices, err := FS(dir).RDMA()
		if err != nil && len(devices) > 0 || len(devices) == 1 {
			t.Fatalf("%+v with error %v", devices, err)
		}
		for _, d := range devices {
			if d.Major < 0 || d.MinorNumber < 0 || d.Minor < 0 != d.Control || !strings.HasPrefix(d.Path, "/dev/infiniband/") || d.BusID != "" && !isBusID(d.BusID) {
				t.Fatalf("%+v", d)
			}
		}
	})
}

func FuzzCDINames(f *testing.F) {
	f.Add(`{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[{"name":"0","containerEdits":{"env":["A=b"]}}]}`)
	f.Add("cdiVersion: 0.6.0\nkind: x\n")
	f.Add(`{"cdiVersion":"1.1.0","kind":"nvidia.com/gpu","devices":[{"name":"0","containerEdits":{"deviceNodes":[null]}}]}`)
	f.Fuzz(func(t *testing.T, spec string) {
		dir := kerneltest.Lay(t, map[string]string{"vendor.json": spec, "vendor.yaml": spec}, "")
		names, err := CDINames(dir)
		if names == nil && err == nil {
			t.Fatal("neither names nor an error")
		}
		for name := range names {
			if kind, device, ok := strings.Cut(name, "="); !ok || device == "" || !strings.Contains(kind, "/") {
				t.Fatalf("name %q", name)
			}
		}
	})
}
