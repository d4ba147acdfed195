// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nodemetric

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/pernode"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

func policy(t *testing.T, data map[string]string) ownership.Tree {
	t.Helper()
	c, problems := config.Parse(data, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	rendered, _ := render(c, config.Node{Name: "node-001"})
	out, err := ownership.TreeOf(rendered)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRender(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]ownership.Tree{
		`{"enable": false}`: {"aggregateDurationSeconds": int64(300), "reportIntervalSeconds": int64(60), "nodeMemoryCollectPolicy": "usageWithoutPageCache",
			"nodeAggregatePolicy": ownership.Tree{"durations": []any{"5m0s", "10m0s", "30m0s"}}},
		`{"enable": true, "metricAggregateDurationSeconds": 120, "metricReportIntervalSeconds": 30, "metricMemoryCollectPolicy": "usageWithPageCache",
		  "metricAggregatePolicy": {"durations": ["15m"]}}`: {"aggregateDurationSeconds": int64(120), "reportIntervalSeconds": int64(30),
			"nodeMemoryCollectPolicy": "usageWithPageCache", "nodeAggregatePolicy": ownership.Tree{"durations": []any{"15m0s"}}},
	} {
		if got := policy(t, map[string]string{config.KeyColocation: text}); !reflect.DeepEqual(got, ownership.Tree{"metricCollectPolicy": want}) {
			t.Errorf("%s: have %v, want %v", text, got, want)
		}
	}
}

// TestDocumentsSpelling: the interval of a user's NodeMetric (M7) is an override of the report interval.
func TestDocumentsSpelling(t *testing.T) {
	t.Parallel()
	step, err := pernode.Plan(pernode.Found{Wanted: policy(t, nil), Alias: kind().Alias, Stored: &pernode.Stored{
		Spec: ownership.Tree{"nodeName": "node-001", "collectionIntervalSeconds": int64(90)},
		Managed: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(`{"f:spec": {"f:nodeName": {}, "f:collectionIntervalSeconds": {}}}`)}},
	}})
	if err != nil || step.Apply == nil {
		t.Fatal(step, err)
	}
	got := step.Apply.Object["spec"].(ownership.Tree)["metricCollectPolicy"].(ownership.Tree)
	if _, is := got["reportIntervalSeconds"]; is || got["aggregateDurationSeconds"] != int64(300) {
		t.Errorf("applies %v, want all but reportIntervalSeconds", got)
	}
}
