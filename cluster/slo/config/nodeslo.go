// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"maps"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// NodeSLO merges what cluster, first matching node entry and annotations say of a node's strategy. Defaults are not filled in:
// strategy.Effective does that on the node, and what the cluster does not say stays free for the object's other writers. Problems
// are annotations that cannot be read: they are passed over.
func (c *Config) NodeSLO(n Node) (strategy.Spec, []Problem) {
	var out strategy.Spec
	for _, key := range []layers[strategy.Spec]{c.threshold, c.qos, c.burst, c.system, c.hosts} {
		out = strategy.Overlay(out, key.at(n))
	}
	for _, name := range slices.Sorted(maps.Keys(c.extensions)) {
		out = strategy.Overlay(out, c.extensions[name].at(n))
	}
	var problems []Problem
	if text, given := n.Annotations[protocol.AnnotationNetworkBandwidth]; given {
		if _, err := strategy.ParseQuantity(text); err != nil {
			problems = append(problems, Problem{Key: protocol.AnnotationNetworkBandwidth, Err: err})
		} else {
			q := strategy.Quantity(text)
			out = strategy.Overlay(out, strategy.Spec{SystemStrategy: &strategy.SystemStrategy{TotalNetworkBandwidth: &q}})
		}
	}
	if s := c.watermark(n, out.SystemStrategy); s != nil {
		out = strategy.Overlay(out, strategy.Spec{SystemStrategy: s})
	}
	return out, problems
}

// watermark is the system strategy of a node that is short of memory, nil for others: the kernel begins to reclaim earlier there, so that
// what allocates need not wait for it. What the cluster wants of all nodes is raised, never lowered.
func (c *Config) watermark(n Node, s *strategy.SystemStrategy) *strategy.SystemStrategy {
	text := n.Annotations[protocol.AnnotationLendingWeight]
	if text == "" {
		return nil
	}
	colocation, _ := c.Colocation(n)
	health, _ := colocation.Health()
	factor := health.MemoryPressureWatermark
	if !colocation.Enable || !health.Enable || factor == nil {
		return nil
	}
	// An annotation that cannot be read is told of by the controller of the node's resources, which writes it anew.
	w, err := protocol.ParseLendingWeight(text)
	if err != nil || !slices.Contains(w.Reasons, protocol.UnsoundMemory) || s != nil && s.WatermarkScaleFactor != nil && *s.WatermarkScaleFactor >= *factor {
		return nil
	}
	return &strategy.SystemStrategy{WatermarkScaleFactor: factor}
}

// thresholdKey is resource-threshold-config.
type thresholdKey struct {
	ClusterStrategy *strategy.ResourceThresholdStrategy `json:"clusterStrategy,omitempty"`
	NodeStrategies  []struct {
		profile
		strategy.ResourceThresholdStrategy
	} `json:"nodeStrategies,omitempty"`
}

func decodeThreshold(doc strategy.Document) (layers[strategy.Spec], []strategy.FieldError, error) {
	var k thresholdKey
	if err := doc.Decode(&k); err != nil {
		return layers[strategy.Spec]{}, nil, err
	}
	var nodes []entry[strategy.Spec]
	for i := range k.NodeStrategies {
		e := &k.NodeStrategies[i]
		nodes = append(nodes, entry[strategy.Spec]{e.profile, strategy.Spec{ResourceUsedThresholdWithBE: &e.ResourceThresholdStrategy}})
	}
	cluster := strategy.Spec{ResourceUsedThresholdWithBE: k.ClusterStrategy}
	l, wrong := part("resourceUsedThresholdWithBE.", cluster, cluster, nodes)
	return l, wrong, nil
}

// burstKey is cpu-burst-config.
type burstKey struct {
	ClusterStrategy *strategy.CPUBurstStrategy `json:"clusterStrategy,omitempty"`
	NodeStrategies  []struct {
		profile
		strategy.CPUBurstStrategy
	} `json:"nodeStrategies,omitempty"`
}

func decodeBurst(doc strategy.Document) (layers[strategy.Spec], []strategy.FieldError, error) {
	var k burstKey
	if err := doc.Decode(&k); err != nil {
		return layers[strategy.Spec]{}, nil, err
	}
	var nodes []entry[strategy.Spec]
	for i := range k.NodeStrategies {
		e := &k.NodeStrategies[i]
		nodes = append(nodes, entry[strategy.Spec]{e.profile, strategy.Spec{CPUBurstStrategy: &e.CPUBurstStrategy}})
	}
	l, wrong := part("cpuBurstStrategy.", strategy.Spec{CPUBurstStrategy: k.ClusterStrategy}, strategy.Spec{}, nodes)
	return l, wrong, nil
}

// systemKey is system-config.
type systemKey struct {
	ClusterStrategy *strategy.SystemStrategy `json:"clusterStrategy,omitempty"`
	NodeStrategies  []struct {
		profile
		strategy.SystemStrategy
	} `json:"nodeStrategies,omitempty"`
}

