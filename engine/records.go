// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// record starts a ledger line for a setting.
func (g *Engine) record(s *plan.Setting, via journal.Via, gen uint64) journal.Record {
	want := s.Value.String()
	if s.Knob == plan.Env {
		want = "set" // values of variables may be secrets
	}
	return journal.Record{
		Time: g.o.Now(), Boot: g.o.Boot, Target: s.Target, Knob: s.Knob.String(), Key: s.Key, Want: want,
		Owner: s.By(), Reason: s.Reason, Via: via, Gen: gen,
	}
}

// append keeps records; a ledger that cannot is counted, never waited for.
func (g *Engine) append(records ...journal.Record) {
	if len(records) == 0 {
		return
	}
	if err := g.o.Journal.Append(records...); err != nil {
		g.m.LedgerError(len(records))
		if ok, _ := g.limiter.Allow("ledger", "append"); ok {
			g.log.Error("ledger", "err", err)
		}
	}
}

// recordSpec keeps what of pl was put into a container's spec, with what the kubelet had asked: after kill -9 this is how a
// resized container's base is known (its annotation is as old as the container).
func (g *Engine) recordSpec(e *entry, pl plan.Plan) { g.append(g.inSpec(e, pl)...) }

// inSpec are the records of what of pl was put into a container's spec.
func (g *Engine) inSpec(e *entry, pl plan.Plan) (records []journal.Record) {
	for i := range pl {
		s := &pl[i]
		if e.rest.Find(s.Target, s.Knob, s.Key) != nil {
			continue
		}
		m := e.mark.get() // made where something may stand in it
		if m == nil {
			return nil
		}
		name := s.Knob.String()
		if s.Key != "" {
			name += "[" + s.Key + "]"
		}
		if _, ok := m.Set[name]; !ok {
			continue
		}
		rec := g.record(s, journal.ViaRuntime, e.gen)
		rec.Base = markBase(m, s.Knob)
		records = append(records, rec)
	}
	return records
}

// recordObserved keeps what would have been put into a container's spec and can be put nowhere else. What is observed of the kernel's
// files is kept when the others are written.
func (g *Engine) recordObserved(e *entry) {
	var records []journal.Record
	for i := range e.plan {
		if s := &e.plan[i]; s.Observe && specOnly.Has(s.Knob) {
			records = append(records, g.record(s, journal.ViaObserve, e.gen))
			g.m.Observed(s.Owner)
		}
	}
	g.append(records...)
}

// countDecisions counts each feature that has a say in the container, once.
func (g *Engine) countDecisions(pl plan.Plan) {
	var applied, observed protocol.FeatureSet
	for i := range pl {
		if s := &pl[i]; s.Observe {
			observed = observed.With(s.Owner)
		} else {
			applied = applied.With(s.Owner)
		}
	}
	for _, f := range applied.List() {
		g.m.Decision(f, metrics.OutcomeApplied)
	}
	for _, f := range observed.List() {
		g.m.Decision(f, metrics.OutcomeObserved)
	}
}

// markBase finds the base of a knob in a mark.
func markBase(m *protocol.Applied, k plan.Knob) string {
	if v, ok := m.Base[k.String()]; ok {
		return v
	}
	return m.Base["unified/"+k.UnifiedKey()]
}

// recordGone tells the ledger that a target is no more.
func (g *Engine) recordGone(t plan.Target) {
	g.units.forget(t.Cgroup)
	if err := g.o.Kernel.Forget(t); err != nil {
		g.m.LedgerError(1)
	}
}

// recordProblem has the ledger keep what went wrong somewhere, in the background.
func (g *Engine) recordProblem(where, key, reason string) {
	r := journal.Record{Time: g.o.Now(), Boot: g.o.Boot, Target: plan.Target{Name: where}, Key: key, Reason: reason, Via: journal.ViaProblem}
	g.jobs.add(func(context.Context) { g.append(r) })
}

// report keeps one piece of input that could not be used: metric each time, log and ledger once in a while.
func (g *Engine) report(t plan.Target, pr protocol.Problem) { g.reportBy(pr.Key, t, pr) }

