// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nodeslo

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/pernode"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// spec is what a cluster of this ConfigMap wants of a node.
func spec(t *testing.T, data map[string]string) ownership.Tree {
	t.Helper()
	c, problems := config.Parse(data, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	rendered, problems := render(c, config.Node{Name: "node-1"})
	out, err := ownership.TreeOf(rendered)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	return out
}

func TestRender(t *testing.T) {
	t.Parallel()
	if got := spec(t, nil); len(got) != 0 {
		t.Errorf("a cluster that says nothing wants %v", got)
	}
	got := spec(t, map[string]string{
		config.KeyThreshold:       `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60}}`,
		config.KeyQOS:             `{"clusterStrategy": {"beClass": {"blkIOQOS": {"enable": true}, "networkQOS": {"egressLimit": "1G", "ingressLimit": 50}}}}`,
		config.KeyHostApplication: `{"applications": [{"name": "nginx"}]}`,
		config.KeySystem:          `{"clusterStrategy": {"totalNetworkBandwidth": "10G"}}`,
	})
	want := ownership.Tree{
		"resourceUsedThresholdWithBE": ownership.Tree{"enable": true, "cpuSuppressThresholdPercent": int64(60)},
		"resourceQOSStrategy": ownership.Tree{"beClass": ownership.Tree{
			"blkioQOS":   ownership.Tree{"enable": true},
			"networkQOS": ownership.Tree{"egressLimit": "1G", "ingressLimit": int64(50)},
		}},
		"hostApplications": []any{ownership.Tree{"name": "nginx"}},
		"systemStrategy":   ownership.Tree{"totalNetworkBandwidth": "10G"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %v\nwant %v", got, want)
	}
}

// TestSpellings: every field with two spellings has its other name here, and no other; a field that is written in the seed's
// spelling is one that the manager leaves alone.
func TestSpellings(t *testing.T) {
	t.Parallel()
	yes, n := true, int64(7)
	wire := strategy.Wire{ResourceThresholdStrategy: &strategy.WireThreshold{Enable: &yes, Thresholds: &strategy.Thresholds{}}}
	thresholds := reflect.ValueOf(wire.ResourceThresholdStrategy.Thresholds).Elem()
	for i := range thresholds.NumField() {
		thresholds.Field(i).Set(reflect.ValueOf(&n))
	}
	seed, err := ownership.TreeOf(wire)
	if err != nil {
		t.Fatal(err)
	}
	canonicalSpec, conflicts := strategy.NormaliseCanonical(wire)
	same, err := ownership.TreeOf(canonicalSpec)
	if err != nil || len(conflicts) > 0 {
		t.Fatal(err, conflicts)
	}
	got := map[ownership.Path]any{}
	for p, v := range ownership.Leaves(seed) {
		for _, other := range canonical(p) {
			got[other] = v
		}
	}
	if want := ownership.Leaves(same); !reflect.DeepEqual(got, want) || len(got) != len(spellings) {
		t.Errorf("have %v\nwant %v", got, want)
	}
	for p, want := range map[ownership.Path]ownership.Path{
		"/resourceQOSStrategy/beClass/blkIOQOS/enable": "/resourceQOSStrategy/beClass/blkioQOS", "/resourceQOSStrategy/lsClass/blkIOQOS": "/resourceQOSStrategy/lsClass/blkioQOS",
	} {
		if other := canonical(p); len(other) != 1 || other[0] != want {
			t.Errorf("%s is called %v, want %s", p, other, want)
		}
	}
	if other := canonical("/resourceQOSStrategy/beClass/blkioQOS/enable"); other != nil {
		t.Errorf("a canonical field is called %v", other)
	}
}

// TestOverride: a user's NodeSLO of the documents overrides the cluster's strategy field by field, and the rest is added to it.
func TestOverride(t *testing.T) {
	t.Parallel()
	k := kind()
	wanted := spec(t, map[string]string{
		config.KeyThreshold: `{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60, "memoryEvictThresholdPercent": 70}}`,
		config.KeyBurst:     `{"clusterStrategy": {"policy": "auto"}}`,
	})
	var stored strategy.Wire
	if err := json.Unmarshal([]byte(`{"resourceThresholdStrategy": {"enable": true, "thresholds": {"cpu-suppress-percent": 65}}}`), &stored); err != nil {
		t.Fatal(err)
	}
	tree, err := ownership.TreeOf(stored)
	if err != nil {
		t.Fatal(err)
	}
	step, err := pernode.Plan(pernode.Found{Wanted: wanted, Alias: k.Alias, Stored: &pernode.Stored{Spec: tree, Managed: []metav1.ManagedFieldsEntry{{
		Manager: "kubectl-client-side-apply", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(
			`{"f:spec": {".": {}, "f:resourceThresholdStrategy": {".": {}, "f:enable": {}, "f:thresholds": {".": {}, "f:cpu-suppress-percent": {}}}}}`),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := ownership.Tree{"resourceUsedThresholdWithBE": ownership.Tree{"memoryEvictThresholdPercent": int64(70)},
		"cpuBurstStrategy": ownership.Tree{"policy": "auto"}}
	if step.Apply == nil || !reflect.DeepEqual(step.Apply.Object["spec"], want) {
		t.Errorf("applies %v, want %v", step.Apply, want)
	}
}
