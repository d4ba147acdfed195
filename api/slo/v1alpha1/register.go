// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/koord-rt/koord-rt/api/slo"
)

// GroupVersion is that of every kind here.
var GroupVersion = schema.GroupVersion{Group: slo.Group, Version: "v1alpha1"}

// AddToScheme registers the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeSLO{}, &NodeSLOList{}, &NodeMetric{}, &NodeMetricList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
