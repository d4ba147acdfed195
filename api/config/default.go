// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import "time"

// Default is the configuration of koord-nri of an empty file.
func Default() NRI {
	return NRI{
		Node:           defaultNode("unix:/run/koord-rt/nri-metrics.sock"),
		Socket:         "/var/run/nri/nri.sock",
		PluginName:     "koord-rt",
		PluginIndex:    "05",
		Reconnect:      Reconnect{Min: Duration(500 * time.Millisecond), Max: Duration(30 * time.Second)},
		RequestTimeout: Duration(2 * time.Second),
		RealTime:       true,
	}
}

// defaultNode is what the programs have in common; each has a metrics socket of its own.
func defaultNode(metrics string) Node {
	return Node{
		RunDir:       "/run/koord-rt",
		StateDir:     "/var/lib/koord-rt",
		StrategyFile: "/etc/koord-rt/strategy.yaml",
		Host: Host{
			CgroupRoot: "/sys/fs/cgroup", Proc: "/proc", Sys: "/sys", Resctrl: "/sys/fs/resctrl", Dev: "/dev",
			CDIDirs:                   []string{"/etc/cdi", "/var/run/cdi"},
			HAMiLibrary:               "/usr/local/vgpu/libvgpu.so",
			KubeletCPUManagerState:    "/var/lib/kubelet/cpu_manager_state",
			KubeletMemoryManagerState: "/var/lib/kubelet/memory_manager_state",
			KubeletMemoryQoS:          MemoryQoSAuto,
		},
		OptOut:        OptOut{RuntimeHandlers: []string{"kata*", "gvisor", "runsc*", "kuasar*", "firecracker*"}},
		WeightFormula: WeightAuto,
		CDI:           CDIAuto,
		Limits: Limits{
			OOMScoreAdjMax: 1000, CPUBurstPercentMax: 10000, MemoryMinPercentMax: 100,
			MemoryLowPercentMax: 100, ResctrlPodGroups: true, MBAPercentMax: 100, CoreSched: true,
			Devices: true, BlkIO: true, IOLatencyMin: 3000, NodeCPUSetMaxPercent: 100,
		},
		Metrics:  Metrics{Address: metrics},
		Log:      Log{Level: "info", Format: "text"},
		Deadline: Duration(time.Second), DriftInterval: Duration(DefaultDriftInterval),
	}
}

// Bounds of Node.DriftInterval, and what it is where nobody says otherwise.
const (
	MinDriftInterval     = time.Second
	MaxDriftInterval     = 10 * time.Minute
	DefaultDriftInterval = 10 * time.Second
)

// Values of CDI.
const (
	CDIAuto = "auto"
	CDIOn   = "on"
	CDIOff  = "off"
)

// Values of Host.KubeletMemoryQoS.
const (
	MemoryQoSAuto = "auto"
	MemoryQoSYes  = "yes"
	MemoryQoSNo   = "no"
)

// Values of WeightFormula.
const (
	WeightAuto      = "auto"
	WeightLinear    = "linear"
	WeightQuadratic = "quadratic"
)
