// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

// Knob is one thing that can be set: a kernel file, an OCI field or a resctrl entry, named independently of the cgroup
// version. Which file carries it is kernel/cgroup's knowledge.
type Knob uint8

// All knobs, in the order in which plans print. Units are in the table below.
const (
	KnobNone Knob = iota
	CPUShares
	CPUQuota
	CPUPeriod
	CPUBurst
	CPUIdle
	CPUBvt
	SchedPolicy
	CPUSetCPUs
	CPUSetMems
	MemoryLimit
	MemoryMin
	MemoryLow
	MemoryHigh
	MemoryOOMGroup
	MemoryWmarkRatio
	MemoryWmarkScale
	MemoryWmarkMinAdj
	MemoryPriority
	MemoryUsePriorityOOM
	PageCacheEnable
	PageCacheSize
	PageCacheSync
	IOReadBPS
	IOWriteBPS
	IOReadIOPS
	IOWriteIOPS
	IOWeight
	IOLatency
	RDTClass
	RDTSchemata
	RDTMonGroup
	CoreSchedCookie
	OOMScoreAdj
	Env
	Device
	CDIDevice
	Mount
	VMMinFree
	VMWatermarkScale
	IOCostQoS
	IOCostModel
	NetShape
	NumKnobs
)

// Info is what is known of a knob without a kernel at hand.
type Info struct {
	// Name is stable: it stands in ledgers, annotations, metrics, configuration (cede) and documents.
	Name string
	// Unit in words.
	Unit string
	// Min and Max bound an integer value; Unlimited is accepted beside them when Max is Unlimited.
	Min, Max int64
	// Text knobs carry a string, the others an integer.
	Text bool
	// Keyed knobs carry one value per key: a device "8:0", a variable, a path, a cache resource.
	Keyed bool
}

