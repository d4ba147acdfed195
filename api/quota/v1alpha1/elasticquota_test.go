// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

// TestCanonical: the documents' quotas are accepted strictly, and say the same in the canonical group.
func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"m11-elasticquota-team-a.yaml", "m12-elasticquota-critical.yaml", "m13-elasticquota-batch.yaml"} {
		q := apitest.Same[v1alpha1.ElasticQuota](t, "testdata/"+file, "apiVersion", "kind", "metadata", "spec")
		apitest.Copied(t, q)
		q.Labels, q.Annotations = map[string]string{"a": "b"}, map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "c": "d"}
		q.UID, q.ResourceVersion = "u", "1"
		got := q.Canonical()
		if got.APIVersion != "scheduling.sigs.k8s.io/v1alpha1" || got.Kind != "ElasticQuota" || got.Name != q.Name || got.Namespace != q.Namespace ||
			got.UID != "" || got.ResourceVersion != "" {
			t.Errorf("%s: %+v", file, got.ObjectMeta)
		}
		if d := cmp.Diff(map[string]string{"a": "b", sigsv1alpha1.LabelProjectedFrom: "quota.koordinator.sh"}, got.Labels); d != "" {
			t.Errorf("%s: labels %s", file, d)
		}
		if d := cmp.Diff(map[string]string{"c": "d"}, got.Annotations); d != "" || len(q.Annotations) != 2 || len(q.Labels) != 1 {
			t.Errorf("%s: annotations %s", file, d)
		}
		if d := cmp.Diff(q.Spec, got.Spec); d != "" || len(got.Spec.Min) == 0 || len(got.Spec.Max) == 0 {
			t.Errorf("%s: spec %s", file, d)
		}
	}
}

func TestScheme(t *testing.T) {
	t.Parallel()
	apitest.Scheme(t, v1alpha1.AddToScheme, v1alpha1.GroupVersion, "ElasticQuota", "ElasticQuotaProfile")
}

func TestElasticQuotaProfile(t *testing.T) {
	t.Parallel()
	o := apitest.Whole[v1alpha1.ElasticQuotaProfile](t, "testdata/elasticquotaprofile.yaml")
	if o.Spec.QuotaName != "pool-a" || *o.Spec.ResourceRatio != "0.9" || o.Spec.NodeSelector.MatchLabels["pool"] != "a" {
		t.Errorf("%+v", o.Spec)
	}
}
