// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

const cpuStatV2 = `usage_usec 81273411
user_usec 60100200
system_usec 21173211
nr_periods 1200
nr_throttled 14
throttled_usec 183200
nr_bursts 0
burst_usec 0
`

const cpuStatV1 = "nr_periods 1200\nnr_throttled 14\nthrottled_time 183200041\n"

const memoryStatV2 = `anon 2334720
file 1089536
inactive_anon 2301952
active_anon 32768
inactive_file 1000000
active_file 89536
unevictable 4096
workingset_refault_anon 2
workingset_refault_file 12
pgmajfault 3
`

const memoryStatV1 = `cache 11665408
inactive_anon 1
pgmajfault 1
total_cache 1759252480
total_workingset_refault_file 71908
total_pgmajfault 1853
total_inactive_anon 55615488
total_active_anon 1638400
total_inactive_file 980516864
total_active_file 769736704
total_unevictable 22245376
`

func TestParseCounters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parse func([]byte, *Counters) error
		in    string
		want  Counters
		bad   bool
	}{
		"cpuacct.usage":          {parseCPUAcctUsage, "1181457638986", Counters{Have: CPUTime, UsageNS: 1181457638986}, false},
		"cpuacct.usage no more":  {parseCPUAcctUsage, "", Counters{}, true},
		"cpuacct.usage negative": {parseCPUAcctUsage, "-1", Counters{}, true},
		"v1 cpu.stat": {parseCPUStatV1, cpuStatV1,
			Counters{Have: CPUThrottle, Periods: 1200, Throttled: 14, ThrottledNS: 183200041}, false},
		"v1 cpu.stat of 6.18 with schedstats": {parseCPUStatV1, cpuStatV1 + "nr_bursts 0\nburst_time 0\nwait_sum 77120031\n",
			Counters{Have: CPUThrottle, Periods: 1200, Throttled: 14, ThrottledNS: 183200041}, false},
		"v1 cpu.stat cut": {parseCPUStatV1, "nr_periods 1200\nnr_throttled 14\n", Counters{}, true},
		"v1 cpu.stat bad": {parseCPUStatV1, cpuStatV1 + "nr_throttled x\n", Counters{}, true},
		"v2 cpu.stat": {parseCPUStatV2, cpuStatV2,
			Counters{Have: CPUTime | CPUThrottle, UsageNS: 81273411000, Periods: 1200, Throttled: 14, ThrottledNS: 183200000}, false},
		"v2 cpu.stat without the controller": {parseCPUStatV2, "usage_usec 5\nuser_usec 3\nsystem_usec 2\n", Counters{Have: CPUTime, UsageNS: 5000}, false},
		"v2 cpu.stat without usage":          {parseCPUStatV2, "nr_periods 1\n", Counters{}, true},
		"v2 cpu.stat beyond nanoseconds":     {parseCPUStatV2, "usage_usec 18446744073709551615\n", Counters{}, true},
		"memory.current":                     {parseMemoryCurrent, "4096", Counters{Have: MemoryCurrent, Current: 4096}, false},
		"memory.current max":                 {parseMemoryCurrent, "max", Counters{}, true},
		"memory.current beyond int64":        {parseMemoryCurrent, "9223372036854775808", Counters{}, true},
		"v2 memory.stat": {parseMemoryStatV2, memoryStatV2, Counters{Have: MemoryDetail, Memory: Memory{InactiveAnon: 2301952, ActiveAnon: 32768,
			InactiveFile: 1000000, ActiveFile: 89536, Unevictable: 4096, Cache: 1089536, RefaultAnon: 2, RefaultFile: 12, MajorFaults: 3}}, false},
		"v2 memory.stat before 5.9": {parseMemoryStatV2, strings.Replace(memoryStatV2, "workingset_refault_file", "workingset_refault", 1),
			Counters{Have: MemoryDetail, Memory: Memory{InactiveAnon: 2301952, ActiveAnon: 32768,
				InactiveFile: 1000000, ActiveFile: 89536, Unevictable: 4096, Cache: 1089536, RefaultAnon: 2, RefaultFile: 12, MajorFaults: 3}}, false},
		"v1 memory.stat takes the totals": {parseMemoryStatV1, memoryStatV1, Counters{Have: MemoryDetail, Memory: Memory{InactiveAnon: 55615488,
			ActiveAnon: 1638400, InactiveFile: 980516864, ActiveFile: 769736704, Unevictable: 22245376, Cache: 1759252480, RefaultFile: 71908, MajorFaults: 1853}}, false},
		"memory.stat without a list":  {parseMemoryStatV2, strings.Replace(memoryStatV2, "unevictable", "evictable", 1), Counters{}, true},
		"memory.stat with no number":  {parseMemoryStatV2, strings.Replace(memoryStatV2, "32768", "", 1), Counters{}, true},
		"memory.stat with huge lists": {parseMemoryStatV2, strings.Replace(memoryStatV2, "32768", "9223372036854775807", 1), Counters{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got Counters
			if err := c.parse([]byte(c.in), &got); (err != nil) != c.bad {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const kidled = `# version: 1.0
# page_scans: 24
# scan_period_in_seconds: 120
# use_hierarchy: 1
# buckets: 1,2,5,15,30,60,120,240
#
#   _-----=> clean/dirty
# |||||             [1,2)          [2,5)         [5,15)        [15,30)        [30,60)       [60,120)      [120,240)     [240,+inf)
  csei                  1              1              1              1              1              1              1              1
  cfei            2633728        4640768       66531328              1              2              3              4              5
  dfei                  0              0           4096              0              0              0              0              0
  cfui                  7              7              0              0              0              0              0             10
  dfui                  0              0              0              0              0              0              0              0
`

func TestParseIdlePageStats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want unit.Bytes
		bad  bool
	}{
		"files from bucket 5 on": {kidled, 66531328 + 15 + 4096 + 10, false},
		"other buckets":          {strings.Replace(kidled, "1,2,5,15,30,60,120,240", "1,2,3,4,60,120,240,480", 1), 2 + 3 + 4 + 5 + 10, false},
		"no buckets":             {strings.Replace(kidled, "buckets", "bucket", 1), 0, true},
		"too few columns":        {"# buckets: 1,5\n cfei 1\n", 0, true},
		"no rows":                {"# buckets: 1,5\n", 0, true},
		"bad bucket":             {"# buckets: 1,x\n cfei 1 1\n", 0, true},
		"too many buckets":       {"# buckets: 1" + strings.Repeat(",5", 16) + "\n cfei" + strings.Repeat(" 1", 17), 0, true},
	} {
		var got Idle
		if err := parseIdlePageStats([]byte(c.in), &got); (err != nil) != c.bad || got.Cold != c.want {
			t.Errorf("%s: %d, %v", name, got.Cold, err)
		}
	}
}

func TestParseTables(t *testing.T) {
	t.Parallel()
	quota := func(b []byte, l *Limits) error {
		l.Memory = 0
		return parseCPUMax(b, l)
	}
	for name, c := range map[string]struct {
		parse func([]byte, *Limits) error
		in    string
		want  Limits
		bad   bool
	}{
		"cpu.max":               {quota, "50000 100000", Limits{CPU: 500}, false},
		"cpu.max none":          {quota, "max 100000", Limits{CPU: 7}, false},
		"cpu.max no period":     {quota, "50000", Limits{CPU: 7}, true},
		"cpu.max zero period":   {quota, "50000 0", Limits{CPU: 7}, true},
		"quota none":            {parseQuota, "-1", Limits{CPU: -1}, false},
		"quota other negative":  {parseQuota, "-2", Limits{CPU: 7}, true},
		"list":                  {parseCPUList, "0-3,8", Limits{CPU: 7, CPUs: 5}, false},
		"list empty":            {parseCPUList, "", Limits{CPU: 7}, false},
		"list backwards":        {parseCPUList, "3-0", Limits{CPU: 7}, true},
		"list endless":          {parseCPUList, "0-99999", Limits{CPU: 7}, true},
		"list text":             {parseCPUList, "a", Limits{CPU: 7}, true},
		"memory none":           {parseMemoryLimit, "max", Limits{CPU: 7}, false},
		"memory none on v1":     {parseMemoryLimit, "9223372036854771712", Limits{CPU: 7}, false},
		"memory none, 64K page": {parseMemoryLimit, "9223372036854710272", Limits{CPU: 7}, false},
		"memory":                {parseMemoryLimit, "4096", Limits{CPU: 7, Memory: 4096}, false},
		"memory text":           {parseMemoryLimit, "lots", Limits{CPU: 7}, true},
	} {
		got := Limits{CPU: 7}
		if err := c.parse([]byte(c.in), &got); (err != nil) != c.bad || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var e Events
	if err := parseMemoryEvents([]byte("low 0\nhigh 31\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n"), &e); err != nil || e != (Events{31, 7}) {
		t.Errorf("memory.events: %+v, %v", e, err)
	}
	for name, in := range map[string]string{"device": "8:x rbytes=1", "number": "8:0 rbytes=", "huge device": "4294967296:0 rbytes=1"} {
		if err := parseIOStat([]byte(in), &IO{}); err == nil {
			t.Errorf("io.stat with a bad %s was taken", name)
		}
	}
	var io IO
	// A device without IO, and one with io.cost's keys.
	if err := parseIOStat([]byte("8:0\n8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0 cost.usage=9 use_delay=0 delay_nsec=0\n"), &io); err != nil ||
		len(io.Devices) != 2 || io.Devices[1] != (Device{8, 16, 1, 2, 3, 4}) {
		t.Errorf("io.stat: %+v, %v", io, err)
	}
	for name, in := range map[string]string{"node": "anon Nx=1\ninactive_anon Nx=1", "endless node": "inactive_anon N99999=1", "nothing": "foo N0=1"} {
		if err := parseNUMAStatV2([]byte(in), &NUMA{}); err == nil {
			t.Errorf("numa_stat with a bad %s was taken", name)
		}
	}
}

// FuzzCounters feeds every parser of the files that are read each second: no part is claimed beside an error, no amount is
// negative, nothing is allocated.
func FuzzCounters(f *testing.F) {
	for _, seed := range []string{cpuStatV1, cpuStatV2, memoryStatV1, memoryStatV2, "123", "-1", "total_inactive_anon 5\n"} {
		f.Add(seed)
	}
	parsers := []func([]byte, *Counters) error{
		parseCPUAcctUsage, parseCPUStatV1, parseCPUStatV2, parseMemoryCurrent, parseMemoryStatV1, parseMemoryStatV2,
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i, parse := range parsers {
			var c Counters
			err := parse([]byte(text), &c)
			if (err == nil) != (c.Have != 0) || err != nil && c != (Counters{}) {
				t.Errorf("parser %d of %q: %+v beside %v", i, text, c, err)
			}
			if c.Current < 0 || c.Memory.WithoutPageCache() < 0 || c.Memory.WithPageCache() < c.Memory.WithoutPageCache() {
				t.Errorf("parser %d of %q: %+v", i, text, c)
			}
		}
	})
}

// Nothing is counted into the negative: a node that is named again and again is an error, and two values at their most are none.
func TestNUMASum(t *testing.T) {
	t.Parallel()
	const most = " N0=1152921504606846975"
	var n NUMA
	if err := parseNUMAStatV2([]byte("inactive_anon"+most+"\nactive_anon"+most), &n); err != nil || n.Nodes[0].Anon != 2*1152921504606846975 {
		t.Errorf("%+v, %v", n, err)
	}
	for parser, err := range map[string]error{
		"v2": parseNUMAStatV2([]byte("inactive_anon"+strings.Repeat(most, 9)), &NUMA{}),
		"v1": parseNUMAStatV1([]byte("hierarchical_anon=1"+strings.Repeat(" N0=281474976710655", 9)), &NUMA{}),
	} {
		if !errors.Is(err, scan.ErrFormat) {
			t.Errorf("%s: %v", parser, err)
		}
	}
}

// More devices than a machine has are an error, since each is looked for among the others.
func TestTooManyDevices(t *testing.T) {
	t.Parallel()
	var v1, v2 strings.Builder
	for i := range maxDevices {
		fmt.Fprintf(&v2, "8:%d\n", i)
		fmt.Fprintf(&v1, "8:%d Read 1\n8:%d Write 2\n", i, i)
	}
	var io IO
	if err := parseIOStat([]byte(v2.String()), &io); err != nil || len(io.Devices) != maxDevices {
		t.Errorf("%d devices, %v", len(io.Devices), err)
	}
	if err := parseServiceBytes([]byte(v1.String()), &io); err != nil || len(io.Devices) != maxDevices || io.Devices[5].WriteBytes != 2 {
		t.Errorf("%d devices, %v", len(io.Devices), err)
	}
	for parser, err := range map[string]error{
		"v2": parseIOStat([]byte(v2.String()+"9:0"), &IO{}), "v1": parseServiceBytes([]byte(v1.String()+"9:0 Read 1"), &IO{}),
	} {
		if !errors.Is(err, scan.ErrFormat) {
			t.Errorf("%s: %v", parser, err)
		}
	}
}

// FuzzTables feeds the parsers of the slower files.
func FuzzTables(f *testing.F) {
	for _, seed := range []string{kidled, "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353", "254:0 Read 91312128\nTotal 5",
		"hierarchical_anon=14189 N0=14189 N1=0", "inactive_anon N0=2301952 N1=0", "0-3,8", "50000 100000", "high 31\nmax 7", "max", "1\n0\n2147483647\n",
		"inactive_anon" + strings.Repeat(" N0=1152921504606846975", 9)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := []byte(text)
		var io IO
		for _, parse := range []func([]byte, *IO) error{parseIOStat, parseServiceBytes, parseServiced} {
			_ = parse(b, &io)
		}
		for _, parse := range []func([]byte, *NUMA) error{parseNUMAStatV1, parseNUMAStatV2} {
			var n NUMA
			_ = parse(b, &n)
			for i, m := range n.Nodes {
				if m.Anon < 0 || m.File < 0 || m.Unevictable < 0 || i >= maxNodes {
					t.Errorf("node %d of %q: %+v", i, text, m)
				}
			}
		}
		for _, parse := range []func([]byte, *Limits) error{parseCPUMax, parseQuota, parsePeriod, parseCPUList, parseMemoryLimit} {
			var l Limits
			if err := parse(b, &l); err == nil && (l.CPU < unit.Unlimited || l.CPUs < 0 || l.Memory < unit.Unlimited) {
				t.Errorf("%q: %+v", text, l)
			}
		}
		for _, parse := range []func([]byte, *Events) error{parseMemoryEvents, parseFailcnt} {
			_ = parse(b, &Events{})
		}
		var pids []int
		if err := parseProcs(b, &pids); err == nil && len(pids) > strings.Count(text, "\n")+1 {
			t.Errorf("%q: processes %v", text, pids)
		}
		for _, pid := range pids {
			if pid <= 0 || pid > math.MaxInt32 {
				t.Errorf("%q: process %d", text, pid)
			}
		}
		var idle Idle
		if err := parseIdlePageStats(b, &idle); idle.Cold < 0 || err != nil && idle.Cold != 0 {
			t.Errorf("%q: %d cold beside %v", text, idle.Cold, err)
		}
	})
}

// TestParsersDoNotAllocate: all of them, once their slices have grown.
func TestParsersDoNotAllocate(t *testing.T) {
	var c Counters
	var io IO
	var numa NUMA
	var idle Idle
	var limits Limits
	var events Events
	var pids []int
	texts := [][]byte{[]byte(cpuStatV1), []byte(cpuStatV2), []byte(memoryStatV1), []byte(memoryStatV2), []byte(kidled),
		[]byte("8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353"), []byte("254:0 Read 91312128\nTotal 5"),
		[]byte("inactive_anon N0=2301952 N1=0"), []byte("hierarchical_anon=14189 N0=14189 N1=0"), []byte("50000 100000"), []byte("0-3,8"),
		[]byte("100000"), []byte("high 31\nmax 7\n"), []byte("5\n7\n"), []byte("populated 1\nfrozen 0\n")}
	run := func() {
		pids = pids[:0]
		if _, ok := parsePopulated(texts[14]); !ok {
			t.Fatal("not populated")
		}
		failed := [...]error{parseCPUStatV1(texts[0], &c), parseCPUStatV2(texts[1], &c), parseMemoryStatV1(texts[2], &c), parseMemoryStatV2(texts[3], &c),
			parseIdlePageStats(texts[4], &idle), parseIOStat(texts[5], &io), parseServiceBytes(texts[6], &io),
			parseNUMAStatV2(texts[7], &numa), parseNUMAStatV1(texts[8], &numa), parseCPUMax(texts[9], &limits), parseCPUList(texts[10], &limits),
			parseServiced(texts[6], &io), parseCPUAcctUsage(texts[11], &c), parseMemoryCurrent(texts[11], &c), parseQuota(texts[11], &limits),
			parsePeriod(texts[11], &limits), parseMemoryLimit(texts[11], &limits), parseFailcnt(texts[11], &events),
			parseMemoryEvents(texts[12], &events), parseProcs(texts[13], &pids)}
		for _, err := range failed {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
