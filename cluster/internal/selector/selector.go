// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package selector says what is wrong with a label selector.
//
// Input is a selector as an object has it, output an error whose text depends on the selector alone: webhooks compare problems by their
// texts to let an object change of which something was wrong before. It imports k8s.io/apimachinery and the standard library only.
package selector

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Check is nil for a selector that can be used, and for none. Of several things that are wrong it names always the same one: the library
// names the label that it comes across first in a map.
func Check(s *metav1.LabelSelector) error {
	if s == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if _, err := labels.NewRequirement(key, selection.Equals, []string{s.MatchLabels[key]}); err != nil {
			return err
		}
	}
	_, err := metav1.LabelSelectorAsSelector(s)
	return err
}
