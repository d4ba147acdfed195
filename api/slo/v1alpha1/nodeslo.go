// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// NodeSLO is the strategy of the node of the same name. The manager writes it; a field that somebody else has written is an
// override for that node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=nslo,categories=koordinator
// +kubebuilder:printcolumn:name="In-Force",type="string",JSONPath=".status.conditions[?(@.type=='Applied')].status",description="Whether the node has put the strategy in force"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.nodeMetric.updateTime",description="When the node put it in force"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Applied')].message",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NodeSLO struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NodeSLOSpec `json:"spec,omitzero"`
	// +optional
	Status NodeSLOStatus `json:"status,omitzero"`
}

// NodeSLOList is a list of NodeSLO.
//
// +kubebuilder:object:root=true
type NodeSLOList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeSLO `json:"items"`
}

// NodeSLOSpec is the strategy in the user's spelling: what is stored is what was written.
//
// +kubebuilder:validation:XValidation:rule="!has(self.resourceUsedThresholdWithBE) || !has(self.resourceThresholdStrategy) || !has(self.resourceUsedThresholdWithBE.enable) || !has(self.resourceThresholdStrategy.enable) || self.resourceUsedThresholdWithBE.enable == self.resourceThresholdStrategy.enable",message="resourceUsedThresholdWithBE.enable and resourceThresholdStrategy.enable are two spellings of one field and differ; keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.resourceUsedThresholdWithBE) || !has(self.resourceThresholdStrategy) || !has(self.resourceThresholdStrategy.thresholds) || !has(self.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent) || !has(self.resourceThresholdStrategy.thresholds.cpu__dash__suppress__dash__percent) || self.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent == self.resourceThresholdStrategy.thresholds.cpu__dash__suppress__dash__percent",message="resourceUsedThresholdWithBE.cpuSuppressThresholdPercent and resourceThresholdStrategy.thresholds.cpu-suppress-percent are two spellings of one field and differ; keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.resourceUsedThresholdWithBE) || !has(self.resourceThresholdStrategy) || !has(self.resourceThresholdStrategy.thresholds) || !has(self.resourceUsedThresholdWithBE.cpuEvictPSIThresholdPercent) || !has(self.resourceThresholdStrategy.thresholds.cpu__dash__evict__dash__threshold__dash__percent) || self.resourceUsedThresholdWithBE.cpuEvictPSIThresholdPercent == self.resourceThresholdStrategy.thresholds.cpu__dash__evict__dash__threshold__dash__percent",message="resourceUsedThresholdWithBE.cpuEvictPSIThresholdPercent and resourceThresholdStrategy.thresholds.cpu-evict-threshold-percent are two spellings of one field and differ; keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.resourceUsedThresholdWithBE) || !has(self.resourceThresholdStrategy) || !has(self.resourceThresholdStrategy.thresholds) || !has(self.resourceUsedThresholdWithBE.memoryEvictThresholdPercent) || !has(self.resourceThresholdStrategy.thresholds.memory__dash__evict__dash__threshold__dash__percent) || self.resourceUsedThresholdWithBE.memoryEvictThresholdPercent == self.resourceThresholdStrategy.thresholds.memory__dash__evict__dash__threshold__dash__percent",message="resourceUsedThresholdWithBE.memoryEvictThresholdPercent and resourceThresholdStrategy.thresholds.memory-evict-threshold-percent are two spellings of one field and differ; keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.resourceUsedThresholdWithBE) || !has(self.resourceThresholdStrategy) || !has(self.resourceThresholdStrategy.thresholds) || !has(self.resourceUsedThresholdWithBE.memoryRequestUtilizationPercent) || !has(self.resourceThresholdStrategy.thresholds.memory__dash__request__dash__utilization__dash__percent) || self.resourceUsedThresholdWithBE.memoryRequestUtilizationPercent == self.resourceThresholdStrategy.thresholds.memory__dash__request__dash__utilization__dash__percent",message="resourceUsedThresholdWithBE.memoryRequestUtilizationPercent and resourceThresholdStrategy.thresholds.memory-request-utilization-percent are two spellings of one field and differ; keep one"
type NodeSLOSpec struct {
	strategy.Wire `json:",inline"`
}

// NodeSLOStatus is what the node says of its strategy; api/slo.NodeSLOStatus is what it writes.
type NodeSLOStatus struct {
	// ObservedGeneration is the generation of the spec that is in force on the node.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// NodeMetric says, in the documents' spelling, when it was put in force.
	// +optional
	NodeMetric *Applied `json:"nodeMetric,omitempty"`
	// Conditions: Applied, and one per feature with what the node makes of it and why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Applied is status.nodeMetric of a NodeSLO.
type Applied struct {
	// UpdateTime is when the strategy, or the state of a feature, was last put in force or changed.
	// +optional
	// +nullable
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`
}

// Canonical gives what the spec means, in canonical spelling and without defaults. Where the spellings differ (admission
// refuses that, but it may have been away) the canonical one counts and the conflict is listed.
func (s *NodeSLOSpec) Canonical() (strategy.Spec, []strategy.Conflict) {
	return strategy.NormaliseCanonical(s.Wire)
}

// NodeSLOSpecOf writes a canonical spec into an object; it shares memory with spec.
func NodeSLOSpecOf(spec strategy.Spec) NodeSLOSpec {
	return NodeSLOSpec{Wire: spec.Wire()}
}
