// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

// Node is what every node program needs to decide and to write: where the host's file systems are, what is switched on,
// and what pods may ask for.
type Node struct {
	// RunDir holds what must not survive a reboot (sockets, journal, handoff). Default /run/koord-rt.
	RunDir string `json:"runDir"`
	// StateDir holds what must survive a reboot (the last strategy of the node agent). Default /var/lib/koord-rt.
	StateDir string `json:"stateDir"`
	// StrategyFile is the node strategy (NodeSLO schema); it may be absent. Default /etc/koord-rt/strategy.yaml.
	StrategyFile string `json:"strategyFile"`
	// Host says where the host's file systems are; change it when running in a container or a test root.
	Host Host `json:"host"`
	// Features maps feature name to mode: active, observe (plan and count, write nothing) or off. A feature that is not
	// named is active. Names: batch, cpuset, cpu-identity, cpu-burst, cpu-normalization, memory-qos, llc, blkio,
	// oom-score, core-sched, devices, network-qos.
	Features map[string]Mode `json:"features"`
	// FailClosed lists features that must be in force for a container to start: when one that the pod needs cannot be
	// applied, creation fails. Such a feature must be active. Default none (fail-open).
	FailClosed []string `json:"failClosed"`
	// OptOut says which pods are left alone.
	OptOut OptOut `json:"optOut"`
	// Cede lists knobs left to another plugin, such as cpuset.cpus or memory.high: never written, never claimed.
	// Default none.
	Cede []string `json:"cede"`
	// ReservedCPUs is a CPU list ("0-1,8") that is given to no pod. Default empty.
	ReservedCPUs string `json:"reservedCPUs"`
	// WeightFormula is how the runtime turns cpu.shares into cpu.weight: auto (probe), linear or quadratic
	// (runc 1.3.2 and crun 1.23 on). Default auto.
	WeightFormula string `json:"weightFormula"`
	// CDI says whether the runtime applies CDI devices of an NRI adjustment: auto (by its version: containerd 2.1 on),
	// on (containerd 1.7 from 1.7.30 on with enable_cdi, which it does not tell; an older one and 2.0 drop them, and on
	// counts as auto there) or off. Default auto.
	CDI string `json:"cdi"`
	// Limits caps what pod annotations may ask for.
	Limits Limits `json:"limits"`
	// Metrics is the metrics endpoint.
	Metrics Metrics `json:"metrics"`
	// Log is the log output.
	Log Log `json:"log"`
	// Deadline bounds one handler: past it the container is let through as fail-open or fail-closed says. It must be
	// shorter than RequestTimeout and than 2s, the runtime's own default limit. Range 10ms..1.999s, default 1s.
	Deadline Duration `json:"deadline"`
	// DriftInterval is the time between two checks of all that is held in the kernel, which put right what somebody else has written
	// over, and what no event tells of. Each reads every value of every container: a longer interval costs less, and lets what is
	// wrong stand for as long. The same for all programs of a node. Range 1s..10m, default 10s.
	DriftInterval Duration `json:"driftInterval"`
}

// Host is where the host's file systems are mounted. Paths are absolute.
type Host struct {
	// CgroupRoot is the cgroup file system. Default /sys/fs/cgroup.
	CgroupRoot string `json:"cgroupRoot"`
	// Proc is procfs. Default /proc.
	Proc string `json:"proc"`
	// Sys is sysfs. Default /sys.
	Sys string `json:"sys"`
	// Resctrl is the resctrl file system; it may be absent. Default /sys/fs/resctrl.
	Resctrl string `json:"resctrl"`
	// Dev holds the device nodes. Default /dev.
	Dev string `json:"dev"`
	// CDIDirs are searched for CDI device specifications, later ones win. Default /etc/cdi, /var/run/cdi.
	CDIDirs []string `json:"cdiDirs"`
	// HAMiLibrary is HAMi-core's interposer library on the host; containers with that isolation get it when it and its
	// lock directory /tmp/vgpulock exist. Default /usr/local/vgpu/libvgpu.so.
	HAMiLibrary string `json:"hamiLibrary"`
	// KubeletCPUManagerState is kubelet's CPU manager checkpoint; it may be absent. Default
	// /var/lib/kubelet/cpu_manager_state.
	KubeletCPUManagerState string `json:"kubeletCPUManagerState"`
	// KubeletMemoryManagerState is kubelet's memory manager checkpoint; it may be absent. Default
	// /var/lib/kubelet/memory_manager_state.
	KubeletMemoryManagerState string `json:"kubeletMemoryManagerState"`
	// CRIEndpoint is the runtime's CRI socket, "unix:///path", asked by koord-nri for what NRI does not tell. Default empty:
	// where the runtime that has connected answers usually, /run/containerd/containerd.sock or /run/crio/crio.sock.
	CRIEndpoint string `json:"criEndpoint"`
	// KubepodsRoot is the cgroup above kubepods, relative to CgroupRoot, as kubelet's --cgroup-root says. Default
	// empty (the root itself).
	KubepodsRoot string `json:"kubepodsRoot"`
	// KubeletMemoryQoS says whether the kubelet's feature gate MemoryQoS is on, so that memory.min, memory.low and
	// memory.high of pods and above are left to it: yes, no, or auto, which takes memory.min above 0 on the kubepods cgroup
	// as a yes unless we have written it. State it where the kubelet has the gate. Default auto.
	KubeletMemoryQoS string `json:"kubeletMemoryQoS"`
}

