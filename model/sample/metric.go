// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sample

// Unit of a metric's value.
type Unit uint8

// The units. Rates are per second of elapsed (monotonic) time, whatever the collector's interval is.
const (
	Cores Unit = iota + 1
	Bytes
	BytesPerSecond
	// Ratio is 0..1, as unit.Fraction; percents of kernel files are divided by 100 where they are read.
	Ratio
	// Count is a number per collecting interval, CountPerSecond a rate.
	Count
	CountPerSecond
	// Micros are µs; MicrosPerSecond µs of waiting per second: 1e6 is waiting all the time (of one task, or as a sum over
	// tasks where the metric says so).
	Micros
	MicrosPerSecond

	numUnits = iota + 1
)

var units = [numUnits]string{
	Cores: "cores", Bytes: "bytes", BytesPerSecond: "bytes/s", Ratio: "ratio",
	Count: "count", CountPerSecond: "1/s", Micros: "us", MicrosPerSecond: "us/s",
}

// String is the unit's short name.
func (u Unit) String() string {
	if u == 0 || u >= numUnits {
		return "unknown"
	}
	return units[u]
}

// Metric is what was measured of a subject. The table below has name, unit and source of each.
type Metric uint8

// The metrics. The zero value is no metric.
const (
	CPUUsage Metric = iota + 1
	CPURequest
	CPULimit
	MemoryUsage
	MemoryWithPageCache
	MemoryWithHotPages
	MemoryColdPages
	MemoryFreeLists
	PageCache
	CPUThrottled
	CPUPeriods
	RunQueueDelay
	PSICPUSome
	PSICPUFull
	PSIMemorySome
	PSIMemoryFull
	PSIIOSome
	PSIIOFull
	StallCPUSome
	StallCPUFull
	StallMemorySome
	StallMemoryFull
	StallIOSome
	StallIOFull
	Cycles
	Instructions
	MemoryAllocStall
	DiskReadBytes
	DiskWriteBytes
	DiskReadIOPS
	DiskWriteIOPS
	DiskReadLatency
	DiskWriteLatency
	NetworkReceive
	NetworkTransmit
	LLCOccupancy
	MemoryBandwidthTotal
	MemoryBandwidthLocal
	MemoryCharged
	CPUThrottledTime
	MemoryAllocLatency
	DiskLatency
	NetworkRTT
	ClassCPU
	StallCPUOwn

	numMetrics = iota + 1
)

// NumMetrics is one more than the largest Metric: the length of an array indexed by Metric.
const NumMetrics = numMetrics

// row describes one metric. name is upstream's where upstream has the same meaning (metric cache of koordlet 1.8 without
// the subject's prefix). slow metrics are collected every 10 s or less often for pods, containers and smaller subjects.
type row struct {
	name string
	unit Unit
	slow bool
	help string
}

