// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
)

// Node is what the decision goes by.
type Node struct {
	Annotations           map[string]string
	Capacity, Allocatable corev1.ResourceList
}

// Change is what becomes of a node; what is not in it stays.
type Change struct {
	// Allocatable are new values of status.allocatable.
	Allocatable corev1.ResourceList
	// Annotations are new values; "" takes one away.
	Annotations map[string]string
	// Problems are what could not be read, and what holds instead.
	Problems []string
}

// amplified are the resources that can be told larger; all others are counted anew by who offers them.
func amplified() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// record is what was done last: what the kubelet said, and by how much it was multiplied.
type record struct {
	raw corev1.ResourceList
	by  map[string]int64
}

// recordOf reads it off a node as it is stored. Where another manager than ours has amplified, it was by the ratio of the wish.
func recordOf(n *Node) (out record) {
	text := n.Annotations[protocol.AnnotationRawAllocatable]
	if text == "" {
		return record{}
	}
	if err := quantity.Unmarshal([]byte(text), &out.raw); err != nil {
		return record{} // the next word of the kubelet replaces it
	}
	by, own := n.Annotations[protocol.AnnotationAmplifiedBy]
	if !own {
		by = n.Annotations[protocol.AnnotationAmplificationRatio]
	}
	var err error
	if out.by, err = protocol.ParseAmplification(by); err != nil {
		return record{}
	}
	return out
}

// Amplify decides about an update of nodes/status: status.allocatable of CPU and memory is what the kubelet says, × the ratio of
// the annotation, and what the kubelet says is kept in raw-allocatable.
//
// An update that changes a value is the kubelet's word, which knows of no ratio. One that leaves it as it was leaves what the kubelet
// said last: that is on record if the stored value is what we made of the record. It is not where the kubelet wrote while we were
// away; then the stored value is its word. Without a ratio everything becomes what the kubelet says.
//
// Example: ratio 1.5; the kubelet says 10 CPUs: 15, on record 10. Ratio 2 and still 15: 20. No ratio and still 20: 10. The kubelet
// says 8 while we are away, and 8 again: 16.
func Amplify(now, was *Node) Change {
	out := Change{Allocatable: corev1.ResourceList{}, Annotations: map[string]string{}}
	wish, err := protocol.ParseAmplification(now.Annotations[protocol.AnnotationAmplificationRatio])
	if err != nil {
		out.Problems = append(out.Problems, fmt.Sprintf("annotation %s: %v; the node is as large as its kubelet says",
			protocol.AnnotationAmplificationRatio, err))
	}
	last := recordOf(was)
	raw, by := corev1.ResourceList{}, map[string]int64{}
	for _, name := range amplified() {
		v, ok := now.Allocatable[name]
		if !ok {
			continue
		}
		said := v
		if before, had := was.Allocatable[name]; had && before.Cmp(v) == 0 {
			if kept, ok := last.raw[name]; ok && v.Cmp(times(name, kept, last.by[string(name)])) == 0 {
				said = kept
			}
		}
		if whole, ok := now.Capacity[name]; ok && said.Cmp(whole) > 0 {
			// No kubelet says that: an amplified value without its record. The kubelet's next status, seconds from now, says it.
			out.Problems = append(out.Problems, fmt.Sprintf("%s: allocatable %s is more than the capacity %s and is left as it is until the kubelet says it again",
				name, said.String(), whole.String()))
			continue
		}
		ratio := wish[string(name)]
		if want := times(name, said, ratio); want.Cmp(v) != 0 {
			out.Allocatable[name] = want
		}
		raw[name] = said
		if ratio > 100 {
			by[string(name)] = ratio
		}
	}
	rawText, byText := "", ""
	if len(by) > 0 {
		text, err := json.Marshal(raw)
		if err != nil {
			return Change{Problems: append(out.Problems, "the amounts cannot be written: "+err.Error())}
		}
		rawText, byText = string(text), protocol.FormatAmplification(by)
	}
	for key, value := range map[string]string{protocol.AnnotationRawAllocatable: rawText, protocol.AnnotationAmplifiedBy: byText} {
		if old, had := now.Annotations[key]; old != value || had != (value != "") {
			out.Annotations[key] = value
		}
	}
	return out
}

// times is an amount × ratio in hundredths, rounded down to the resource's smallest unit; a ratio up to 1 leaves it.
//
// Example: 10 CPUs × 150 = 15; 333m × 150 = 499m.
func times(name corev1.ResourceName, q resource.Quantity, hundredths int64) resource.Quantity {
	if hundredths <= 100 {
		return q
	}
	scale := func(v int64) int64 {
		x := new(big.Int).Mul(big.NewInt(v), big.NewInt(hundredths))
		if x.Quo(x, big.NewInt(100)); !x.IsInt64() {
			return math.MaxInt64
		}
		return x.Int64()
	}
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(scale(q.MilliValue()), resource.DecimalSI)
	}
	return *resource.NewQuantity(scale(q.Value()), q.Format)
}

// ownRatio is what somebody is told who writes a ratio: the manager writes it as Koordinator's does, whatever stands there.
const ownRatio = "annotation " + protocol.AnnotationAmplificationRatio + ": koord-manager takes another value than its own back, at its next look at the node: " +
	"write the ratio into resource-amplification-config of slo-controller-config, for some nodes into its nodeConfigs"

// told reports whether an update writes a ratio of its own.
func told(now, was map[string]string) bool {
	const key = protocol.AnnotationAmplificationRatio
	return now[key] != "" && now[key] != was[key]
}

// Check says what is wrong with what somebody writes about a node's amplification. Only what is new or changed is looked at.
func Check(now, was map[string]string) []string {
	changed := func(key string) (string, bool) {
		value, ok := now[key]
		old, had := was[key]
		return value, ok && (!had || old != value)
	}
	var out []string
	if text, ok := changed(protocol.AnnotationAmplificationRatio); ok {
		if _, err := protocol.ParseAmplification(text); err != nil {
			out = append(out, fmt.Sprintf(`annotation %s: %v: write ratios by resource, as {"cpu":1.5}`, protocol.AnnotationAmplificationRatio, err))
		}
	}
	if text, ok := changed(protocol.AnnotationRawAllocatable); ok {
		var raw corev1.ResourceList
		if err := quantity.Unmarshal([]byte(text), &raw); err != nil {
			out = append(out, fmt.Sprintf("annotation %s: no list of resources: koord-manager writes it, leave it out", protocol.AnnotationRawAllocatable))
		}
	}
	return out
}
