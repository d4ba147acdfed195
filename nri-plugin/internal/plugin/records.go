// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// record starts a ledger line for a setting.
func (p *Plugin) record(s *plan.Setting, via journal.Via, gen uint64) journal.Record {
	want := s.Value.String()
	if s.Knob == plan.Env {
		want = "set" // values of variables may be secrets
	}
	return journal.Record{
		Time: p.o.Now(), Boot: p.o.Boot, Target: s.Target, Knob: s.Knob.String(), Key: s.Key, Want: want,
		Owner: s.Owner.String(), Reason: s.Reason, Via: via, Gen: gen,
	}
}

// append keeps records; a ledger that cannot is counted, never waited for.
func (p *Plugin) append(records ...journal.Record) {
	if len(records) == 0 {
		return
	}
	if err := p.o.Journal.Append(records...); err != nil {
		p.m.LedgerError(len(records))
		if ok, _ := p.limiter.Allow("ledger", "append"); ok {
			p.log.Error("ledger", "err", err)
		}
	}
}

// recordSpec keeps what was put into a container's spec, with what the kubelet had asked: after kill -9 this is how a
// resized container's base is known (its annotation is as old as the container).
func (p *Plugin) recordSpec(pod *workload.Pod, e *entry) {
	m := e.mark.get()
	if m == nil {
		return
	}
	records := make([]journal.Record, 0, len(m.Set))
	for i := range e.plan {
		s := &e.plan[i]
		name := s.Knob.String()
		if s.Key != "" {
			name += "[" + s.Key + "]"
		}
		if _, ok := m.Set[name]; !ok || e.rest.Find(s.Target, s.Knob, s.Key) != nil {
			continue
		}
		rec := p.record(s, journal.ViaRuntime, e.gen)
		rec.Base = markBase(m, s.Knob)
		records = append(records, rec)
		p.m.Decision(s.Owner, metrics.OutcomeApplied)
	}
	p.append(records...)
}

// markBase finds the base of a knob in a mark.
func markBase(m *protocol.Applied, k plan.Knob) string {
	if v, ok := m.Base[k.String()]; ok {
		return v
	}
	return m.Base["unified/"+k.UnifiedKey()]
}

// recordGone tells the ledger that a target is no more.
func (p *Plugin) recordGone(t plan.Target) {
	p.units.forget(t.Cgroup)
	if err := p.o.Kernel.Forget(t); err != nil {
		p.m.LedgerError(1)
	}
}

// report keeps one piece of input that could not be used: metric each time, log and ledger once in a while.
func (p *Plugin) report(t plan.Target, pr protocol.Problem) {
	p.m.Problem(pr.Key)
	ok, held := p.limiter.Allow(t.Name, pr.Key)
	if !ok {
		return
	}
	p.log.Warn("input cannot be used", "subject", t.Name, "key", pr.Key, "reason", pr.Reason, "suppressed", held)
	p.append(journal.Record{Time: p.o.Now(), Target: t, Key: pr.Key, Reason: pr.Reason, Via: journal.ViaProblem})
	p.stats.keepProblem(p.o.Now(), t.Name, pr.Key, pr.Reason)
}

// problem reports something that went wrong outside of a pod's input.
func (p *Plugin) problem(where, key, reason string) {
	if ok, held := p.limiter.Allow(where, key); ok {
		p.log.Warn("problem", "where", where, "what", key, "reason", reason, "suppressed", held)
		p.stats.keepProblem(p.o.Now(), where, key, reason)
	}
}

// count turns results into metrics, and failures into log lines.
func (p *Plugin) count(results []apply.Result) (written int) {
	for i := range results {
		r := &results[i]
		switch r.Outcome {
		case apply.Written, apply.Pending:
			written++
			p.m.Write(r.Setting.Knob, metrics.ResultOK)
		case apply.Observed:
			p.m.Observed(r.Setting.Owner)
		case apply.Failed:
			p.m.Write(r.Setting.Knob, metrics.ResultError)
			p.problem(r.Setting.Target.String(), r.Setting.Knob.String(), reason(r.Err))
		}
		if r.Note != "" {
			p.problem(r.Setting.Target.String(), r.Setting.Knob.String(), r.Note)
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

// Past is what an earlier life of this plugin has put into specs, by container id, and the QoS directories that it has
// written to.
type Past struct {
	byID map[string]*protocol.Applied
	qos  map[string]struct{}
	// min are the QoS directories whose memory.min above 0 is of that life.
	min map[string]bool
	// groups are the resctrl groups that were that life's and still are there.
	groups map[string]struct{}
}

// NewPast reads the ledger's records, oldest first.
func NewPast(records []journal.Record) *Past {
	out := &Past{byID: map[string]*protocol.Applied{}, qos: map[string]struct{}{}, min: map[string]bool{}, groups: map[string]struct{}{}}
	for i := range records {
		r := &records[i]
		id := r.Target.Container
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
		case r.Via == journal.ViaRuntime:
			out.add(id, r)
		}
	}
	return out
}

func (p *Past) add(id string, r *journal.Record) {
	m := p.byID[id]
	if m == nil {
		m = &protocol.Applied{Set: map[string]string{}, Base: map[string]string{}}
		p.byID[id] = m
	}
	k, ok := plan.ParseKnob(r.Knob)
	if !ok || r.Key != "" {
		return
	}
	m.Set[r.Knob] = r.Want + " " + r.Owner
	base := r.Knob
	if file := k.UnifiedKey(); file != "" {
		base = "unified/" + file
	}
	if r.Base == "" {
		delete(m.Base, base)
		return
	}
	m.Base[base] = r.Base
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

func (p *Past) marks(id string) []*protocol.Applied {
	if p == nil || p.byID[id] == nil {
		return nil
	}
	return []*protocol.Applied{p.byID[id]}
}
