// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"strconv"
)

// Band is the lowest and the highest spec.priority of a class (upstream apis/extension/priority.go); none has no band.
func (p PriorityClass) Band() (low, high int32, ok bool) {
	switch p {
	case PriorityProd:
		return 9000, 9999, true
	case PriorityMid:
		return 7000, 7999, true
	case PriorityBatch:
		return 5000, 5999, true
	case PriorityFree:
		return 3000, 3999, true
	default:
		return 0, 0, false
	}
}

// PriorityClassOf is the class in whose band a spec.priority lies.
func PriorityClassOf(value int32) PriorityClass {
	for _, p := range [...]PriorityClass{PriorityProd, PriorityMid, PriorityBatch, PriorityFree} {
		if low, high, _ := p.Band(); value >= low && value <= high {
			return p
		}
	}
	return PriorityNone
}

// PodPriorityClass is a pod's class: that of its label where it has one (an unknown word is none), else of spec.priority;
// nil is no priority.
func PodPriorityClass(labels map[string]string, priority *int32) PriorityClass {
	if word, ok := labels[LabelPriorityClass]; ok {
		class, _ := ParsePriorityClass(word)
		return class
	}
	if priority == nil {
		return PriorityNone
	}
	return PriorityClassOf(*priority)
}

// DefaultPriorityClass is the class of a pod without one: BE is batch, every other QoS class prod, no QoS class none.
func (q QoS) DefaultPriorityClass() PriorityClass {
	switch q {
	case QoSNone:
		return PriorityNone
	case QoSBE:
		return PriorityBatch
	default:
		return PriorityProd
	}
}

// ParseSubPriority reads the label koordinator.sh/priority: the order within a class, a whole number of 32 bits.
func ParseSubPriority(s string) (int32, error) {
	v, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: want a whole number of 32 bits", quote(s))
	}
	return int32(v), nil
}
