// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	"github.com/koord-rt/koord-rt/api/apitest"
)

func TestRecommendation(t *testing.T) {
	t.Parallel()
	o := apitest.Whole[v1alpha1.Recommendation](t, "testdata/recommendation.yaml")
	if c := o.Status.PodStatus.ContainerStatuses[0]; c.ContainerName != "app" || c.Resources.Cpu().MilliValue() != 1500 {
		t.Errorf("%+v", c)
	}
	if target := o.Spec.Target; target.Type != v1alpha1.TargetWorkload || target.Workload.Name != "web" {
		t.Errorf("%+v", target)
	}
	apitest.Copied(t, &v1alpha1.RecommendationList{Items: []v1alpha1.Recommendation{*o}})
	apitest.Scheme(t, v1alpha1.AddToScheme, v1alpha1.GroupVersion, "Recommendation")
}
