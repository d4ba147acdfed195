// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

func TestCompatFirstInstruction20(t *testing.T) { compatFirst(t, parts.Containerd20) }

func TestCompatFirstInstruction17(t *testing.T) { compatFirst(t, parts.Containerd17) }

func TestGuestCompat20FirstInstruction(t *testing.T) { compatFirstV2(t, parts.Containerd20) }

func TestGuestCompat17FirstInstruction(t *testing.T) { compatFirstV2(t, parts.Containerd17) }

// compatFirstV2 is the part of compatFirst that cgroup v2 makes different: its files are keys of the specification, which this NRI has to carry.
func compatFirstV2(t *testing.T, containerd string) {
	r := newRig(t, rigOptions{containerd: containerd})
	r.up(firsts, nil)
	for _, f := range r.firstTable() {
		r.seen(f)
	}
	r.carriesAllButScheduler()
}

// compatFirst is FirstInstruction, the same values with nothing left out, on a runtime with NRI 0.8. What that has no field for is written
// at StartContainer, when the container's process waits for runc to let it go: before its first instruction, too.
func compatFirst(t *testing.T, containerd string) {
	r := newRig(t, rigOptions{containerd: containerd})
	lifecycleFirstInstruction(r)
	r.carriesAllButScheduler()
}

// carriesAllButScheduler: of what a BE container gets, koord-nri writes the scheduling policy alone, and the first instruction finds it.
// An LS container on cgroup v1 has its burst so as well, with every runtime: no specification has a field for it.
func (r *rig) carriesAllButScheduler() {
	r.t.Helper()
	run := r.pod(r.tells(bePod("first-old")))
	r.told(run, "@sched", "5", wants("BE", ""))
	if got, want := r.writtenAtStart(run), []string{plan.SchedPolicy.String()}; !slices.Equal(got, want) {
		r.t.Errorf("of a BE container %q were written at its start, want %q: the runtime has no scheduler field, and carries all else", got, want)
	}
}

// writtenAtStart are the knobs of a container that koord-nri has written itself. A repair's look at what stands already is recorded, too, without
// a write.
func (r *rig) writtenAtStart(run *kubelet.Running) []string {
	r.t.Helper()
	records, _, err := ledger.ReadAll(r.run)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, rec := range records {
		if rec.Target.Container == run.Containers["main"] && rec.Via == journal.ViaDirect && len(rec.Written) > 0 && !slices.Contains(out, rec.Knob) {
			out = append(out, rec.Knob)
		}
	}
	slices.Sort(out)
	return out
}
