// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feed_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine/feed"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// untold is a runtime that tells the pods' resources for those named "told" only.
type untold struct{ records }

func (*untold) Sandbox(_ context.Context, id string) (*workload.Pod, error) {
	p := &workload.Pod{ID: id, UID: id}
	p.Place("/kubepods/burstable/pod"+id, nil)
	if p.BaseUntold = id != "told"; !p.BaseUntold {
		p.Base.Quota = unit.Some(7000)
	}
	return p, nil
}

func (*untold) Record(_ context.Context, id string) (feed.Record, error) {
	return func(...*protocol.Applied) *workload.Container {
		c := &workload.Container{ID: id, State: workload.StateRunning, Base: workload.Resources{
			Quota: unit.Some(20000), Period: unit.Some(50000), MemoryLimit: unit.Some(1 << 20),
		}}
		if id == "b2" {
			c.Base = workload.Resources{MemoryLimit: unit.Some(1 << 20)}
		}
		return c
	}, nil
}

// A pod whose resources the runtime does not tell has the sum of its containers'; one that is told keeps its own.
func TestListSums(t *testing.T) {
	t.Parallel()
	g := newEngine(t)
	r := &untold{}
	const running = workload.StateRunning
	r.put("a", true, map[string]workload.State{"a1": running, "a2": running})
	r.put("b", true, map[string]workload.State{"b1": running, "b2": running})
	r.put("told", true, map[string]workload.State{"c1": running})
	if _, err := (&feed.Lister{Engine: g, Runtime: r}).List(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	got := map[string]workload.Resources{}
	for _, id := range []string{"a", "b", "told"} {
		if p, ok := g.KnownPod(id); ok {
			got[id] = p.Base
		}
	}
	want := map[string]workload.Resources{
		"a":    {Quota: unit.Some(40000), Period: unit.Some(50000), MemoryLimit: unit.Some(2 << 20)},
		"b":    {MemoryLimit: unit.Some(2 << 20)},
		"told": {Quota: unit.Some(7000)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
