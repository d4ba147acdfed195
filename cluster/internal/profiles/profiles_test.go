// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profiles_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/profiles"
	"github.com/koord-rt/koord-rt/policy/profile"
)

const whole = `
metadata: {name: spark, annotations: {config.koordinator.sh/skip-update-resources: ""}}
spec:
  namespaceSelector: {matchLabels: {pool: batch}}
  selector: {matchExpressions: [{key: app, operator: In, values: [spark, flink]}]}
  probability: 30%
  labels: {a: b}
  annotations: {c: d}
  labelKeysMapping: {e: f}
  annotationKeysMapping: {g: h}
  labelSuffixes: {i: -j}
  schedulerName: koord-scheduler
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 1000
  patch: {spec: {terminationGracePeriodSeconds: 30}}
`

// Every field of a profile comes from the object: one that is added to policy/profile and forgotten here is empty.
func TestOf(t *testing.T) {
	t.Parallel()
	var o configv1alpha1.ClusterColocationProfile
	if err := yaml.UnmarshalStrict([]byte(whole), &o); err != nil {
		t.Fatal(err)
	}
	got, priority := profiles.Of(&o), int32(1000)
	want := profile.Profile{
		Name:       "spark",
		Namespaces: &profile.Selector{Labels: map[string]string{"pool": "batch"}},
		Pods: &profile.Selector{Expressions: []profile.Expression{
			{Key: "app", Operator: "In", Values: []string{"spark", "flink"}},
		}},
		Probability: "30%", KeepResources: true,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, LabelKeysMapping: map[string]string{"e": "f"},
		AnnotationKeysMapping: map[string]string{"g": "h"}, LabelSuffixes: map[string]string{"i": "-j"}, SchedulerName: "koord-scheduler",
		QoSClass: "BE", PriorityClassName: "koord-batch", KoordinatorPriority: &priority, Patched: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	fields := reflect.ValueOf(got)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			t.Errorf("%s is not read", fields.Type().Field(i).Name)
		}
	}
}

// An empty profile has no selector, which is not the same as one that selects all.
func TestSelector(t *testing.T) {
	t.Parallel()
	if got := profiles.Of(&configv1alpha1.ClusterColocationProfile{}); !reflect.DeepEqual(got, profile.Profile{}) {
		t.Errorf("%+v", got)
	}
	if got := profiles.Selector(nil); got != nil {
		t.Errorf("%+v", got)
	}
	if got := profiles.Selector(&metav1.LabelSelector{}); got == nil || got.Labels != nil || got.Expressions != nil {
		t.Errorf("%+v", got)
	}
}
