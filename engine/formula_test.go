// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// proofs is a kernel that keeps whether the formula was known when something was first proved.
type proofs struct {
	engine.Kernel
	mu      sync.Mutex
	learned []unit.WeightFormula
	early   bool
}

func (p *proofs) learn(f unit.WeightFormula) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learned = append(p.learned, f)
}

func (p *proofs) Verify(pl plan.Plan) []apply.Mismatch {
	p.mu.Lock()
	p.early = p.early || len(p.learned) == 0
	p.mu.Unlock()
	return p.Kernel.Verify(pl)
}

// The formula is known before the node's first container is proved, and before what runs already is repaired.
func TestFormulaIsLearnedFirst(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/burstable/podu/c1"
	for name, first := range map[string]func(*rig, engine.Sandbox){
		"start": func(r *rig, sb engine.Sandbox) {
			must(t, r.Start(t.Context(), sb, engine.Arrival{ID: "c1", Read: readC1(dir, workload.StateCreated)}, 0, ""))
		},
		"synchronize": func(r *rig, sb engine.Sandbox) {
			r.Synchronize([]*workload.Pod{sb.Read()}, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1", Read: readC1(dir, workload.StateRunning)}}})
		},
		"add": func(r *rig, sb engine.Sandbox) {
			r.Add([]*workload.Pod{sb.Read()}, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1", Read: readC1(dir, workload.StateRunning)}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kernel := &proofs{}
			r := newRig(t, 0, func(o *engine.Options) {
				kernel.Kernel = o.Kernel
				o.Kernel, o.OnFormula = kernel, kernel.learn
			})
			sb := r.pod(t, nil)
			r.tree.Mkdir(t, dir)
			r.tree.Set(t, dir, "cpu.weight", strconv.Itoa(int(unit.Linear.Weight(1024))))
			first(r, sb)
			kernel.mu.Lock()
			defer kernel.mu.Unlock()
			if len(kernel.learned) != 1 || kernel.learned[0] != unit.Linear || kernel.early {
				t.Errorf("learned %v; something was proved before: %t", kernel.learned, kernel.early)
			}
		})
	}
}

// readC1 is a container as its specification shows it.
func readC1(dir string, state workload.State) func(...*protocol.Applied) *workload.Container {
	return func(...*protocol.Applied) *workload.Container {
		c := container()
		c.ID, c.Cgroup, c.State = "c1", dir, state
		return c
	}
}
