// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"fmt"
	"runtime/debug"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// shielded does a piece of background work; what names it. A panic costs that piece and no more: a program that ended here would
// meet the same pod again in its next life. The drift check comes back to what was left.
func (g *Engine) shielded(what string, work func()) {
	defer g.caught(what)
	work()
}

// caught reports a panic and ends it. It must be deferred itself.
func (g *Engine) caught(what string) {
	if r := recover(); r != nil {
		g.panicked(what, r)
	}
}

func (g *Engine) panicked(what string, r any) {
	g.m.Problem("panic")
	if ok, held := g.limiter.Allow(what, "panic"); ok {
		g.log.Error("background work panicked", "work", what, "panic", fmt.Sprint(r), "stack", string(debug.Stack()), "suppressed", held)
		g.stats.keepProblem(g.o.Now(), what, "panic", fmt.Sprint(r))
	}
}

// redecide is decide outside of a handler; ok is false when it panicked: the container keeps the plan that it has.
func (g *Engine) redecide(v *node.View, pod *workload.Pod, c *workload.Container) (pl plan.Plan, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			g.panicked(pod.FullName(), r)
		}
	}()
	return g.decide(v, pod, c), true
}
