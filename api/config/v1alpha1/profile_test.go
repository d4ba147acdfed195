// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/config/v1alpha1"
)

func TestClusterColocationProfile(t *testing.T) {
	t.Parallel()
	o := apitest.Whole[v1alpha1.ClusterColocationProfile](t, "testdata/clustercolocationprofile.yaml")
	if o.Spec.Probability.String() != "50%" || *o.Spec.KoordinatorPriority != 1000 {
		t.Errorf("%+v", o.Spec)
	}
	// The patch is kept as it was written: what it may hold is the pod's affair.
	if got := string(o.Spec.Patch.Raw); got != `{"spec":{"terminationGracePeriodSeconds":30}}` {
		t.Errorf("patch %s", got)
	}
	apitest.Copied(t, &v1alpha1.ClusterColocationProfileList{Items: []v1alpha1.ClusterColocationProfile{*o}})
	apitest.Scheme(t, v1alpha1.AddToScheme, v1alpha1.GroupVersion, "ClusterColocationProfile")
}
