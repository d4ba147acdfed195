// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/node"
)

func TestDisks(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{
		"block/sda/dev":                "8:0",
		"block/sda/sda1/dev":           "8:1",
		"block/sda/sda1/partition":     "1",
		"block/sda/queue/scheduler":    "none mq-deadline [bfq]",
		"block/nvme0n1/dev":            "259:4",
		"block/nvme0n1/queue/wbt_lat":  "0",
		"block/dm-0/dev":               "253:0",
		"block/dm-0/dm/name":           "vg0-data",
		"block/cciss!c0d0/dev":         "104:0",
		"block/gone/size":              "0",
		"block/nvme0n1/queue/schedule": "none",
	}, "\n")
	got, err := FS(dir).Disks()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"sda": "8:0", "sda1": "8:0", "nvme0n1": "259:4", "dm-0": "253:0", "mapper/vg0-data": "253:0", "cciss/c0d0": "104:0"}
	for name, number := range want {
		if got[name] != number || got["/dev/"+name] != number {
			t.Errorf("%s is %q and %q, want %s", name, got[name], got["/dev/"+name], number)
		}
	}
	if len(got) != 2*len(want) {
		t.Errorf("got %v", got)
	}
	if s, err := FS(dir).IOSchedulers(); err != nil || s["sda"] != "bfq" {
		t.Errorf("schedulers %v, %v", s, err)
	}
}

