// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/koordlet/internal/talk"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	policy "github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/figure"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// evictionEvent is a step of an eviction for the audit, with what it releases. A decision that finds no way is taken again
// every few seconds.
func evictionEvent(r *evict.Result) talk.Event {
	e := talk.Event{
		What: talk.EventEviction, Outcome: r.Outcome.String(), By: r.Feature.String(), UID: r.Pod, Name: r.Namespace + "/" + r.Name,
		Reason: r.Reason, Err: r.Err,
	}
	also := func(text string) { e.Reason = strings.TrimPrefix(e.Reason+"; "+text, "; ") }
	if text := releases(&r.Eviction); text != "" && r.Release == nil {
		also("it releases " + text)
	}
	if r.Release != nil {
		also(r.Release.Text(&r.Eviction))
	}
	if r.Pause > 0 {
		also("not asked for again for " + r.Pause.String())
	}
	switch r.Outcome {
	case evict.Refused, evict.Failed, evict.Observed, evict.Missing, evict.Dropped:
		e.Often = true
	case evict.Accepted, evict.Gone, evict.Overdue, evict.Stopped:
		// told each time
	}
	return e
}

// releases is the part of an eviction that it was decided for.
func releases(e *policy.Eviction) string {
	var parts []string
	if e.CPU > 0 {
		parts = append(parts, figure.CPUs(e.CPU))
	}
	if e.Memory > 0 {
		parts = append(parts, figure.Bytes(e.Memory))
	}
	return strings.Join(parts, " and ")
}

// happened notes what a step has brought beside writes and evictions, which tell themselves.
func (d *Daemon) happened(l *agent.Look) {
	events := talk.Disturbances(l.Outcome.Events)
	if d.herald != nil && d.host.Alone() == nil {
		d.herald.Tell(l.Outcome.Events, l.Wall)
	}
	if !l.Facts.Urgent {
		var changed []talk.Event
		d.rooms, changed = d.rooms.Give(l.Outcome.Burst.Raises, l.Outcome.Memory.Highs, l.Outcome.OOMScore.Scores,
			func(uid string) string { return podName(l.Facts.Members, uid) })
		events = append(events, changed...)
	}
	if err := d.audit.Note(l.Wall, events...); err != nil {
		d.log.Warn("cannot keep events", "err", err)
	}
}

// podName is "namespace/name" of a pod that runs, its UID when it has gone.
func podName(members []engine.Member, uid string) string {
	for i := range members {
		if members[i].Pod.UID == uid {
			return members[i].Pod.FullName()
		}
	}
	return uid
}

// loops are what each loop decided last, in words; api: there is an API server. tickAlone is loopStates'.
func loops(cfg *config.Koordlet, api bool, tickAlone string, l *agent.Look) []status.Loop {
	o, v := &l.Outcome, l.Facts.View
	cpus := status.Loop{Name: "cpu-suppress", Decision: o.Suppress.Reason, At: l.Wall}
	suppressed := suppression(v, tickAlone)
	if o.Suppress.Mode == suppress.Quota && (suppressed.State == status.StateActive || suppressed.State == status.StateDegraded) {
		cpus.Err = decide.NoSet(v)
	}
	out := []status.Loop{under(suppressed, cpus, false)}
	tuned := ""
	if cfg.Tune {
		tuned = "; tuning"
	}
	burst := status.Loop{Name: "cpu-burst", At: l.Wall, Decision: o.Burst.Reason + tuned}
	for i := range o.Burst.Raises {
		if r := &o.Burst.Raises[i]; r.Container != "" {
			burst.Decision += "; " + podName(l.Facts.Members, r.Pod) + " to " + figure.Quota(r.Quota) + ": " + r.Reason
		}
	}
	memory := status.Loop{Name: "memory", At: l.Wall, Decision: o.Memory.Reason + tuned}
	for i := range o.Memory.Highs {
		h := &o.Memory.Highs[i]
		memory.Decision += "; " + podName(l.Facts.Members, h.Pod) + " to " + figure.Bytes(h.Bytes) + ": " + h.Reason
	}
	for i := range o.OOMScore.Scores {
		s := &o.OOMScore.Scores[i]
		memory.Decision += "; " + podName(l.Facts.Members, s.Pod) + " to oom_score_adj " + strconv.FormatInt(s.Value, 10) + ": " + s.Reason
	}
	reclaim := memoryReclaim(v, l.Facts.NoReclaim)
	if cfg.Tune && reclaim.State == status.StateOff {
		reclaim = writes(v, protocol.FeatureMemory, plan.MemoryHigh, node.FeatureState{State: status.StateActive}) // scores and memory.high
	}
	out = append(out, under(quotaBurst(cfg, v), trimmed(burst), len(o.Burst.Raises) > 0),
		under(reclaim, trimmed(memory), len(o.Memory.Highs)+len(o.OOMScore.Scores) > 0), interferenceLoop(l))
	for i := range out { // of each, what is decided for pods and containers goes by the dynamic state
		out[i] = held(out[i], withheld(l))
	}
	out = append(
		out,
		asked(status.Loop{Name: "kernel-parameters", Decision: o.Sysctl.Reason, At: l.Wall}, o.Sysctl.Problems, decide.NoParameters(v)),
		asked(status.Loop{Name: "io-cost", Decision: o.IOCost.Reason, At: l.Wall}, o.IOCost.Problems, decide.NoCosts(v)),
		asked(status.Loop{Name: "host-applications", Decision: applications(l), At: l.Wall}, o.AppProblems, "hostApplications has none"),
		networkLoop(l),
	)
	if len(l.Owed) > 0 {
		out = append(out, backLoop(l))
	}
	if l.Stale != nil {
		out = append(out, status.Loop{
			Name: "kubelet-cpus", State: status.StateDegraded, At: l.Wall, Err: l.Stale.Error(),
			Decision: "who had CPUs alone when the kubelet's CPU manager could be read last keeps them; others are shared",
		})
	}
	if l.Unkept != nil {
		out = append(out, status.Loop{
			Name: "keep-strategy", State: status.StateDegraded, At: l.Wall, Err: l.Unkept.Error(),
			Decision: "the strategy is in force and handed on; keeping it for the next boot is tried again every ten seconds",
		})
	}
	state, why := evictLoopState(&cfg.Evict, api)
	for _, e := range o.Evict.Decisions {
		one := status.Loop{Name: e.Feature.String(), State: state, Decision: why + e.Reason, At: l.Wall}
		if e.Limited != "" && one.State == status.StateActive {
			one.State = status.StateDegraded
		}
		out = append(out, one)
	}
	return append(out, unsetLoops(&cfg.Evict, l)...)
}

