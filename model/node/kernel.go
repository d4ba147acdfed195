// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node

import (
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// CgroupVersion is 1 (also hybrid, where controllers are v1) or 2.
type CgroupVersion uint8

// Cgroup versions.
const (
	CgroupV1 CgroupVersion = 1
	CgroupV2 CgroupVersion = 2
)

// Support says whether the kernel has a knob.
type Support struct {
	OK bool
	// Why not, for people: "no cpu.bvt_warp_ns: not an Anolis kernel". Empty when OK.
	Why string
	// Degraded says what limits a knob that is there: "no device has iocost on, a weight has no effect until one has".
	// Only set when OK.
	Degraded string
}

// Kernel is what the probe found. It never depends on a distribution's name.
type Kernel struct {
	Release      string // uname -r
	Major, Minor int
	Cgroup       CgroupVersion
	// Systemd is true when the kubelet's cgroups are systemd units.
	Systemd bool
	// RecursiveProt is the memory_recursiveprot mount option of cgroup2.
	RecursiveProt bool
	// Knobs is the support of every knob at container level.
	Knobs [plan.NumKnobs]Support
	RDT   RDT
	// Disks maps block device names ("sda", "/dev/sda", "nvme0n1") to "major:minor".
	Disks map[string]string
	// WeightedBy says by disk ("8:0") who divides it by weight on cgroup v2: [ByIOCost], which reads io.weight, or [ByBFQ], which reads a file
	// of its own. A disk that is missing has neither.
	WeightedBy map[string]string
	// KubeletMemoryQoS: the kubelet writes memory.min/low/high itself.
	KubeletMemoryQoS bool
	// KubeletStaticCPU and KubeletStaticMemory: the kubelet's own managers own cpuset.cpus and cpuset.mems.
	KubeletStaticCPU, KubeletStaticMemory bool
	// Devices are the device nodes present: GPUs and RDMA by the probe of /dev and /sys.
	Devices []DeviceNode
	// CDI holds the qualified names in the registry.
	CDI map[string]struct{}
	// HAMiLib is the host path of HAMi-core's interposer library, empty when it or its lock directory /tmp/vgpulock is
	// missing.
	HAMiLib string
}

// Who divides a disk by weight.
const (
	ByIOCost = "iocost"
	ByBFQ    = "BFQ"
)

// Has reports whether the kernel has the knob.
func (k *Kernel) Has(kn plan.Knob) bool { return k.Knobs[kn].OK }

// AtLeast compares the kernel's version.
func (k *Kernel) AtLeast(major, minor int) bool {
	return k.Major > major || k.Major == major && k.Minor >= minor
}

// DeviceNode is a character device a container may be given.
type DeviceNode struct {
	// Type is "gpu" or "rdma"; Minor is Koordinator's minor (GPU index), UUID and BusID when known. Path on the host.
	Type               string
	Minor              int
	UUID, BusID        string
	Path               string
	Major, MinorNumber int64
	// Control nodes (nvidiactl, rdma_cm) go to every container that has any device of the type.
	Control bool
}

// RDT is the resctrl filesystem's capability (Documentation/filesystems/resctrl.rst, info directory).
type RDT struct {
	Mounted bool
	Why     string // why not
	// L3: allocation of the last-level cache. CBM is the full mask, MinBits its shortest run.
	L3        bool
	L3CBM     uint64
	L3MinBits int
	L3CDP     bool // L3CODE and L3DATA instead of L3
	L3IDs     []int
	Closids   int
	// MB: memory bandwidth allocation; percent on Intel, absolute in 1/8 GB/s on AMD, MiB/s with mba_MBps.
	MB            bool
	MBUnit        MBUnit
	MBMin, MBGran int64
	MBMax         int64
	MBIDs         []int
	Mon           bool // mon_groups that count
}

// MBUnit is the unit of the MB line.
type MBUnit uint8

// Units of MB.
const (
	MBPercent MBUnit = iota
	MBAbsolute
	MBMBps
)

// Runtime is what Configure learned of the container runtime and of the NRI connection.
type Runtime struct {
	Name, Version string
	// NRI is the API version spoken, "0.8" … "0.12"; empty when the runtime does not tell and it was derived.
	NRI string
	// Fields that the runtime really applies, not merely accepts (facts §2.3).
	Fields Fields
	// NoCDI: this release drops CDI devices however it is configured, so that nobody can say otherwise.
	NoCDI bool
	// Weight is the runtime's shares→weight formula on v2; PodWeight the kubelet's.
	Weight, PodWeight unit.WeightFormula
	// RequestTimeout is the runtime's per-event budget in milliseconds.
	RequestTimeoutMS int64
	// Problems say why the runtime is limited; one that begins with "unsupported", why it is not worked with at all.
	Problems []string
}

// Supported reports whether the runtime may be worked with, and why not.
func (r *Runtime) Supported() (why string, ok bool) {
	for _, p := range r.Problems {
		if strings.HasPrefix(p, "unsupported") {
			return p, false
		}
	}
	return "", true
}

// Fields of an NRI adjustment that take effect.
type Fields struct {
	Unified, OOMScoreAdj, RDTClass, CDI, Scheduler bool
	// UpdatePod: the UpdatePodSandbox event exists.
	UpdatePod bool
}

// FeatureState is one line of `koordctl features`.
type FeatureState struct {
	Feature string `json:"feature"`
	// State is "active", "degraded", "unsupported", "observe" or "off".
	State string `json:"state"`
	// How it works here, or why it does not.
	Detail string `json:"detail,omitempty"`
}
