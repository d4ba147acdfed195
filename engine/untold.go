// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"reflect"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Holder is a Kernel that may leave the engine's writes to others; beside.Ward. What those know of updates is learned from
// them when they go.
type Holder interface{ Holding() bool }

// untold reports whether it is ours to notice updates that no event told of.
func (g *Engine) untold() bool {
	if !g.o.UpdatesUntold {
		return false
	}
	h, ok := g.o.Kernel.(Holder)
	return !ok || !h.Holding()
}

// strayed: the kernel does not hold what stood there of one container until now, also where a new View wants something else,
// and an update could have said it (an in-place resize, the CPU manager).
func (g *Engine) strayed(w *work) bool {
	before := direct(w.plan)
	return slices.ContainsFunc(g.o.Kernel.Verify(append(before[:len(before):len(before)], asked(w, before)...)), carried)
}

// follow takes in an update of a container that nobody told of: to write the old values again would undo the kubelet. It
// reports whether the pass is done with the container. Where the runtime does not answer, the values stay as they are until it
// does: they may be the kubelet's. After a write it asks again, because that may have undone the next update. What stood, and is not
// wanted any more, is still to be taken back where the pass is done without having written.
func (g *Engine) follow(ctx context.Context, w *work, stood plan.Plan) (done bool) {
	if g.o.List == nil {
		return false
	}
	name, base := w.c.Target(w.pod.p).Name, w.c.Base
	for range maxFollow {
		pod, c, err := g.o.List.Container(ctx, w.c.ID, g.Marked(w.c.ID)...)
		if err != nil {
			g.Trouble(name, "drift", err)
			g.awaits(w, stood)
			return true
		}
		if c.State == workload.StateStopped || reflect.DeepEqual(c.Base, base) {
			return done
		}
		g.log.Info("updated by the runtime", "container", name, "id", c.ID)
		sandbox := Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
		arrival := Arrival{ID: c.ID, Read: func(...*protocol.Applied) *workload.Container { return c }}
		g.awaits(w, stood)
		g.Update(ctx, sandbox, arrival, c.Base, w.c.Foreign)
		if e, ok := g.reg.container(w.c.ID); ok {
			g.takeBack(ctx, &e)
		}
		base, done = c.Base, true
	}
	return done
}

// maxFollow bounds the updates of one container that one pass follows.
const maxFollow = 3

// asked are the limits of the request that nobody has changed: by them an update shows whose values are not ours.
func asked(w *work, pl plan.Plan) (out plan.Plan) {
	for _, one := range [...]struct {
		knob  plan.Knob
		value unit.Opt
	}{{plan.CPUQuota, w.c.Base.Quota}, {plan.MemoryLimit, w.c.Base.MemoryLimit}} {
		if one.value.V > 0 && pl.Get(one.knob) == nil {
			out = append(out, plan.Setting{Target: w.c.Target(w.pod.p), Knob: one.knob, Value: plan.Int(one.value.V)})
		}
	}
	return out
}

// carried: an update carries the setting, and the kernel holds another value.
func carried(m apply.Mismatch) bool { return m.Err == nil && m.Setting.InResources() }