func TestDisksBadNumber(t *testing.T) {
	t.Parallel()
	got, err := FS(kerneltest.Lay(t, map[string]string{"block/sda/dev": "eight", "block/sdb/dev": "8:16"}, "\n")).Disks()
	if err == nil || got["sdb"] != "8:16" || got["sda"] != "" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRDMA(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{
		"class/infiniband_verbs/abi_version":    "6",
		"class/infiniband_verbs/uverbs0/dev":    "231:192",
		"class/infiniband_verbs/uverbs0/ibdev":  "mlx5_0",
		"class/infiniband_verbs/uverbs12/dev":   "231:204",
		"class/infiniband_verbs/uverbs12/ibdev": "rxe0",
		"class/infiniband_verbs/5/dev":          "231:197", // names that no kernel gives
		"class/infiniband_verbs/uverbs-5/dev":   "231:197",
		"class/infiniband_verbs/uverbs+5/dev":   "231:197",
		"class/misc/rdma_cm/dev":                "10:58",
	}, "\n")
	for name, device := range map[string]string{"uverbs0": "devices/pci0000:3a/0000:3A:02.0/0000:3B:00.1", "uverbs12": "devices/virtual/net/eth0"} {
		if err := os.Symlink("../../../"+device, filepath.Join(dir, "class/infiniband_verbs", name, "device")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := FS(dir).RDMA()
	if err != nil {
		t.Fatal(err)
	}
	want := []node.DeviceNode{
		{Type: "rdma", Minor: 0, UUID: "mlx5_0", BusID: "0000:3b:00.1", Path: "/dev/infiniband/uverbs0", Major: 231, MinorNumber: 192},
		{Type: "rdma", Minor: 12, UUID: "rxe0", Path: "/dev/infiniband/uverbs12", Major: 231, MinorNumber: 204},
		{Type: "rdma", Minor: -1, Path: "/dev/infiniband/rdma_cm", Major: 10, MinorNumber: 58, Control: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got, err := FS(t.TempDir()).RDMA(); err != nil || got != nil {
		t.Errorf("without hardware: %v, %v", got, err)
	}
}

// information has the layout that the driver's README shows.
const information = `Model: 		 NVIDIA A100-SXM4-40GB
IRQ:   		 231
GPU UUID: 	 GPU-8f6d1f4e-0c5b-4f1c-9a5e-3a2b1c0d9e8f
Video BIOS: 	 92.00.45.00.03
Bus Type: 	 PCIe
Bus Location: 	 0000:0F:00.0
Device Minor: 	 1
`

func TestGPUs(t *testing.T) {
	t.Parallel()
	dev := t.TempDir()
	for name, number := range map[string]uint64{"nvidia0": unix.Mkdev(195, 0), "nvidia1": unix.Mkdev(195, 1), "nvidiactl": unix.Mkdev(195, 255), "nvidia-uvm": unix.Mkdev(511, 0)} {
		err := unix.Mknod(filepath.Join(dev, name), unix.S_IFCHR|0o600, int(number))
		kerneltest.Permitted(t, err, unix.CAP_MKNOD)
	}
	if err := os.WriteFile(filepath.Join(dev, "nvidia-caps"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	proc := kerneltest.Lay(t, map[string]string{"driver/nvidia/gpus/0000:0f:00.0/information": information}, "\n")
	got, err := GPUs(proc, dev)
	if err != nil {
		t.Fatal(err)
	}
	want := []node.DeviceNode{
		{Type: "gpu", Minor: 0, Path: "/dev/nvidia0", Major: 195, MinorNumber: 0},
		{Type: "gpu", Minor: 1, UUID: "GPU-8f6d1f4e-0c5b-4f1c-9a5e-3a2b1c0d9e8f", BusID: "0000:0f:00.0", Path: "/dev/nvidia1", Major: 195, MinorNumber: 1},
		{Type: "gpu", Minor: -1, Path: "/dev/nvidiactl", Major: 195, MinorNumber: 255, Control: true},
		{Type: "gpu", Minor: -1, Path: "/dev/nvidia-uvm", Major: 511, MinorNumber: 0, Control: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestGPUsPlainFileIsNoDevice(t *testing.T) {
	t.Parallel()
	got, err := GPUs(t.TempDir(), kerneltest.Lay(t, map[string]string{"nvidia0": "x", "nvidiactl": "x"}, "\n"))
	if !errors.Is(err, errNotDevice) || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := GPUs(t.TempDir(), kerneltest.Lay(t, map[string]string{"null": ""}, "\n")); err != nil || got != nil {
		t.Errorf("without a GPU: %v, %v", got, err)
	}
}

func TestParseCard(t *testing.T) {
	t.Parallel()
	if c, err := parseCard("GPU UUID: GPU-????????-????\nDevice Minor: 3\n"); err != nil || c.minor != 3 || c.uuid != "" {
		t.Errorf("unread UUID: %+v, %v", c, err)
	}
	for _, bad := range []string{"", "GPU UUID: x", "Device Minor: -1", "Device Minor: 99999"} {
		if c, err := parseCard(bad); err == nil {
			t.Errorf("parseCard(%q) = %+v", bad, c)
		}
	}
}

func TestIsBusID(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{"0000:3b:00.0": true, "10000:E1:1f.7": true, "eth0": false, "0000:3b:00": false, "0:0.0:0": false, "": false, "g000:3b:00.0": false} {
		if isBusID(s) != want {
			t.Errorf("isBusID(%q) = %v", s, !want)
		}
	}
}

func FuzzParseCard(f *testing.F) {
	f.Add(information)
	f.Add("Device Minor: 0")
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := parseCard(s); err == nil && c.minor < 0 {
			t.Errorf("minor %d", c.minor)
		}
	})
}

func FuzzParseDev(f *testing.F) {
	f.Add("8:16\n")
	f.Add(":")
	f.Add("-1:4294967296")
	f.Fuzz(func(t *testing.T, s string) {
		if major, minor, err := parseDev(s); err == nil && (major < 0 || minor < 0) {
			t.Errorf("%d:%d from %q", major, minor, s)
		}
	})
}

func FuzzActiveScheduler(f *testing.F) {
	f.Add("none [mq-deadline] bfq")
	f.Add("[")
	f.Fuzz(func(t *testing.T, s string) {
		if got := activeScheduler(s); len(got) > len(s) {
			t.Errorf("%q from %q", got, s)
		}
	})
}
