// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package selector_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/cluster/internal/selector"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	bad := map[string]string{"-": "x", "_": "y", "+": "z", "app": "web"}
	for range 50 { // a map has another order each time
		if err := selector.Check(&metav1.LabelSelector{MatchLabels: bad}); err == nil || !strings.Contains(err.Error(), `"+"`) {
			t.Fatalf("got %v, want the first of the labels by its name", err)
		}
	}
	for name, s := range map[string]*metav1.LabelSelector{
		"none": nil, "empty": {}, "labels": {MatchLabels: map[string]string{"app": "web"}},
		"expression": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}},
	} {
		if err := selector.Check(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, s := range map[string]*metav1.LabelSelector{
		"value":      {MatchLabels: map[string]string{"app": "a b"}},
		"expression": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}},
	} {
		if err := selector.Check(s); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
