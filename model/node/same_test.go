// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package node_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Every field of the dynamic state is compared but the one that says until when it holds, also those that come later.
func TestSame(t *testing.T) {
	t.Parallel()
	full := func() node.Dynamic {
		return node.Dynamic{
			Known: true, Expires: time.Unix(1, 0), BECPUs: topo.Range(0, 1), BESharesLSR: true, BEQuota: true,
			SharePools: []node.Pool{{CPUs: topo.Range(0, 3)}}, BESharePools: []node.Pool{{Node: 1}}, SystemQoS: topo.CPUs(4),
			SystemQoSExclusive: true, Normalization: 120,
			Quotas:     map[string]node.QuotaLoop{"pod": {Factors: map[string]unit.Fraction{"c": 1.2}, Plus: 40000, Cap: 500}},
			MemoryHigh: map[string]node.MemoryHigh{"c": {Bytes: 1 << 30, Reason: "tight"}},
			OOMScores:  map[string]node.OOMScore{"c": {Score: 943, Reason: "near"}},
			DiskLimits: map[string]node.DiskLimit{"pod": {Read: 1 << 20, Write: 2 << 20}},
			Network:    node.Network{Limited: "no ingress"},
		}
	}
	one, other := full(), full()
	if !one.Same(&other) {
		t.Error("two equal ones differ")
	}
	for i := range reflect.TypeFor[node.Dynamic]().NumField() {
		name := reflect.TypeFor[node.Dynamic]().Field(i).Name
		changed := full()
		f := reflect.ValueOf(&changed).Elem().Field(i)
		if f.IsZero() {
			t.Errorf("%s is not set in this test", name)
		}
		f.SetZero()
		if same := one.Same(&changed); same != (name == "Expires") {
			t.Errorf("without %s: same is %v", name, same)
		}
	}
	for name, loop := range map[string]node.QuotaLoop{
		"factor": {Factors: map[string]unit.Fraction{"c": 1.3}, Plus: 40000, Cap: 500},
		"plus":   {Factors: map[string]unit.Fraction{"c": 1.2}, Plus: 40001, Cap: 500},
		"cap":    {Factors: map[string]unit.Fraction{"c": 1.2}, Plus: 40000, Cap: 501},
	} {
		if changed := full(); one.Same(func() *node.Dynamic { changed.Quotas["pod"] = loop; return &changed }()) {
			t.Errorf("another %s counts as the same", name)
		}
	}
	reason := full()
	reason.MemoryHigh["c"], reason.OOMScores["c"] = node.MemoryHigh{Bytes: 1 << 30, Reason: "another"}, node.OOMScore{Score: 943, Reason: "another"}
	if !one.Same(&reason) {
		t.Error("another reason counts as another decision")
	}
}

// Whatever differs between two states is in the reach, also of fields that come later: without a line of its own a field would be
// forgotten here.
func TestReach(t *testing.T) {
	t.Parallel()
	full := func() node.Dynamic {
		return node.Dynamic{
			Known: true, Expires: time.Unix(1, 0), BECPUs: topo.Range(0, 1), BESharesLSR: true, BEQuota: true,
			SharePools: []node.Pool{{CPUs: topo.Range(0, 3)}}, BESharePools: []node.Pool{{Node: 1}}, SystemQoS: topo.CPUs(4),
			SystemQoSExclusive: true, Normalization: 120,
			Quotas:     map[string]node.QuotaLoop{"a": {Cap: 500}, "b": {Plus: 40000}},
			MemoryHigh: map[string]node.MemoryHigh{"c": {Bytes: 1 << 30}, "d": {Bytes: 1 << 20}},
			OOMScores:  map[string]node.OOMScore{"f": {Score: 943}},
			DiskLimits: map[string]node.DiskLimit{"e": {Read: 1, Write: 1}},
			Network:    node.Network{Limited: "no ingress"},
		}
	}
	none := node.Reach{Pods: map[string]bool{}, Containers: map[string]bool{}}
	one := full()
	for i := range reflect.TypeFor[node.Dynamic]().NumField() {
		name := reflect.TypeFor[node.Dynamic]().Field(i).Name
		changed, want := full(), none
		reflect.ValueOf(&changed).Elem().Field(i).SetZero()
		switch name {
		case "Expires", "Network": // the latter is for people, and for no container
		case "BECPUs", "BESharesLSR":
			want.BestEffort = true
		case "Quotas":
			want.Pods = map[string]bool{"a": true, "b": true}
		case "DiskLimits":
			want.Pods = map[string]bool{"e": true}
		case "MemoryHigh":
			want.Containers = map[string]bool{"c": true, "d": true}
		case "OOMScores":
			want.Containers = map[string]bool{"f": true}
		default:
			want.Everybody = true
		}
		for _, got := range []node.Reach{one.Reach(&changed), changed.Reach(&one)} {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("without %s: %+v, want %+v", name, got, want)
			}
		}
	}
	changed, want := full(), none
	changed.Quotas["a"], changed.MemoryHigh["d"] = node.QuotaLoop{Cap: 400}, node.MemoryHigh{Bytes: 1, Reason: "x"}
	changed.MemoryHigh["c"] = node.MemoryHigh{Bytes: 1 << 30, Reason: "another"}
	want.Pods, want.Containers = map[string]bool{"a": true}, map[string]bool{"d": true}
	if got := one.Reach(&changed); !reflect.DeepEqual(got, want) {
		t.Errorf("single values: %+v, want %+v", got, want)
	}
}
