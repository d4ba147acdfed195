// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package profiles makes values of policy/profile from the objects of the API: profiles and selectors.
//
// Inputs are stored objects, which are not changed; outputs share their maps, and nobody may write to these. Two need them: admission
// of new pods, and the controller that applies profiles again. It must not import client-go or controller-runtime.
package profiles

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// Of is a profile without its patch, which needs the schema of a pod.
func Of(o *configv1alpha1.ClusterColocationProfile) profile.Profile {
	s := &o.Spec
	_, keep := o.Annotations[protocol.AnnotationSkipUpdateResources]
	out := profile.Profile{
		Name: o.Name, Namespaces: Selector(s.NamespaceSelector), Pods: Selector(s.Selector), KeepResources: keep,
		Labels: s.Labels, Annotations: s.Annotations, LabelKeysMapping: s.LabelKeysMapping,
		AnnotationKeysMapping: s.AnnotationKeysMapping, LabelSuffixes: s.LabelSuffixes, SchedulerName: s.SchedulerName,
		QoSClass: s.QoSClass, PriorityClassName: s.PriorityClassName, KoordinatorPriority: s.KoordinatorPriority,
		Patched: len(s.Patch.Raw) > 0,
	}
	if s.Probability != nil {
		out.Probability = s.Probability.String()
	}
	return out
}

// Selector is a label selector, nil for none.
func Selector(s *metav1.LabelSelector) *profile.Selector {
	if s == nil {
		return nil
	}
	out := &profile.Selector{Labels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		out.Expressions = append(out.Expressions, profile.Expression{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
	}
	return out
}
