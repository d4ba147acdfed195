// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kept

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// Amounts are CPU and memory of a list.
func Amounts(l corev1.ResourceList) capacity.Amounts {
	return capacity.Amounts{CPU: Milli(l, corev1.ResourceCPU), Memory: Bytes(l, corev1.ResourceMemory)}
}

// Milli is a resource in thousandths, at least 0.
func Milli(l corev1.ResourceList, name corev1.ResourceName) unit.MilliCPU {
	q := l[name]
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64 // MilliValue is 0 then: a pod that asks for all would count as one that asks for nothing
	}
	return unit.MilliCPU(max(q.MilliValue(), 0))
}

// Bytes is a resource in whole numbers, at least 0.
func Bytes(l corev1.ResourceList, name corev1.ResourceName) unit.Bytes {
	return unit.Bytes(Count(l[name]))
}

// Count is a whole number, at least 0; what no int64 holds is the most that one does.
func Count(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) > 0 {
		return math.MaxInt64
	}
	return max(q.Value(), 0)
}
