// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nodemetric

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
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
		if got := policy(t, map[string]string{config.KeyColocation: text}); !reflect.DeepEqual(got, ownership.Tree{"nodeName": "node-001", "metricCollectPolicy": want}) {
			t.Errorf("%s: have %v, want %v", text, got, want)
		}
	}
}

// TestDocumentsSpelling: the interval of a user's NodeMetric (M7) is an override of the report interval, of a cluster's other one as of an
// equal one; what else the strategy says is applied beside it. Once it is taken back, the cluster's interval and the node's name are filled in.
func TestDocumentsSpelling(t *testing.T) {
	t.Parallel()
	stored, err := ownership.TreeOf(apitest.Read[v1alpha1.NodeMetric](t, "../../../api/slo/testdata/m07-nodemetric.yaml").Spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := (ownership.Tree{"nodeName": "node-001", "collectionIntervalSeconds": int64(60)}); !reflect.DeepEqual(stored, want) {
		t.Fatalf("M7 is %v", stored)
	}
	users := []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: metav1.NewFieldsV1(`{"f:spec": {"f:nodeName": {}, "f:collectionIntervalSeconds": {}}}`)}}
	for text, seconds := range map[string]int64{`{}`: 60, `{"metricReportIntervalSeconds": 30}`: 30} {
		wanted := policy(t, map[string]string{config.KeyColocation: text})
		plan := func(s *pernode.Stored) ownership.Tree {
			t.Helper()
			step, err := pernode.Plan(pernode.Found{Wanted: wanted, Alias: kind().Alias, Stored: s})
			if err != nil || step.Apply == nil {
				t.Fatal(step, err)
			}
			return step.Apply.Object["spec"].(ownership.Tree)
		}
		want := ownership.Tree{"metricCollectPolicy": ownership.Tree{"aggregateDurationSeconds": int64(300), "nodeMemoryCollectPolicy": "usageWithoutPageCache",
			"nodeAggregatePolicy": ownership.Tree{"durations": []any{"5m0s", "10m0s", "30m0s"}}}}
		if got := plan(&pernode.Stored{Spec: stored, Managed: users}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: applies %v beside M7, want %v", text, got, want)
		}
		want["nodeName"], want["metricCollectPolicy"].(ownership.Tree)["reportIntervalSeconds"] = "node-001", seconds
		if got := plan(&pernode.Stored{Spec: ownership.Tree{}}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: applies %v without it, want %v", text, got, want)
		}
	}
}