// under is a loop in the state that NodeSLO.status has for it, which goes by the strategy alone: one that holds something all the same, as a pod's
// annotation asks, works. What the loop goes without is no failure of it.
func under(f node.FeatureState, s status.Loop, holds bool) status.Loop {
	why := strings.TrimPrefix(strings.TrimPrefix(f.Detail, s.Err), "; ")
	switch s.State = f.State; {
	case f.State != status.StateOff && f.State != status.StateUnsupported && f.State != status.StateDegraded:
	case f.State == status.StateDegraded || holds:
		s.Decision = strings.TrimSuffix(strings.TrimPrefix(s.Decision+"; "+why, "; "), "; ")
		if f.State != status.StateDegraded {
			s.State = status.StateActive
		}
	default:
		s.Decision = why
	}
	return s
}

// asked is the state of a loop that has nothing to do until somebody asks for something: off says why nobody does.
func asked(s status.Loop, problems []string, off string) status.Loop {
	s.State, s.Err = status.StateActive, strings.Join(problems, "; ")
	switch {
	case s.Err != "":
		s.State = status.StateDegraded
	case s.Decision == "":
		s.State, s.Decision = status.StateOff, off
	}
	return s
}

// applications are the host applications that take part, and by which cgroup.
func applications(l *agent.Look) string {
	apps, problems := decide.Apps(l.Facts.View, l.Facts.Members)
	var parts []string
	for i := range apps {
		parts = append(parts, apps[i].Name+" in "+apps[i].Cgroup)
	}
	if n := len(l.Facts.View.Strategy.HostApplications) - len(apps) - len(problems); n > 0 {
		parts = append(parts, strconv.Itoa(n)+" not yet: where the kubelet's cgroups are shows in a pod's, and there is none")
	}
	return strings.Join(parts, "; ")
}

// backLoop tells what nobody wants any more and stands in the kernel all the same.
func backLoop(l *agent.Look) status.Loop {
	var parts []string
	for i := range l.Owed {
		parts = append(parts, l.Owed[i].Why) // which names knob and cgroup
	}
	return status.Loop{
		Name: "give-back", State: status.StateDegraded, At: l.Wall, Decision: "what is no longer wanted is tried again every ten seconds",
		Err: strings.Join(parts, "; "),
	}
}

func trimmed(l status.Loop) status.Loop {
	l.Decision = strings.TrimPrefix(l.Decision, "; ")
	return l
}

// interferenceLoop tells who suffers and who is held for it.
func interferenceLoop(l *agent.Look) status.Loop {
	found := &l.Outcome.Interference
	var parts []string
	for i := range found.Victims {
		parts = append(parts, found.Victims[i].Name+": "+found.Victims[i].Reason)
	}
	for i := range found.Caps {
		c := &found.Caps[i]
		parts = append(parts, c.Name+" is "+c.Phase.String()+": "+c.Reason)
	}
	if len(parts) == 0 {
		parts = []string{"nobody is disturbed"}
	}
	f := interferenceState(l.Facts.View)
	if f.Detail != "" { // no error: nobody has asked for more, or it is configured so
		parts = append(parts, f.Detail)
	}
	return status.Loop{Name: "interference", State: f.State, Decision: strings.Join(parts, "; "), At: l.Wall}
}

// scaled and disturbed are the same for metrics.
func scaled(l *agent.Look) (out []talk.Scaled) {
	for i := range l.Outcome.Burst.Raises {
		if r := &l.Outcome.Burst.Raises[i]; r.Container != "" {
			out = append(out, talk.Scaled{Container: r.Container, Quota: r.Quota})
		}
	}
	return out
}

func disturbed(l *agent.Look) (out []talk.Victim) {
	for i := range l.Outcome.Interference.Victims {
		v := &l.Outcome.Interference.Victims[i]
		out = append(out, talk.Victim{Pod: v.Pod, Signal: v.Signal.String(), Now: float64(v.Value), Usual: float64(v.Mean)})
	}
	return out
}
