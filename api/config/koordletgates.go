// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// KoordletGate is one feature gate of upstream's koordlet.
type KoordletGate struct {
	Name string
	// Help is what false does here, or why the gate has no effect.
	Help string
	set  func(c *Koordlet, on bool)
}

// Acts reports whether the gate changes anything.
func (g *KoordletGate) Acts() bool { return g.set != nil }

// evictGates are the gates of evictions: which of them acts is for the strategy's thresholds to say.
var evictGates = [...]string{"BECPUEvict", "BEMemoryEvict", "CPUAllocatableEvict", "CPUEvict", "MemoryAllocatableEvict", "MemoryEvict"}

// KoordletGates are those that are known, ordered by name.
func KoordletGates() []KoordletGate {
	var out []KoordletGate
	for name, f := range map[string]protocol.Feature{ // sorted below
		"BatchResource": protocol.FeatureBatch, "BlkIOReconcile": protocol.FeatureBlkIO, "CPUBurst": protocol.FeatureBurst,
		"CPUNormalization": protocol.FeatureNormalization, "CPUSetAllocator": protocol.FeatureCPUSet, "CgroupReconcile": protocol.FeatureMemory,
		"CoreSched": protocol.FeatureCoreSched, "GPUEnvInject": protocol.FeatureDevices, "GroupIdentity": protocol.FeatureIdentity,
		"OOMScoreAdj": protocol.FeatureOOMScore, "RdtResctrl": protocol.FeatureLLC,
	} {
		out = append(out, KoordletGate{Name: name, Help: "sets features." + f.String() + " to off or active", set: func(c *Koordlet, on bool) {
			c.Features = maps.Clone(c.Features) // the defaults' map is nobody's to change
			if c.Features == nil {
				c.Features = map[string]Mode{}
			}
			c.Features[f.String()] = ModeActive
			if !on {
				c.Features[f.String()] = ModeOff
			}
		}})
	}
	out = append(out,
		KoordletGate{Name: "NodeTopologyReport", Help: "sets apiServer.topology", set: func(c *Koordlet, on bool) { c.APIServer.Topology = on }},
		KoordletGate{Name: "Resctrl", Help: "sets limits.resctrlPodGroups", set: func(c *Koordlet, on bool) { c.Limits.ResctrlPodGroups = on }},
	)
	for _, name := range evictGates {
		out = append(out, KoordletGate{Name: name, Help: "no effect alone, the strategy's thresholds decide; all of them false set evict.mode to off"})
	}
	for help, names := range map[string]string{ // sorted below
		"no effect: every gate has its own line here":                      "AllAlpha AllBeta",
		"no effect: resourceUsedThresholdWithBE of the strategy decides":   "BECPUSuppress BECPUManager",
		"no effect: systemStrategy decides":                                "SystemConfig",
		"no effect: measured where the kernel has it":                      "CPICollector ColdPageCollector Libpfm4 PSICollector PerCPUMetric ResctrlCollector",
		"no effect: the audit is always kept and answered":                 "AuditEvents AuditEventsHTTPHandler",
		"no effect: devices come from koord-device-daemon and the runtime": "Accelerators HamiCoreVGPUMonitor PodResourcesProxy RDMADeviceInject RDMADevices",
		"no effect: not implemented":                                       "HugePageReport NodeMetricPromMetrics TCNetworkQoS TerwayQoS",
	} {
		for name := range strings.FieldsSeq(names) {
			out = append(out, KoordletGate{Name: name, Help: help})
		}
	}
	slices.SortFunc(out, func(a, b KoordletGate) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ParseGates reads "Name=true,Other=false". A name that is unknown, or given twice, is an error.
func ParseGates(text string) (map[string]bool, error) {
	known := KoordletGates()
	out := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		on, err := strconv.ParseBool(value)
		_, twice := out[name]
		switch {
		case err != nil:
			return nil, fmt.Errorf("feature gate %.60q: want Name=true or Name=false", part)
		case twice:
			return nil, fmt.Errorf("feature gate %.60q: given twice", name)
		case !slices.ContainsFunc(known, func(g KoordletGate) bool { return g.Name == name }):
			return nil, fmt.Errorf("feature gate %.60q is not known", name)
		}
		out[name] = on
	}
	return out, nil
}

// setGates is --feature-gates.
func setGates(c *Koordlet, text string) error {
	gates, err := ParseGates(text)
	if err != nil {
		return err
	}
	for _, g := range KoordletGates() {
		if on, given := gates[g.Name]; given && g.Acts() {
			g.set(c, on)
		}
	}
	if !slices.ContainsFunc(evictGates[:], func(name string) bool { on, given := gates[name]; return on || !given }) {
		c.Evict.Mode = ModeOff
	}
	// A gate that is off does not make a node that insists on the feature inconsistent without a word.
	for _, name := range c.FailClosed {
		if c.Features[name] == ModeOff {
			return errors.New("feature " + name + " is in failClosed and switched off by a gate")
		}
	}
	return nil
}

// gateNotes are the gates that were switched off and stay on all the same.
func gateNotes(text string) (notes []string) {
	gates, err := ParseGates(text)
	if err != nil {
		return nil
	}
	for _, g := range KoordletGates() {
		if on, given := gates[g.Name]; given && !on && !g.Acts() {
			notes = append(notes, "feature gate "+g.Name+"=false has "+g.Help)
		}
	}
	return notes
}