// infos is a table, never written after start.
var infos = [NumKnobs]Info{
	KnobNone:             {Name: "none"},
	CPUShares:            {Name: "cpu.shares", Unit: "shares (1024 = one CPU)", Min: 2, Max: 262144},
	CPUQuota:             {Name: "cpu.quota", Unit: "µs per period, -1 = unlimited", Min: 1000, Max: -1},
	CPUPeriod:            {Name: "cpu.period", Unit: "µs", Min: 1000, Max: 1000000},
	CPUBurst:             {Name: "cpu.burst", Unit: "µs, at most the quota", Min: 0, Max: -1},
	CPUIdle:              {Name: "cpu.idle", Unit: "0 or 1", Min: 0, Max: 1},
	CPUBvt:               {Name: "cpu.bvt", Unit: "group identity -1..2", Min: -1, Max: 2},
	SchedPolicy:          {Name: "sched.policy", Unit: "SCHED_* number (5 = SCHED_IDLE)", Min: 0, Max: 6},
	CPUSetCPUs:           {Name: "cpuset.cpus", Unit: "CPU list", Text: true},
	CPUSetMems:           {Name: "cpuset.mems", Unit: "NUMA node list", Text: true},
	MemoryLimit:          {Name: "memory.limit", Unit: "bytes, -1 = unlimited", Min: 0, Max: -1},
	MemoryMin:            {Name: "memory.min", Unit: "bytes", Min: 0, Max: -1},
	MemoryLow:            {Name: "memory.low", Unit: "bytes", Min: 0, Max: -1},
	MemoryHigh:           {Name: "memory.high", Unit: "bytes, -1 = unlimited", Min: 0, Max: -1},
	MemoryOOMGroup:       {Name: "memory.oom.group", Unit: "0 or 1", Min: 0, Max: 1},
	MemoryWmarkRatio:     {Name: "memory.wmark_ratio", Unit: "percent", Min: 0, Max: 100},
	MemoryWmarkScale:     {Name: "memory.wmark_scale_factor", Unit: "0.01 %", Min: 1, Max: 1000},
	MemoryWmarkMinAdj:    {Name: "memory.wmark_min_adj", Unit: "percent", Min: -25, Max: 50},
	MemoryPriority:       {Name: "memory.priority", Unit: "0..12", Min: 0, Max: 12},
	MemoryUsePriorityOOM: {Name: "memory.use_priority_oom", Unit: "0 or 1", Min: 0, Max: 1},
	PageCacheEnable:      {Name: "memory.pagecache_limit.enable", Unit: "0 or 1", Min: 0, Max: 1},
	PageCacheSize:        {Name: "memory.pagecache_limit.size", Unit: "bytes", Min: 0, Max: -1},
	PageCacheSync:        {Name: "memory.pagecache_limit.sync", Unit: "0 or 1", Min: 0, Max: 1},
	IOReadBPS:            {Name: "io.read_bps", Unit: "bytes/s per device, -1 = unlimited", Min: 1, Max: -1, Keyed: true},
	IOWriteBPS:           {Name: "io.write_bps", Unit: "bytes/s per device, -1 = unlimited", Min: 1, Max: -1, Keyed: true},
	IOReadIOPS:           {Name: "io.read_iops", Unit: "requests/s per device, -1 = unlimited", Min: 1, Max: -1, Keyed: true},
	IOWriteIOPS:          {Name: "io.write_iops", Unit: "requests/s per device, -1 = unlimited", Min: 1, Max: -1, Keyed: true},
	IOWeight:             {Name: "io.weight", Unit: "1..10000 (100 = default)", Min: 1, Max: 10000, Keyed: true},
	IOLatency:            {Name: "io.latency", Unit: "µs target per device, 0 = none", Min: 0, Max: -1, Keyed: true},
	RDTClass:             {Name: "rdt.class", Unit: "resctrl group", Text: true},
	RDTSchemata:          {Name: "rdt.schemata", Unit: "schemata line per resource", Text: true, Keyed: true},
	RDTMonGroup:          {Name: "rdt.mon_group", Unit: "monitoring group", Text: true},
	CoreSchedCookie:      {Name: "core_sched.cookie", Unit: "group whose tasks may share a core", Text: true},
	OOMScoreAdj:          {Name: "oom_score_adj", Unit: "-1000..1000", Min: -1000, Max: 1000},
	Env:                  {Name: "env", Unit: "environment variable", Text: true, Keyed: true},
	Device:               {Name: "device", Unit: "type major:minor access", Text: true, Keyed: true},
	CDIDevice:            {Name: "cdi", Unit: "qualified CDI device name", Text: true, Keyed: true},
	Mount:                {Name: "mount", Unit: "source and options per destination", Text: true, Keyed: true},
	VMMinFree:            {Name: "vm.min_free_kbytes", Unit: "KiB of the node", Min: 0, Max: -1},
	VMWatermarkScale:     {Name: "vm.watermark_scale_factor", Unit: "0.01 % of the node's memory", Min: 1, Max: 3000},
	IOCostQoS:            {Name: "io.cost.qos", Unit: "words of the disk's line: enable, ctrl, and percentiles and latencies (µs) of reads and writes", Text: true, Keyed: true},
	IOCostModel:          {Name: "io.cost.model", Unit: "words of the disk's line: ctrl, and bytes/s, sequential and random requests/s of reads and writes", Text: true, Keyed: true},
	NetShape:             {Name: "net.shape", Unit: "shares of a link's bandwidth per link and direction", Text: true, Keyed: true},
}

// Info describes the knob.
func (k Knob) Info() Info {
	if k >= NumKnobs {
		return infos[KnobNone]
	}
	return infos[k]
}

// String is the knob's stable name.
func (k Knob) String() string { return k.Info().Name }

// ParseKnob finds a knob by its stable name.
func ParseKnob(name string) (Knob, bool) {
	for k := KnobNone + 1; k < NumKnobs; k++ {
		if infos[k].Name == name {
			return k, true
		}
	}
	return KnobNone, false
}

// Knobs is a set of knobs.
type Knobs uint64

// KnobSet builds a set.
func KnobSet(ks ...Knob) Knobs {
	var s Knobs
	for _, k := range ks {
		s |= 1 << k
	}
	return s
}

// Has reports membership.
func (s Knobs) Has(k Knob) bool { return s&(1<<k) != 0 }

// OfProcesses reports knobs that belong to processes and not to a file of a cgroup.
func (k Knob) OfProcesses() bool {
	switch k {
	case SchedPolicy, OOMScoreAdj, CoreSchedCookie, RDTClass, RDTMonGroup:
		return true
	default:
		return false
	}
}
