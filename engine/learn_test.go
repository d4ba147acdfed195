// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// What another writer has recorded since the start is learned, and a container that is listed again is read with it: the
// kubelet's update went by way of that writer.
func TestLearn(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	sb := r.pod(t, nil)
	const dir = "/kubepods/burstable/podu/c1"
	r.tree.Mkdir(t, dir)
	read := func(known ...*protocol.Applied) *workload.Container {
		c := container()
		c.ID, c.Cgroup, c.State = "c1", dir, workload.StateRunning
		for _, m := range known {
			if m.Base["cpu.quota"] == "70000" {
				c.Base.Quota = unit.Some(70000)
			}
		}
		return c
	}
	listed := []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1", Read: read}}}
	r.Add([]*workload.Pod{sb.Read()}, listed)
	if marks := r.Marked("c1"); len(marks) > 0 {
		t.Errorf("marks before: %+v", marks)
	}
	r.Learn(engine.NewPast([]journal.Record{{
		Target: plan.Target{Level: plan.LevelContainer, Container: "c1", Cgroup: dir}, Knob: "cpu.quota", Want: "90000", Base: "70000",
		Owner: "batch", Via: journal.ViaRuntime,
	}}))
	if marks := r.Marked("c1"); len(marks) != 1 || marks[0].Set["cpu.quota"] != "90000 batch" {
		t.Errorf("marks: %+v", marks)
	}
	r.Synchronize([]*workload.Pod{sb.Read()}, listed)
	if _, c, ok := r.Known("c1"); !ok || c.Base.Quota.V != 70000 {
		t.Errorf("the base is %+v", c.Base)
	}
}
