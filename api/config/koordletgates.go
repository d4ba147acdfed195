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

// evictGates are the gates of evictions, all of which upstream has off by default, in order.
var evictGates = [...]string{"BECPUEvict", "BEMemoryEvict", "CPUAllocatableEvict", "CPUEvict", "MemoryAllocatableEvict", "MemoryEvict"}

// KoordletGates are those that are known, ordered by name.
func KoordletGates() []KoordletGate {
	var out []KoordletGate
	for name, f := range map[string]protocol.Feature{ // sorted below
		"BatchResource": protocol.FeatureBatch, "BlkIOReconcile": protocol.FeatureBlkIO, "CPUBurst": protocol.FeatureBurst,
		"CPUNormalization": protocol.FeatureNormalization, "CPUSetAllocator": protocol.FeatureCPUSet, "CgroupReconcile": protocol.FeatureMemory,
		"CoreSched": protocol.FeatureCoreSched, "GPUEnvInject": protocol.FeatureDevices, "GroupIdentity": protocol.FeatureIdentity,
		"OOMScoreAdj": protocol.FeatureOOMScore, "RdtResctrl": protocol.FeatureLLC, "TCNetworkQoS": protocol.FeatureNetwork,
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
		out = append(out, KoordletGate{Name: name, Help: "puts it into evict.features, or takes it out", set: func(c *Koordlet, on bool) {
			c.Evict.set(name, on)
		}})
	}
	out = append(out, KoordletGate{Name: "AllAlpha", Help: "fills or empties evict.features, but for gates that are given; other gates have their own line",
		set: func(c *Koordlet, on bool) {
			for _, name := range evictGates {
				c.Evict.set(name, on)
			}
		}})
	for help, names := range map[string]string{ // sorted below
		"no effect: every gate has its own line here":                      "AllBeta",
		"no effect: resourceUsedThresholdWithBE of the strategy decides":   "BECPUSuppress BECPUManager",
		"no effect: systemStrategy decides":                                "SystemConfig",
		"no effect: measured where the kernel has it":                      "CPICollector ColdPageCollector Libpfm4 PSICollector PerCPUMetric ResctrlCollector",
		"no effect: the audit is always kept and answered":                 "AuditEvents AuditEventsHTTPHandler",
		"no effect: devices come from koord-device-daemon and the runtime": "Accelerators HamiCoreVGPUMonitor PodResourcesProxy RDMADeviceInject RDMADevices",
		"no effect: the metrics koordlet_node_metric_… are always told":    "NodeMetricPromMetrics",
		"no effect: zones of the NodeResourceTopology always tell them":    "HugePageReport",
		"no effect: networkQOS divides the uplink without Terway's agent":  "TerwayQoS",
	} {
		for name := range strings.FieldsSeq(names) {
			out = append(out, KoordletGate{Name: name, Help: help})
		}
	}
	slices.SortFunc(out, func(a, b KoordletGate) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// set puts a feature into the list or takes it out; a list that is nil, which stands for all, begins empty.
func (e *Evict) set(name string, on bool) {
	next := slices.DeleteFunc(append([]string{}, e.Features...), func(have string) bool { return have == name }) // the file's list is nobody's to change
	if on {
		next = append(next, name)
		slices.Sort(next)
	}
	e.Features = next
}

// asUpstream makes evictions what they are by default there, unless the file says which may be.
func (e *Evict) asUpstream() {
	if e.Features == nil {
		e.Features = []string{}
	}
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
