// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// books is a kernel with resctrl that keeps what has ended.
type books struct {
	wishes
	ended []string
}

// Forget implements Kernel.
func (k *books) Forget(targets ...plan.Target) error {
	for _, t := range targets {
		k.ended = append(k.ended, t.Cgroup)
	}
	return nil
}

// EnsureGroup implements Groups.
func (*books) EnsureGroup(string) (bool, error) { return false, nil }

// RemoveGroup implements Groups.
func (k *books) RemoveGroup(name string) error {
	k.ended = append(k.ended, "removed "+name)
	return nil
}

// RemoveMon implements Groups.
func (k *books) RemoveMon(group, mon string) error {
	k.ended = append(k.ended, "counted "+group+"/"+mon)
	return nil
}

// Groups and MonGroups implement Groups.
func (*books) Groups() ([]string, error)          { return nil, nil }
func (*books) MonGroups(string) ([]string, error) { return nil, nil }

// listed is a container of a pod as a list tells it.
func listed(pod *workload.Pod) Listed {
	id := "c-" + pod.ID
	return Listed{Sandbox: pod.ID, Arrival: Arrival{ID: id, Read: func(...*protocol.Applied) *workload.Container {
		return &workload.Container{ID: id, Name: "app", Cgroup: pod.Cgroup + "/" + id, State: workload.StateRunning}
	}}}
}

// What a list lacks because it is being created, and what has started since, is not gone: the ledger keeps its books, and the pod its
// group. What has not come back is.
func TestListLacksWhatIsCreated(t *testing.T) {
	t.Parallel()
	g, _ := protector(t, nil, nil)
	k := &books{}
	g.o.Kernel, g.o.Groups = k, k
	back, away := lsr("back"), lsr("away")
	g.Synchronize([]*workload.Pod{back, away}, []Listed{listed(back), listed(away)})
	for _, id := range []string{"back", "away"} {
		g.reg.changePod(id, func(e *podEntry) { e.group = "of-" + id })
		g.reg.changeContainer("c-"+id, func(e *entry) {
			e.plan = append(e.plan, plan.Setting{Knob: plan.RDTMonGroup, Value: plan.Text("counts-" + id)}, plan.Setting{Knob: plan.RDTClass, Value: plan.Text("LSR")})
		})
	}
	g.Synchronize(nil, nil)
	if err := g.Start(t.Context(), Sandbox{ID: back.ID, Read: func() *workload.Pod { return back }}, listed(back).Arrival, 1, ""); err != nil {
		t.Fatal(err)
	}
	g.drain()
	if diff := cmp.Diff([]string{"counted LSR/counts-away", "/kubepods/podaway/c-away", "removed of-away", "of-away", "/kubepods/podaway"}, k.ended); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list that was asked for while others tell of pods and containers, too, says nothing of those that have come since: the ledger keeps
// its books, and what was said of them holds. Failed proofs go with those that are gone.
func TestListIsOlderThanWhatIsTold(t *testing.T) {
	t.Parallel()
	g, _ := protector(t, nil, nil)
	k := &books{}
	g.o.Kernel, g.o.Groups = k, k
	begin := func(pod *workload.Pod) {
		start(g, Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}, listed(pod).Arrival)
		g.drain()
	}
	kept, away, listedToo, since := lsr("kept"), lsr("away"), lsr("listed"), lsr("since")
	begin(kept)
	begin(away)
	before := g.Roll()
	begin(listedToo)
	begin(since)
	for _, id := range []string{"kept", "away", "listed", "since"} {
		g.stats.keepProof("c-"+id, status.ProofFailure{})
	}
	g.SynchronizeSince(before, []*workload.Pod{kept, listedToo}, []Listed{listed(kept), listed(listedToo)})
	g.drain()
	if diff := cmp.Diff([]string{"/kubepods/podaway/c-away", "/kubepods/podaway"}, k.ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
	for id, pid := range map[string]int{"kept": 0, "listed": 7, "since": 7} { // a list tells no process
		pod, c, known := g.Known("c-" + id)
		if !known || pod.ID != id || c.PID != pid || len(g.reg.membersOf(id)) != 1 {
			t.Errorf("%s: known %v: %+v", id, known, c)
		}
	}
	if diff := cmp.Diff([]string{"c-kept", "c-listed", "c-since"}, slices.Sorted(maps.Keys(g.Status().ProofFailures))); diff != "" {
		t.Errorf("failed proofs (-want +got):\n%s", diff)
	}
	g.RemovePod("since")
	g.drain()
	if _, left := g.Status().ProofFailures["c-since"]; left {
		t.Error("the proof of a container that went with its pod is still told")
	}
}