func (g *Engine) reportBy(limit string, t plan.Target, pr protocol.Problem) {
	g.m.Problem(pr.Key)
	ok, held := g.limiter.Allow(t.Name, limit)
	if !ok {
		return
	}
	g.log.Warn("input cannot be used", "subject", t.Name, "key", pr.Key, "reason", pr.Reason, "suppressed", held)
	g.append(journal.Record{Time: g.o.Now(), Boot: g.o.Boot, Target: t, Key: pr.Key, Reason: pr.Reason, Via: journal.ViaProblem})
	g.stats.keepProblem(g.o.Now(), t.Name, pr.Key, pr.Reason)
}

// problem reports something that went wrong outside of a pod's input.
func (g *Engine) problem(where, key, reason string) { g.problemOf(where, where, key, reason) }

// problemOf is problem for a pod or container, which people know by its name. Of each id it is told by itself: the next pod of a name is
// another.
func (g *Engine) problemOf(id, where, key, reason string) {
	if ok, held := g.limiter.Allow(id, key); ok {
		g.log.Warn("problem", "where", where, "what", key, "reason", reason, "suppressed", held)
		g.stats.keepProblem(g.o.Now(), where, key, reason)
	}
}

// podName is the pod of a sandbox as people know it.
func (g *Engine) podName(sandbox string) string {
	if e, ok := g.reg.pod(sandbox); ok {
		return e.p.FullName()
	}
	return sandbox
}

// containerName is a container as people know it.
func (g *Engine) containerName(id string) string {
	e, ok := g.reg.container(id)
	if !ok {
		return id
	}
	return g.podName(e.sandbox) + "/" + e.c.Name
}

// Trouble reports an error of the connection or the like by log and status, the same one once in a while.
func (g *Engine) Trouble(where, what string, err error) { g.problem(where, what, reason(err)) }

// count turns results into metrics, and failures into log lines.
func (g *Engine) count(results []apply.Result) (written int) {
	for i := range results {
		r := &results[i]
		switch r.Outcome {
		case apply.Written, apply.Pending:
			written++
			g.m.Write(r.Setting.Knob, metrics.ResultOK)
		case apply.Observed:
			g.m.Observed(r.Setting.Owner)
		case apply.Failed:
			g.m.Write(r.Setting.Knob, metrics.ResultError)
			g.problem(r.Setting.Target.String(), r.Setting.Knob.String(), reason(r.Err))
		}
		if r.Note != "" {
			g.problem(r.Setting.Target.String(), r.Setting.Knob.String(), r.Note)
		}
	}
	return written
}

func reason(err error) string {
	if err == nil {
		return "unknown"
	}
	return strings.ToValidUTF8(err.Error(), "?")
}

// Past is what an earlier life of this plugin has put into specs, by container id, the QoS directories that it has written to,
// and what else of its writes stands in the kernel.
type Past struct {
	// byID is newest; earlier is what stood in the spec before, which an answer may not have got to replace.
	byID, earlier map[string]*protocol.Applied
	// scores are the OOM scores that it has written to processes: where a runtime tells of none, the process's own is taken for what the
	// container began with.
	scores map[string]*protocol.Applied
	qos    map[string]struct{}
	// min are the QoS directories whose memory.min above 0 is of that life.
	min map[string]bool
	// groups are the resctrl groups that were that life's and still are there.
	groups map[string]struct{}
	// counted are the monitoring groups that it has made.
	counted journal.Counted
	// left are its direct writes that still stand.
	left left
}

