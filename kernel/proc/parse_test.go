// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParsePIDs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want []int
		bad  bool
	}{
		"two":             {"1\n4194304\n", []int{1, 4194304}, false},
		"empty":           {"", nil, false},
		"foreign":         {"0\n7\n", []int{7}, false},
		"bad kept apart":  {"7\nx\n8\n", []int{7, 8}, true},
		"negative":        {"-1\n", nil, true},
		"beyond 31 bits":  {"2147483648\n", nil, true},
		"no last newline": {"5\n6", []int{5, 6}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParsePIDs(c.in)
			if !slices.Equal(got, c.want) || (err != nil) != c.bad {
				t.Errorf("ParsePIDs(%q) = %v, %v", c.in, got, err)
			}
		})
	}
}

const mountsV2 = `24 30 0:22 / /proc rw,nosuid shared:13 - proc proc rw
36 25 0:31 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
90 25 0:55 / /sys/fs/resctrl rw,relatime shared:40 - resctrl resctrl rw,cdp,mba_MBps
99 25 0:31 /kubepods /mnt/x rw - cgroup2 cgroup2 rw
`

const mountsHybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd
41 31 0:38 /.. /sys/fs/cgroup/uni\040fied rw,relatime - cgroup2 cgroup2 rw
`

func TestParseMountinfo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want Mounts
		bad  bool
	}{
		"v2 with resctrl": {mountsV2, Mounts{V1: map[string]string{}, V2: "/sys/fs/cgroup", RecursiveProt: true,
			Resctrl: "/sys/fs/resctrl", ResctrlOptions: []string{"cdp", "mba_MBps"}}, false},
		"hybrid": {mountsHybrid, Mounts{V1: map[string]string{"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
			"memory": "/sys/fs/cgroup/memory", "name=systemd": "/sys/fs/cgroup/systemd"}, V2: "/sys/fs/cgroup/uni fied"}, false},
		"broken line": {"nonsense\n" + mountsV2[:0], Mounts{V1: map[string]string{}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseMountinfo(strings.NewReader(c.in))
			if !reflect.DeepEqual(got, c.want) || (err != nil) != c.bad {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

// What a program reads at its start stays with it as memory: a full node's mounts must cost no more than an empty one's.
// Not parallel: allocations of other tests would count.
func TestMountinfoOfAFullNode(t *testing.T) {
	mount := "900 31 0:77 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/" + strings.Repeat("c", 64) +
		"/rootfs rw,relatime shared:9 - overlay overlay rw,lowerdir=" + strings.Repeat("/var/lib/containerd/snapshots/1/fs:", 200) + "\n"
	allocated := func(text string) float64 {
		r := strings.NewReader(text)
		return testing.AllocsPerRun(10, func() {
			r.Reset(text)
			if m, err := ParseMountinfo(r); err != nil || m.Resctrl == "" {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
	empty, full := allocated(mountsV2), allocated(strings.Repeat(mount, 1000)+mountsV2)
	if full > empty+10 {
		t.Errorf("%g allocations with 1000 containers, %g without", full, empty)
	}
}

func TestParseStartTime(t *testing.T) {
	t.Parallel()
	stat := "12 (a) b) c) S 1 " + strings.Repeat("7 ", 17) + "4711 99 0\n"
	if got, err := parseStartTime(stat); err != nil || got != 4711 {
		t.Errorf("got %d, %v", got, err)
	}
	for _, bad := range []string{"", "12 (x", "12 (x) S 1 2 3"} {
		if got, err := parseStartTime(bad); err == nil {
			t.Errorf("parseStartTime(%q) = %d", bad, got)
		}
	}
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add(mountsV2)
	f.Add(mountsHybrid)
	f.Add("1 2 3 / / rw - cgroup cgroup ")
	f.Add("a b c / \\0 d - cgroup2 x rw")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMountinfo(strings.NewReader(s))
		if m.V1 == nil {
			t.Error("nil map")
		}
		if err == nil && strings.Contains(s, "- cgroup2 ") && m.RecursiveProt && m.V2 == "" {
			t.Error("options of a mount that is none")
		}
	})
}

func FuzzParsePIDs(f *testing.F) {
	f.Add("1\n2\n")
	f.Add("0\nx\n-4")
	f.Add("00\n")
	f.Fuzz(func(t *testing.T, s string) {
		pids, _ := ParsePIDs(s)
		for _, p := range pids {
			if p <= 0 {
				t.Errorf("pid %d from %q", p, s)
			}
		}
	})
}

func FuzzParseStartTime(f *testing.F) {
	f.Add("12 (a) b) c) S 1 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 4711 99")
	f.Add(")")
	f.Fuzz(func(t *testing.T, s string) {
		_, err := parseStartTime(s)
		_, later := parseStatField(s, 41)
		if (err == nil || later == nil) && !strings.Contains(s, ")") {
			t.Errorf("%q has no command name: %v, %v", s, err, later)
		}
	})
}
