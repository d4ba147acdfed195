// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package slo

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// ErrInvalid is wrapped by errors about an object's values; what it said before stays in force.
var ErrInvalid = errors.New("invalid object")

// NodeSLO is the object as it is stored, in the user's spelling.
type NodeSLO struct {
	APIVersion string        `json:"apiVersion,omitempty"`
	Kind       string        `json:"kind,omitempty"`
	Metadata   Meta          `json:"metadata"`
	Spec       strategy.Wire `json:"spec"`
	Status     NodeSLOStatus `json:"status,omitzero"`
}

// NodeSLOStatus is what the node says of its strategy.
type NodeSLOStatus struct {
	// ObservedGeneration is the generation of the spec that is in force on the node.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// NodeMetric holds, in the documents' spelling, when it was put in force.
	NodeMetric *Applied `json:"nodeMetric,omitempty"`
	// Conditions has one entry per feature, in a fixed order.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Applied is the documents' status.nodeMetric of a NodeSLO.
type Applied struct {
	// UpdateTime is when the strategy, or the state of a feature, was last put in force or changed.
	UpdateTime Time `json:"updateTime"`
}

// Condition is one condition in the form of metav1.Condition.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	LastTransitionTime Time   `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// Status of a condition.
const (
	ConditionTrue    = "True"
	ConditionFalse   = "False"
	ConditionUnknown = "Unknown"
)

// Strategy is what a NodeSLO wants of the node.
type Strategy struct {
	// UID tells an object from another of the same name; Generation grows with its spec.
	UID        string
	Generation int64
	// Spec is in canonical spelling, without defaults, and within its ranges.
	Spec strategy.Spec
	// Conflicts are fields set in both spellings with different values: the canonical one counts.
	Conflicts []strategy.Conflict
	// Overrides are the fields that are not the cluster's; nil where the object does not tell.
	Overrides *Overrides
}

// DecodeNodeSLO reads a stored NodeSLO in either spelling. Unknown fields are passed over: the cluster may be newer than
// the node. A value of the wrong form or out of its range makes the object [ErrInvalid], never a part of it.
func DecodeNodeSLO(raw []byte) (Strategy, error) {
	var o NodeSLO
	if err := json.Unmarshal(raw, &o); err != nil {
		return Strategy{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	spec, conflicts := strategy.NormaliseCanonical(o.Spec)
	if errs := strategy.Validate(spec); len(errs) > 0 {
		return Strategy{}, fmt.Errorf("%w: %w", ErrInvalid, errors.Join(errs...))
	}
	return Strategy{
		UID: o.Metadata.UID, Generation: o.Metadata.Generation, Spec: spec, Conflicts: conflicts,
		Overrides: overridesOf(raw, o.Spec, conflicts),
	}, nil
}