// The kernel's documents: Documentation/admin-guide/cgroup-v2.rst (cpu.stat, memory.stat, io.stat), accounting/psi.rst,
// scheduler/sched-stats.rst, admin-guide/iostats.rst, filesystems/resctrl.rst; numbers of pages and sectors are already
// bytes here.
var table = [NumMetrics]row{
	CPUUsage:   {"cpu_usage", Cores, false, "CPU time per second: cpu.stat, cpuacct.usage, /proc/stat without idle and iowait"},
	CPURequest: {"cpu_request", Cores, false, "sum of the CPU requests of a class, batch-cpu of BE; decided, not measured"},
	CPULimit:   {"cpu_limit", Cores, false, "CPU that suppression leaves BE: CPUs of its set, or its quota; decided, not measured"},
	MemoryUsage: {"memory_usage", Bytes, false, "memory without page cache: active_anon, inactive_anon and unevictable of " +
		"memory.stat, MemTotal - MemAvailable - memory_free_lists of the node"},
	MemoryWithPageCache: {"memory_usage_with_page_cache", Bytes, false, "memory with active_file and inactive_file, MemTotal - MemFree - memory_free_lists"},
	MemoryWithHotPages:  {"memory_with_hot_page_usage", Bytes, false, "memory with the page cache that is in use (not cold)"},
	MemoryColdPages:     {"memory_cold_page_size", Bytes, true, "page cache and anonymous memory that was idle"},
	MemoryFreeLists:     {"memory_free_lists", Bytes, true, "free memory on lists of the CPUs: count of /proc/zoneinfo"},
	PageCache:           {"page_cache", Bytes, true, "page cache: file of memory.stat, Cached of /proc/meminfo"},
	CPUThrottled:        {"cpu_throttled", Ratio, false, "periods in which the quota ran out over all periods of the interval"},
	CPUPeriods:          {"cpu_periods", Count, false, "enforcement periods of the interval (nr_periods)"},
	RunQueueDelay:       {"cpu_run_queue_delay", MicrosPerSecond, true, "time its tasks waited for a CPU, summed up (schedstat)"},
	PSICPUSome:          {"psi_cpu_some_avg10", Ratio, true, "share of 10 s in which some task waited for CPU (kernel average)"},
	PSICPUFull:          {"psi_cpu_full_avg10", Ratio, true, "as some, but all tasks"},
	PSIMemorySome:       {"psi_mem_some_avg10", Ratio, true, "share of 10 s in which some task waited for memory (kernel average)"},
	PSIMemoryFull:       {"psi_mem_full_avg10", Ratio, true, "as some, but all tasks"},
	PSIIOSome:           {"psi_io_some_avg10", Ratio, true, "share of 10 s in which some task waited for IO (kernel average)"},
	PSIIOFull:           {"psi_io_full_avg10", Ratio, true, "as some, but all tasks"},
	StallCPUSome:        {"psi_cpu_some_stall", MicrosPerSecond, true, "growth of total= of cpu.pressure some"},
	StallCPUFull:        {"psi_cpu_full_stall", MicrosPerSecond, true, "growth of total= of cpu.pressure full, of the node"},
	StallMemorySome:     {"psi_mem_some_stall", MicrosPerSecond, true, "growth of total= of memory.pressure some"},
	StallMemoryFull:     {"psi_mem_full_stall", MicrosPerSecond, true, "growth of total= of memory.pressure full, of the node"},
	StallIOSome:         {"psi_io_some_stall", MicrosPerSecond, true, "growth of total= of io.pressure some"},
	StallIOFull:         {"psi_io_full_stall", MicrosPerSecond, true, "growth of total= of io.pressure full, of the node"},
	Cycles:              {"cpi_cycles", Count, true, "CPU cycles in the measuring window (perf)"},
	Instructions:        {"cpi_instructions", Count, true, "instructions retired in the same window; cycles / instructions is CPI"},
	MemoryAllocStall: {"memory_alloc_stall", CountPerSecond, true, "allocations that had to reclaim themselves: allocstall_* of " +
		"/proc/vmstat, the cgroup's direct reclaim"},
	DiskReadBytes:        {"disk_read_bytes", BytesPerSecond, true, "bytes read: io.stat rbytes, /proc/diskstats"},
	DiskWriteBytes:       {"disk_write_bytes", BytesPerSecond, true, "bytes written: io.stat wbytes, /proc/diskstats"},
	DiskReadIOPS:         {"disk_read_iops", CountPerSecond, true, "reads: io.stat rios, /proc/diskstats"},
	DiskWriteIOPS:        {"disk_write_iops", CountPerSecond, true, "writes: io.stat wios, /proc/diskstats"},
	DiskReadLatency:      {"disk_read_latency", Micros, true, "mean time per read of the interval (/proc/diskstats)"},
	DiskWriteLatency:     {"disk_write_latency", Micros, true, "mean time per write of the interval (/proc/diskstats)"},
	NetworkReceive:       {"network_receive", BytesPerSecond, true, "bytes received (/proc/PID/net/dev of the network namespace)"},
	NetworkTransmit:      {"network_transmit", BytesPerSecond, true, "bytes sent"},
	LLCOccupancy:         {"llc", Bytes, true, "cache held: resctrl llc_occupancy"},
	MemoryBandwidthTotal: {"mb_total", BytesPerSecond, true, "growth of resctrl mbm_total_bytes"},
	MemoryBandwidthLocal: {"mb_local", BytesPerSecond, true, "growth of resctrl mbm_local_bytes"},
	MemoryCharged: {"memory_charged", Bytes, false, "memory that the cgroup's limits are held against, kernel memory included: " +
		"memory.current, memory.usage_in_bytes; of containers"},
	CPUThrottledTime: {"cpu_throttled_time", MicrosPerSecond, false, "time for which the quota stopped it, summed up over CPUs (throttled_usec, " +
		"throttled_time); only of intervals in which it did"},
	MemoryAllocLatency: {"memory_alloc_latency", MicrosPerSecond, true, "time its tasks spent in direct reclaim, compaction and thrashing, summed " +
		"up (taskstats); without delay accounting the memory pressure of its worst container"},
	DiskLatency: {"disk_latency", Micros, true, "mean time of a wait of its tasks for a disk (taskstats); without delay accounting its IO pressure " +
		"per request"},
	ClassCPU: {"class_cpu", Cores, false, "CPU time per second of the cgroup of Kubernetes' BestEffort class, with pods that nobody has told of yet"},
	StallCPUOwn: {"psi_cpu_own_stall", MicrosPerSecond, true, "time for which quotas of a pod and of its containers stopped it, summed up as far as " +
		"time allows, over the interval of psi_cpu_some_stall; only of intervals in which they did"},
	NetworkRTT: {"network_rtt", Micros, true, "median of the smoothed round trip times of up to 16 of its TCP connections that were active (sock_diag)"},
}

func (m Metric) row() row {
	if m >= NumMetrics {
		return row{}
	}
	return table[m]
}

// Valid reports whether the metric is one of the constants.
func (m Metric) Valid() bool { return m > 0 && m < NumMetrics }

// String is the metric's name without a subject: "cpu_usage".
func (m Metric) String() string {
	if !m.Valid() {
		return "unknown"
	}
	return table[m].name
}

// Name is the metric's name for subjects of a kind: "pod_cpu_usage", "sys_numa_memory_usage", "resctrl_resource_llc".
func (m Metric) Name(k Kind) string {
	if !m.Valid() || k == 0 || k >= numKinds {
		return "unknown"
	}
	return kinds[k].prefix + "_" + table[m].name
}

// Unit of the metric's values.
func (m Metric) Unit() Unit { return m.row().unit }

// Help is one line about meaning and source.
func (m Metric) Help() string { return m.row().help }

// Slow reports whether collectors measure the metric of such subjects every 10 s or less often. Everything about the node
// is measured every second.
func (m Metric) Slow(k Kind) bool { return m.row().slow && !k.OfNode() }
