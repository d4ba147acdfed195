// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha2_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/topology/v1alpha2"
)

func TestNodeResourceTopology(t *testing.T) {
	t.Parallel()
	o := apitest.Whole[v1alpha2.NodeResourceTopology](t, "testdata/noderesourcetopology.yaml")
	if r := o.Zones[0].Resources[0]; r.Name != "cpu" || r.Available.MilliValue() != 15500 {
		t.Errorf("%+v", r)
	}
	apitest.Copied(t, &v1alpha2.NodeResourceTopologyList{Items: []v1alpha2.NodeResourceTopology{*o}})
	apitest.Scheme(t, v1alpha2.AddToScheme, v1alpha2.GroupVersion, "NodeResourceTopology")
}

// TestReadsOlder: what v1alpha1 wrote is readable here, without a word lost.
func TestReadsOlder(t *testing.T) {
	t.Parallel()
	apitest.Same[v1alpha2.NodeResourceTopology](t, "../v1alpha1/testdata/noderesourcetopology.yaml")
}
