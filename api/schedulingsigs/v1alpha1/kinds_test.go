// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	quota := apitest.Whole[v1alpha1.ElasticQuota](t, "testdata/elasticquota.yaml")
	if quota.Spec.Hard.Cpu().Value() != 100 || quota.Status.Used.Cpu().Value() != 120 {
		t.Errorf("%+v", quota)
	}
	group := apitest.Whole[v1alpha1.PodGroup](t, "testdata/podgroup.yaml")
	if group.Spec.MinMember != 4 || *group.Spec.ScheduleTimeoutSeconds != 60 || group.Status.Phase != v1alpha1.PodGroupRunning {
		t.Errorf("%+v", group)
	}
	apitest.Copied(t, &v1alpha1.ElasticQuotaList{Items: []v1alpha1.ElasticQuota{*quota}})
	apitest.Copied(t, &v1alpha1.PodGroupList{Items: []v1alpha1.PodGroup{*group}})
	apitest.Scheme(t, v1alpha1.AddToScheme, v1alpha1.GroupVersion, "ElasticQuota", "PodGroup")
}

// TestNewElasticQuota: the object of another group is left as it is, and nothing of the server is carried over.
func TestNewElasticQuota(t *testing.T) {
	t.Parallel()
	from := apitest.Read[v1alpha1.ElasticQuota](t, "testdata/elasticquota.yaml")
	from.UID, from.ResourceVersion = "u", "7"
	kept := from.DeepCopy()
	got := v1alpha1.NewElasticQuota("quota.koordinator.sh", from.ObjectMeta, from.Spec)
	if got.UID != "" || got.ResourceVersion != "" || got.Name != "team-a-quota" || got.Labels[v1alpha1.LabelProjectedFrom] != "quota.koordinator.sh" {
		t.Errorf("%+v", got.ObjectMeta)
	}
	got.Spec.Min["cpu"] = resource.MustParse("1")
	if d := cmp.Diff(kept, from); d != "" {
		t.Errorf("the original was changed: %s", d)
	}
}
