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
			Known: true, Expires: time.Unix(1, 0), BECPUs: topo.Range(0, 1), BESharesLSR: true,
			SharePools: []node.Pool{{CPUs: topo.Range(0, 3)}}, BESharePools: []node.Pool{{Node: 1}}, SystemQoS: topo.CPUs(4),
			SystemQoSExclusive: true, Normalization: 120,
			Quotas:     map[string]node.QuotaLoop{"pod": {Factors: map[string]unit.Fraction{"c": 1.2}, Plus: 40000, Cap: 500}},
			MemoryHigh: map[string]node.MemoryHigh{"c": {Bytes: 1 << 30, Reason: "tight"}},
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
	reason.MemoryHigh["c"] = node.MemoryHigh{Bytes: 1 << 30, Reason: "another"}
	if !one.Same(&reason) {
		t.Error("another reason counts as another decision")
	}
}
