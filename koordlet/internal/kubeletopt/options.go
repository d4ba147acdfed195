// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package kubeletopt learns what the kubelet was told to do with CPUs: the scheduler reads it in the node's
// NodeResourceTopology.
//
// Inputs are the kubelet's GET /configz, and its configuration file where that is refused; outputs are Options and a State
// that says where they come from. It may import model, api/strategy, koordlet/internal/trust and the standard library; it
// writes nothing.
package kubeletopt

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Options are what is read of a KubeletConfiguration.
type Options struct {
	// CPUPolicy is none or static, CPUOptions are the policy's: full-pcpus-only …
	CPUPolicy  string
	CPUOptions map[string]string
	// ReservedCPUs is reservedSystemCPUs, ReservedCPU what kubeReserved and systemReserved keep of the node.
	ReservedCPUs topo.CPUSet
	ReservedCPU  unit.MilliCPU
	// TopologyPolicy is none, best-effort, restricted or single-numa-node; TopologyScope container or pod.
	TopologyPolicy, TopologyScope string
}

// Values of the fields.
const (
	PolicyNone   = "none"
	PolicyStatic = "static"

	TopologyBestEffort = "best-effort"
	TopologyRestricted = "restricted"
	TopologySingleNUMA = "single-numa-node"

	ScopeContainer = "container"
	ScopePod       = "pod"
)

// Bounds of what is read.
const (
	maxBytes   = 1 << 20
	maxOptions = 32
	maxWord    = 128
)

// document is the answer of /configz, which has its content under kubeletconfig, or a configuration file.
type document struct {
	Kind   string         `yaml:"kind"`
	Answer *configuration `yaml:"kubeletconfig"`
	File   configuration  `yaml:",inline"`
}

// configuration is KubeletConfiguration v1beta1 as far as it is read.
type configuration struct {
	CPUPolicy      string            `yaml:"cpuManagerPolicy"`
	CPUOptions     map[string]scalar `yaml:"cpuManagerPolicyOptions"`
	ReservedCPUs   string            `yaml:"reservedSystemCPUs"`
	KubeReserved   map[string]scalar `yaml:"kubeReserved"`
	SystemReserved map[string]scalar `yaml:"systemReserved"`
	TopologyPolicy string            `yaml:"topologyManagerPolicy"`
	TopologyScope  string            `yaml:"topologyManagerScope"`
}

// scalar is a string, number or truth value as it is written.
type scalar string

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *scalar) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: not a single value", n.Line)
	}
	*s = scalar(n.Value)
	return nil
}

// Parse reads the answer of GET /configz, {"kubeletconfig":{…}}, or a KubeletConfiguration document
// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/). What is left out has the kubelet's default.
func Parse(b []byte) (Options, error) {
	if len(b) > maxBytes {
		return Options{}, fmt.Errorf("parse the kubelet's configuration: longer than %d bytes", maxBytes)
	}
	var d document
	if err := strategy.Loose(b, &d); err != nil {
		return Options{}, fmt.Errorf("parse the kubelet's configuration: %w", err)
	}
	c := &d.File
	switch {
	case d.Answer != nil:
		c = d.Answer
	case d.Kind != "KubeletConfiguration":
		return Options{}, errors.New("parse the kubelet's configuration: neither an answer of /configz nor a KubeletConfiguration")
	}
	out, err := c.options()
	if err != nil {
		return Options{}, fmt.Errorf("parse the kubelet's configuration: %w", err)
	}
	return out, nil
}

func (c *configuration) options() (Options, error) {
	out := Options{
		CPUPolicy:      cmp.Or(c.CPUPolicy, PolicyNone),
		TopologyPolicy: cmp.Or(c.TopologyPolicy, PolicyNone), TopologyScope: cmp.Or(c.TopologyScope, ScopeContainer),
	}
	for _, word := range []string{out.CPUPolicy, out.TopologyPolicy, out.TopologyScope} {
		if len(word) > maxWord {
			return Options{}, fmt.Errorf("%.40q… is no policy", word)
		}
	}
	if len(c.CPUOptions) > maxOptions {
		return Options{}, fmt.Errorf("more than %d cpuManagerPolicyOptions", maxOptions)
	}
	for key, value := range c.CPUOptions {
		if len(key)+len(value) > maxWord {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: %.40q… is no option", key)
		}
		if out.CPUOptions == nil {
			out.CPUOptions = map[string]string{}
		}
		out.CPUOptions[key] = string(value)
	}
	var err error
	if out.ReservedCPUs, err = topo.ParseCPUSet(c.ReservedCPUs); err != nil {
		return Options{}, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	for name, list := range map[string]map[string]scalar{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		text, ok := list["cpu"]
		if !ok {
			continue
		}
		n, err := strategy.ParseMilli(string(text))
		if err != nil {
			return Options{}, fmt.Errorf("%s: cpu: %w", name, err)
		}
		out.ReservedCPU += unit.MilliCPU(min(n, 1<<30))
	}
	return out, nil
}

// StaticReserved are the CPUs that the static policy gives to no container alone: reservedSystemCPUs, else as many as
// kubeReserved and systemReserved need together, in whole CPUs, the lowest cores first; none with another policy
// (k8s.io/kubernetes pkg/kubelet/cm/cpumanager, NewStaticPolicy).
//
// Example: 500m with cores 0-4, 1-5, 2-6, 3-7 is CPU 0; 1500m is 0,4.
func (o *Options) StaticReserved(t *topo.Topology) topo.CPUSet {
	if o.CPUPolicy != PolicyStatic || t == nil {
		return topo.CPUSet{}
	}
	if !o.ReservedCPUs.Empty() {
		return o.ReservedCPUs.Intersect(t.All())
	}
	cpus := slices.Clone(t.CPUs)
	slices.SortFunc(cpus, func(a, b topo.CPU) int {
		return cmp.Or(cmp.Compare(a.Socket, b.Socket), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID))
	})
	ids := make([]int, 0, len(cpus))
	for _, c := range cpus[:min(int((o.ReservedCPU+999)/1000), len(cpus))] {
		ids = append(ids, c.ID)
	}
	return topo.CPUs(ids...)
}
