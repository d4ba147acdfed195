// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/topology/v1alpha1"
)

func TestNodeResourceTopology(t *testing.T) {
	t.Parallel()
	o := apitest.Whole[v1alpha1.NodeResourceTopology](t, "testdata/noderesourcetopology.yaml")
	if r := o.Zones[0].Resources[0]; r.Name != "cpu" || r.Available.MilliValue() != 15500 {
		t.Errorf("%+v", r)
	}
	apitest.Copied(t, &v1alpha1.NodeResourceTopologyList{Items: []v1alpha1.NodeResourceTopology{*o}})
	apitest.Scheme(t, v1alpha1.AddToScheme, v1alpha1.GroupVersion, "NodeResourceTopology")
}
