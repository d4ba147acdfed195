// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/unit"
)

const nodeMeminfo = `Node 0 MemTotal:        6908120 kB
Node 0 MemFree:         4850584 kB
Node 0 MemUsed:         2057536 kB
Node 0 Active(anon):       1600 kB
Node 0 Active(file):     751700 kB
Node 0 Inactive(file):   957516 kB
Node 0 SReclaimable:     155920 kB
`

func TestParseNodeMeminfo(t *testing.T) {
	t.Parallel()
	var m NodeMemory
	if err := parseNodeMeminfo([]byte(nodeMeminfo), &m); err != nil {
		t.Fatal(err)
	}
	want := NodeMemory{Total: 6908120 << 10, Free: 4850584 << 10, ActiveFile: 751700 << 10, InactiveFile: 957516 << 10, SReclaimable: 155920 << 10}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	// 6908120 − (4850584 + 751700 + 957516 + 155920) = 192400 KiB
	if m.Used(0) != 192400<<10 || m.UsedWithPageCache(0) != 2057536<<10 {
		t.Errorf("used %d, with page cache %d", m.Used(0), m.UsedWithPageCache(0))
	}
	for _, bad := range []string{"", "Node 0 MemFree: 1 kB", "Node 0 MemTotal: -1 kB", "Node 0 MemTotal: 9223372036854775807 kB"} {
		again := m
		if err := parseNodeMeminfo([]byte(bad), &again); err == nil || again != m {
			t.Errorf("%q: %+v, %v", bad, again, err)
		}
	}
}

func FuzzParseNodeMeminfo(f *testing.F) {
	f.Add(nodeMeminfo)
	f.Fuzz(func(t *testing.T, s string) {
		var m NodeMemory
		if err := parseNodeMeminfo([]byte(s), &m); err == nil && (m.Used(0) < 0 || m.UsedWithPageCache(0) < 0) {
			t.Errorf("%+v", m)
		}
	})
}

// TestThisHostsNodes reads every node of the running kernel: together they are the machine. It counts allocations, so it is
// not parallel.
func TestThisHostsNodes(t *testing.T) {
	fs := FS("/sys")
	topology, err := fs.Topology()
	if err != nil {
		t.Fatal(err)
	}
	b := root.Get()
	defer b.Put()
	var sum unit.Bytes
	for _, id := range topology.Nodes.List() {
		f, err := fs.NodeMemoryFile(id)
		if err != nil {
			t.Log(err)
			kerneltest.LeaveToVM(t, kerneltest.NoFile("/sys/devices/system/node", unix.SYSFS_MAGIC)) // without CONFIG_NUMA
		}
		defer f.Close()
		var m NodeMemory
		if n := testing.AllocsPerRun(10, func() { err = f.Read(b, &m) }); n != 0 || err != nil {
			t.Fatalf("%v allocations, %v", n, err)
		}
		if m.Used(0) <= 0 || m.Used(0) > m.Total {
			t.Errorf("node %d: %+v", id, m)
		}
		sum += m.Total
	}
	if sum < 64<<20 {
		t.Errorf("all nodes have %d", sum)
	}
}

func TestWholeDisks(t *testing.T) {
	t.Parallel()
	dir := kerneltest.Lay(t, map[string]string{
		"block/sda/dev": "8:0", "block/sda/sda1/dev": "8:1", "block/dm-0/dev": "253:0", "block/dm-0/slaves/sda/dev": "8:0",
		"block/loop0/dev": "7:0", "block/ram1/dev": "1:1", "block/zram0/dev": "252:0", "block/nvme0n1/dev": "259:0",
		"block/ramdisk/dev": "99:0", "block/broken/dev": "x",
	}, "\n")
	got, err := FS(dir).WholeDisks()
	want := []WholeDisk{{"nvme0n1", 259, 0}, {"ramdisk", 99, 0}, {"sda", 8, 0}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}
