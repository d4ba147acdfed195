// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestZonesTellHugePages: by size, and what they take is not offered as memory; the kubelet keeps nothing of them.
func TestZonesTellHugePages(t *testing.T) {
	t.Parallel()
	in := topologyInput(t)
	in.HugePages = map[int][]HugePages{0: {{2 << 20, 4 * gib}, {gib, 0}}, 1: {{1 << 16, 1 << 20}, {gib, 100 * gib}}}
	in.Labels = map[string]string{protocol.LabelNUMAReservation: "true"}
	in.Kept = Figures{CPU: 1000, Memory: 2 * gib}
	got, err := BuildTopology(in)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]ZoneResource{
		{{"cpu", "2", "1500m", "1500m"}, {"memory", "60Gi", "59Gi", "59Gi"}, {"hugepages-2Mi", "4Gi", "4Gi", "4Gi"}, {"hugepages-1Gi", "0", "0", "0"}},
		{{"cpu", "2", "1500m", "1500m"}, {"memory", "0", "0", "0"}, {"hugepages-64Ki", "1Mi", "1Mi", "1Mi"}, {"hugepages-1Gi", "100Gi", "100Gi", "100Gi"}},
	}
	if d := cmp.Diff(want, [][]ZoneResource{got.Zones[0].Resources, got.Zones[1].Resources}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// What was set apart and is no longer is told to the object that knows it.
	before := got.Zones
	in.HugePages[0][0].Total = unit.Bytes(0)
	if got, err = BuildTopology(in); err != nil {
		t.Fatal(err)
	}
	if zones := got.zones(before); zones[0].Resources[2] != (ZoneResource{"hugepages-2Mi", "0", "0", "0"}) || zones[0].Resources[1].Capacity != "64Gi" {
		t.Errorf("%+v", zones[0].Resources)
	}
}
