// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"slices"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// forbidden are the priority classes that a QoS class cannot be combined with (upstream); every other combination is accepted.
func forbidden(q protocol.QoS) []protocol.PriorityClass {
	switch q {
	case protocol.QoSBE:
		return []protocol.PriorityClass{protocol.PriorityNone, protocol.PriorityProd}
	case protocol.QoSLSR:
		return []protocol.PriorityClass{
			protocol.PriorityNone, protocol.PriorityMid, protocol.PriorityBatch, protocol.PriorityFree,
		}
	default:
		return nil
	}
}

// Check says why a new pod is refused.
func Check(p *Pod) []Problem {
	out := p.checkCombination()
	out = append(out, p.checkBatch()...)
	out = append(out, p.CheckCPUs()...)
	return append(out, p.checkSubPriority()...)
}

// checkCombination checks QoS class against priority class.
func (p *Pod) checkCombination() []Problem {
	q, class := p.qos(), p.class()
	if !slices.Contains(forbidden(q), class) {
		return nil
	}
	word, want := "no Koordinator priority class", "koord-batch, koord-mid or koord-free"
	if class != protocol.PriorityNone {
		word = "priority class " + class.String()
	}
	if q == protocol.QoSLSR {
		want = "koord-prod"
	}
	return []Problem{{
		At:     "label " + protocol.LabelQoSClass,
		Reason: q.String() + " cannot be combined with " + word + ": set priorityClassName to " + want + ", or another QoS class",
	}}
}

// checkBatch: who asks for batch resources is BE, or the node would not hold it to them.
func (p *Pod) checkBatch() []Problem {
	if p.qos() == protocol.QoSBE {
		return nil
	}
	for _, name := range [...]string{protocol.ResourceBatchCPU, protocol.ResourceBatchMemory} {
		v, err := p.request(name)
		if err != nil {
			return []Problem{{At: name, Reason: err.Error()}}
		}
		if v > 0 {
			return []Problem{{
				At: "label " + protocol.LabelQoSClass, Reason: "a pod that asks for " + name + " must be BE: set the label to BE",
			}}
		}
	}
	return nil
}

// CheckCPUs: LSE and LSR pods get whole CPUs. A resize must keep that.
func (p *Pod) CheckCPUs() []Problem {
	q := p.qos()
	if q != protocol.QoSLSE && q != protocol.QoSLSR {
		return nil
	}
	const at = "spec.containers[*].resources.requests.cpu"
	v, err := p.request(resourceCPU)
	switch {
	case err != nil:
		return []Problem{{At: at, Reason: err.Error()}}
	case v == 0:
		return []Problem{{At: at, Reason: "a pod of class " + q.String() + " must ask for CPUs"}}
	case v%1000 != 0:
		return []Problem{{At: at, Reason: strconv.FormatInt(v, 10) + "m in all: a pod of class " + q.String() + " must ask for whole CPUs"}}
	}
	return nil
}

// checkSubPriority: the label orders pods within their class. A value in the band of another class, or in none above the lowest
// band, claims a rank that the class does not give. Values below every band are upstream's own way to write an order (its
// manual sets 1000 for koord-batch) and claim nothing.
func (p *Pod) checkSubPriority() []Problem {
	text, ok := p.Labels[protocol.LabelPriority]
	if !ok {
		return nil
	}
	at := "label " + protocol.LabelPriority
	v, err := protocol.ParseSubPriority(text)
	if err != nil {
		return []Problem{{At: at, Reason: err.Error()}}
	}
	low, high, banded := p.class().Band()
	lowest, _, _ := protocol.PriorityFree.Band()
	if !banded || v >= low && v <= high || v < lowest {
		return nil
	}
	return []Problem{{
		At: at,
		Reason: text + " lies outside " + p.class().String() + ": want " + strconv.Itoa(int(low)) + " to " + strconv.Itoa(int(high)) +
			", or a number below " + strconv.Itoa(int(lowest)),
	}}
}

// CheckUpdate says what of a pod must not be changed. Nothing else of an old pod is checked again: one that was created while
// admission was away must still lose its finalizers.
func CheckUpdate(p, old *Pod, keepPriority bool) []Problem {
	var out []Problem
	fixed := func(at, was, is string) {
		if was != is {
			out = append(out, Problem{At: at, Reason: "cannot be changed from " + strconv.Quote(was) + " to " + strconv.Quote(is) +
				": delete the pod and create it anew"})
		}
	}
	fixed("label "+protocol.LabelQoSClass, old.qos().String(), p.qos().String())
	fixed("priority class", old.class().String(), p.class().String())
	if keepPriority {
		fixed("label "+protocol.LabelPriority, old.Labels[protocol.LabelPriority], p.Labels[protocol.LabelPriority])
	}
	fixed("label "+protocol.LabelQuotaPreemptible, old.Labels[protocol.LabelQuotaPreemptible], p.Labels[protocol.LabelQuotaPreemptible])
	return out
}