// Mode says what a feature does.
type Mode string

// The modes.
const (
	ModeActive  Mode = "active"
	ModeObserve Mode = "observe"
	ModeOff     Mode = "off"
)

// OptOut says which pods are left alone altogether. Patterns are shell globs (*, ?, [a-z]).
type OptOut struct {
	// Namespaces are namespace patterns. Default none.
	Namespaces []string `json:"namespaces"`
	// RuntimeHandlers are runtime handler (RuntimeClass) patterns: a sandboxed runtime's container is not a cgroup of
	// the workload's processes. Default kata*, gvisor, runsc*, kuasar*, firecracker*.
	RuntimeHandlers []string `json:"runtimeHandlers"`
}

// Limits caps what pod annotations may ask for: whoever may create a pod must not get the node by writing an
// annotation. A wish beyond a cap is cut to it and the ledger says so.
type Limits struct {
	// OOMScoreAdjMin is the lowest oom_score_adj. Range -1000..1000 (-999 and -1000 belong to kubelet and to processes that
	// must never be killed). Default none: 0, the score of an ordinary process, or what the kubelet gave the container where
	// that is less, so that nobody outlives the node's own programs by an annotation.
	OOMScoreAdjMin *int `json:"oomScoreAdjMin"`
	// OOMScoreAdjMax is the highest oom_score_adj. Range OOMScoreAdjMin..1000, default 1000.
	OOMScoreAdjMax int `json:"oomScoreAdjMax"`
	// CPUBurstPercentMax is the highest cpuBurstPercent. Percent of the CPU limit, range 0..10000, default 10000.
	CPUBurstPercentMax int64 `json:"cpuBurstPercentMax"`
	// MemoryMinPercentMax is the highest minLimitPercent. Percent of the memory request, range 0..100, default 100.
	MemoryMinPercentMax int64 `json:"memoryMinPercentMax"`
	// MemoryLowPercentMax is the highest lowLimitPercent. Percent of the memory request, range 0..100, default 100.
	MemoryLowPercentMax int64 `json:"memoryLowPercentMax"`
	// MemoryNodePercentMax is how much memory a container, and all pods together, may protect (memory.min, memory.low), as a
	// share of what the node has for pods: an annotation may name a request beyond any. Percent, range 0..100, default 0: no
	// such cap.
	MemoryNodePercentMax int64 `json:"memoryNodePercentMax"`
	// ResctrlPodGroups allows resctrl groups of a pod's own. Default true.
	ResctrlPodGroups bool `json:"resctrlPodGroups"`
	// MBAPercentMax is the highest memory bandwidth of such a group. Percent, range 1..100, default 100.
	MBAPercentMax int64 `json:"mbaPercentMax"`
	// BeyondClass allows BE pods by annotation more cache, memory bandwidth and block IO than the strategy's class BE has.
	// Default false: an annotation can only lower these.
	BeyondClass bool `json:"beyondClass"`
	// CoreSched allows core scheduling groups by label. Default true.
	CoreSched bool `json:"coreSched"`
	// Devices allows devices by the device-allocated annotation. Default true; set false where admission does not
	// protect that annotation.
	Devices bool `json:"devices"`
	// BlkIO allows block IO limits by annotation. Default true.
	BlkIO bool `json:"blkIO"`
	// IOLatencyMin is the smallest latency target of an annotation. Microseconds, range 0..10000000, default 3000: whose
	// target is missed has the others on the disk slowed down.
	IOLatencyMin int64 `json:"ioLatencyMin"`
	// NodeCPUSetMaxPercent is the share of the node's CPUs that exclusive (LSE, LSR) pods may take together. Percent,
	// range 0..100, default 100.
	NodeCPUSetMaxPercent int64 `json:"nodeCPUSetMaxPercent"`
}

// Metrics is the metrics endpoint.
type Metrics struct {
	// Address is unix:PATH or a loopback host:port; any other address is refused, empty is off. Default
	// unix:/run/koord-rt/nri-metrics.sock.
	Address string `json:"address"`
}

// Log is the log output, on standard error.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `json:"level"`
	// Format is text or json. Default text.
	Format string `json:"format"`
}