func decodeSystem(doc strategy.Document) (layers[strategy.Spec], []strategy.FieldError, error) {
	var k systemKey
	if err := doc.Decode(&k); err != nil {
		return layers[strategy.Spec]{}, nil, err
	}
	var nodes []entry[strategy.Spec]
	for i := range k.NodeStrategies {
		e := &k.NodeStrategies[i]
		nodes = append(nodes, entry[strategy.Spec]{e.profile, strategy.Spec{SystemStrategy: &e.SystemStrategy}})
	}
	l, wrong := part("systemStrategy.", strategy.Spec{SystemStrategy: k.ClusterStrategy}, strategy.Spec{}, nodes)
	return l, wrong, nil
}

// qosKey is resource-qos-config, classes in either spelling.
type qosKey struct {
	ClusterStrategy *strategy.WireQOSStrategy `json:"clusterStrategy,omitempty"`
	NodeStrategies  []struct {
		profile
		strategy.WireQOSStrategy
	} `json:"nodeStrategies,omitempty"`
}

func decodeQOS(doc strategy.Document) (layers[strategy.Spec], []strategy.FieldError, error) {
	var k qosKey
	if err := doc.Decode(&k); err != nil {
		return layers[strategy.Spec]{}, nil, err
	}
	const from = "resourceQOSStrategy."
	var twice []strategy.FieldError
	canonical := func(w *strategy.WireQOSStrategy, path string) strategy.Spec {
		spec, conflicts := strategy.NormaliseCanonical(strategy.Wire{ResourceQOSStrategy: w})
		for _, c := range conflicts {
			twice = append(twice, moved([]error{strategy.FieldError{Path: c.Seed, Err: c}}, from, path)...)
		}
		return spec
	}
	cluster := canonical(k.ClusterStrategy, "clusterStrategy.")
	var nodes []entry[strategy.Spec]
	for i := range k.NodeStrategies {
		e := &k.NodeStrategies[i]
		nodes = append(nodes, entry[strategy.Spec]{e.profile, canonical(&e.WireQOSStrategy, "nodeStrategies"+index(i)+".")})
	}
	l, wrong := part(from, cluster, withoutBlocks(cluster), nodes)
	return l, append(twice, wrong...), nil
}

// withoutBlocks is a QoS strategy without its block devices: an entry's list replaces the cluster's, which may be long.
func withoutBlocks(s strategy.Spec) strategy.Spec {
	if s.ResourceQOSStrategy == nil {
		return s
	}
	q := *s.ResourceQOSStrategy
	for _, class := range []**strategy.ResourceQOS{&q.LSRClass, &q.LSClass, &q.BEClass, &q.SystemClass, &q.CgroupRoot} {
		if *class != nil {
			c := **class
			c.BlkIOQOS = nil
			*class = &c
		}
	}
	return strategy.Spec{ResourceQOSStrategy: &q}
}

// part builds the layers of a key that is one part of a NodeSLO, from is that part; beside as of [build].
func part(from string, cluster, beside strategy.Spec, nodes []entry[strategy.Spec]) (layers[strategy.Spec], []strategy.FieldError) {
	return build(cluster, beside, "clusterStrategy.", "nodeStrategies", nodes, func(s strategy.Spec, path string) []strategy.FieldError {
		return moved(strategy.Validate(s), from, path)
	})
}

// hostsKey is host-application-config.
type hostsKey struct {
	Applications []strategy.HostApplication `json:"applications,omitempty"`
	NodeConfigs  []struct {
		profile
		Applications []strategy.HostApplication `json:"applications,omitempty"`
	} `json:"nodeConfigs,omitempty"`
}

// errTwice means that one node would have two applications of a name.
var errTwice = errors.New("the name is given twice")

func decodeHosts(doc strategy.Document) (layers[strategy.Spec], []strategy.FieldError, error) {
	var k hostsKey
	if err := doc.Decode(&k); err != nil {
		return layers[strategy.Spec]{}, nil, err
	}
	var nodes []entry[strategy.Spec]
	for _, e := range k.NodeConfigs {
		if e.Applications == nil {
			e.Applications = []strategy.HostApplication{} // a node's list replaces the cluster's, also when it is not there
		}
		nodes = append(nodes, entry[strategy.Spec]{e.profile, strategy.Spec{HostApplications: e.Applications}})
	}
	l, wrong := build(strategy.Spec{HostApplications: k.Applications}, strategy.Spec{}, "", "nodeConfigs", nodes,
		func(s strategy.Spec, path string) []strategy.FieldError {
			out := moved(strategy.Validate(s), "hostApplications", path+"applications")
			seen := map[string]bool{}
			for i, a := range s.HostApplications {
				if seen[a.Name] {
					out = append(out, strategy.FieldError{Path: path + "applications" + index(i) + ".name", Err: errTwice})
				}
				seen[a.Name] = true
			}
			return out
		})
	return l, wrong, nil
}
