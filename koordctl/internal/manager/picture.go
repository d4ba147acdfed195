// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package manager

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Picture is what a koord-manager said.
type Picture struct {
	// From is who.
	From string `json:"from"`
	// Nodes in order of their names, as Read makes it.
	Nodes []Node `json:"nodes"`
}

// Node is one node; what is not known, or not lent, is missing.
type Node struct {
	Name string `json:"name"`
	// The four lines: what production asks for, what it uses, what is kept for it for minutes, and what it needs at its peak.
	Limit     status.Usage `json:"limit"`
	Usage     status.Usage `json:"usage"`
	ShortTerm status.Usage `json:"shortTermReservation"`
	LongTerm  status.Usage `json:"longTermReservation"`
	// What may be lent to batch and mid pods.
	Batch status.Usage `json:"batch"`
	Mid   status.Usage `json:"mid"`
	// Problems is how much could not be read or calculated.
	Problems int `json:"problems,omitempty"`
}

// Names of the families that are read: cluster/slo/noderesource and cluster/internal/setup.
const (
	familyLine     = "koord_rt_manager_node_line"
	familyLent     = "slo_controller_node_extended_resource_allocatable_internal"
	familyProblems = "koord_rt_manager_node_problems"
	familyLeader   = "koordinator_manager_is_leader"
)

// ErrNoLeader is that of a koord-manager whose controllers do not work: it knows nothing of nodes.
var ErrNoLeader = errors.New("this koord-manager does not lead: ask the one that holds the lease koordinator-manager")

var errNotManager = errors.New("these are no metrics of koord-manager")

// parse reads the text format.
func parse(r io.Reader, from string) (*Picture, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", from, err)
	}
	leads := families[familyLeader].GetMetric()
	switch {
	case len(leads) == 0:
		return nil, fmt.Errorf("%s: %w", from, errNotManager)
	case valueOf(leads[0]) == 0:
		return nil, fmt.Errorf("%s: %w", from, ErrNoLeader)
	}
	nodes := map[string]*Node{}
	each := func(family string, see func(*Node, func(string) string, float64)) {
		for _, m := range families[family].GetMetric() {
			label := func(name string) string { return labelOf(m, name) }
			name := label("node")
			if nodes[name] == nil {
				nodes[name] = &Node{Name: name}
			}
			see(nodes[name], label, valueOf(m))
		}
	}
	each(familyLine, func(n *Node, label func(string) string, v float64) { set(n.line(label("line")), label("resource"), v) })
	each(familyLent, func(n *Node, label func(string) string, v float64) {
		switch label("resource") {
		case protocol.ResourceBatchCPU:
			set(&n.Batch, cpu, v)
		case protocol.ResourceBatchMemory:
			set(&n.Batch, memory, v)
		case protocol.ResourceMidCPU:
			set(&n.Mid, cpu, v)
		case protocol.ResourceMidMemory:
			set(&n.Mid, memory, v)
		}
	})
	each(familyProblems, func(n *Node, _ func(string) string, v float64) {
		if v > 0 { // NaN is not
			n.Problems = int(min(v, math.MaxInt32))
		}
	})
	out := &Picture{From: from, Nodes: make([]Node, 0, len(nodes))}
	for _, n := range nodes {
		out.Nodes = append(out.Nodes, *n)
	}
	slices.SortFunc(out.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Values of the label resource.
const (
	cpu    = "cpu"
	memory = "memory"
)

// line is where a line of the model belongs, nil for one that is not known here.
func (n *Node) line(name string) *status.Usage {
	switch name {
	case "limit":
		return &n.Limit
	case "usage":
		return &n.Usage
	case "short-term-reservation":
		return &n.ShortTerm
	case "long-term-reservation":
		return &n.LongTerm
	}
	return nil
}

// set takes CPUs or bytes; what is no amount stays unknown.
func set(u *status.Usage, resource string, v float64) {
	if u == nil || !(v >= 0 && v < 1e15) {
		return
	}
	switch resource {
	case cpu:
		m := unit.MilliCPU(math.Round(v * 1000))
		u.CPU = &m
	case memory:
		b := unit.Bytes(v)
		u.Memory = &b
	}
}

// valueOf is a figure, also where whoever passed it on has left out of which type it is.
func valueOf(m *dto.Metric) float64 {
	if m.GetUntyped() != nil {
		return m.GetUntyped().GetValue()
	}
	return m.GetGauge().GetValue()
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Total is the sum over all nodes; a figure is missing where no node has it.
func (p *Picture) Total() Node {
	var out Node
	for i := range p.Nodes {
		n := &p.Nodes[i]
		add(&out.Limit, &n.Limit)
		add(&out.Usage, &n.Usage)
		add(&out.ShortTerm, &n.ShortTerm)
		add(&out.LongTerm, &n.LongTerm)
		add(&out.Batch, &n.Batch)
		add(&out.Mid, &n.Mid)
		out.Problems += n.Problems
	}
	return out
}

func add(to, u *status.Usage) {
	to.CPU, to.Memory = sum(to.CPU, u.CPU), sum(to.Memory, u.Memory)
}

func sum[T ~int64](a, b *T) *T {
	if b == nil {
		return a
	}
	v := *b
	if a != nil {
		v += *a
	}
	return &v
}