// NewPast reads the ledger's records, oldest first.
func NewPast(records []journal.Record) *Past {
	out := &Past{byID: map[string]*protocol.Applied{}, earlier: map[string]*protocol.Applied{}, scores: map[string]*protocol.Applied{}, qos: map[string]struct{}{}, min: map[string]bool{}, groups: map[string]struct{}{}}
	for i := range records {
		r := &records[i]
		id := r.Target.Container
		out.counted.Note(r)
		switch {
		case r.Target.Level == plan.LevelGroup && r.Via == journal.ViaMade:
			out.groups[r.Target.Cgroup] = struct{}{}
		case r.Target.Level == plan.LevelGroup && r.Via == journal.ViaGone:
			delete(out.groups, r.Target.Cgroup)
		case r.Target.Level == plan.LevelQoS && r.Via == journal.ViaRestore:
			delete(out.min, r.Target.Cgroup)
		case r.Target.Level == plan.LevelQoS && r.Via == journal.ViaDirect:
			out.qos[r.Target.Cgroup] = struct{}{}
			if r.Knob == plan.MemoryMin.String() && r.Err == "" {
				out.min[r.Target.Cgroup] = r.Want != "0"
			}
		case id == "":
		case r.Via == journal.ViaGone:
			delete(out.byID, id)
			delete(out.earlier, id)
			delete(out.scores, id)
		case r.Via == journal.ViaRuntime:
			out.add(id, r)
		case r.Via == journal.ViaDirect && r.Knob == plan.OOMScoreAdj.String() && (r.Err == "" || len(r.Written) > 0): // some of the processes may have taken it
			out.score(id, r)
		}
	}
	return out
}

func (p *Past) add(id string, r *journal.Record) {
	k, ok := plan.ParseKnob(r.Knob)
	if !ok || r.Key != "" {
		return
	}
	base := r.Knob
	if file := k.UnifiedKey(); file != "" {
		base = "unified/" + file
	}
	set := r.Want + " " + r.Owner
	m := markIn(p.byID, id)
	if had, ok := m.Set[r.Knob]; ok && had != set {
		was, known := m.Base[base]
		note(markIn(p.earlier, id), r.Knob, base, had, was, known)
	}
	note(m, r.Knob, base, set, r.Base, r.Base != "")
}

// score notes an OOM score that was written, with what the first of the processes had before the first one, or that it was given back.
func (p *Past) score(id string, r *journal.Record) {
	had := p.scores[id]
	switch {
	case had != nil && had.Base[r.Knob] == r.Want:
		delete(p.scores, id)
	case had != nil:
		had.Set[r.Knob] = r.Want + " " + r.Owner
	case len(r.Original) > 0:
		note(markIn(p.scores, id), r.Knob, r.Knob, r.Want+" "+r.Owner, r.Original[0], true)
	}
}

// markIn is the mark of a container, made where there is none.
func markIn(of map[string]*protocol.Applied, id string) *protocol.Applied {
	if of[id] == nil {
		of[id] = &protocol.Applied{Set: map[string]string{}, Base: map[string]string{}}
	}
	return of[id]
}

// note puts a knob's value, and what stood there before if anything did, into a mark.
func note(m *protocol.Applied, knob, base, set, was string, known bool) {
	m.Set[knob] = set
	if delete(m.Base, base); known {
		m.Base[base] = was
	}
}

// ancestors are the directories that may still carry sums of that life.
func (p *Past) ancestors() map[string]string {
	out := map[string]string{}
	if p != nil {
		for dir := range p.qos {
			out[dir] = dir
		}
	}
	return out
}

// ownGroups are the resctrl groups that may still be there.
func (p *Past) ownGroups() map[string]bool {
	out := map[string]bool{}
	if p != nil {
		for name := range p.groups {
			out[name] = false
		}
	}
	return out
}

// OwnsMemoryMin reports whether memory.min above 0 of a QoS directory was written by that life, and not since by the
// kubelet.
func (p *Past) OwnsMemoryMin(dir string) bool { return p != nil && p.min[dir] }

func (p *Past) marks(id string) (out []*protocol.Applied) {
	if p == nil {
		return nil
	}
	for _, of := range []map[string]*protocol.Applied{p.byID, p.earlier} {
		if m := of[id]; m != nil {
			out = append(out, m)
		}
	}
	return out
}

// scored is the OOM score that it has written to a container's processes.
func (p *Past) scored(id string) []*protocol.Applied {
	if p == nil || p.scores[id] == nil {
		return nil
	}
	return []*protocol.Applied{p.scores[id]}
}
