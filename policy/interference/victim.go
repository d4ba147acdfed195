// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package interference

import (
	"math"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// usable is the value of a sample that can be one.
func usable(m unit.Measured[Level]) (float64, bool) {
	x := float64(m.V)
	return x, m.OK && x >= 0 && x <= valueMost
}

// observe takes one pod's samples.
func (w *work) observe(p *Pod, state *PodState) {
	if p.QoS == protocol.QoSBE {
		state.Signals, state.Own = [NumSignals]Baseline{}, [NumResources]Baseline{}
		return
	}
	var busy [NumResources]bool
	for r := range NumResources {
		if x, ok := usable(p.Used[r]); ok && r != Cache {
			busy[r] = state.Own[r].see(x, w.in.Now, &facts{margin: 0.5, least: float64(least[r])}, w.in.Pace.History)
		}
	}
	for i := range NumSignals {
		b, f := &state.Signals[i], &signals[i]
		was := b.Disturbed
		if x, ok := usable(p.Signals[i]); ok && (b.Disturbed || f.own || !busy[f.resource]) {
			b.see(x, w.in.Now, f, w.in.Pace.History)
			w.fresh[f.resource]++
		}
		b.expire(w.in.Now)
		if b.Disturbed != was {
			w.tellVictim(p, i, b)
		}
		if !f.own && b.warm(w.in.Pace.History) {
			w.peak[f.resource] = max(w.peak[f.resource], b.excess(w.in.Now))
		}
		if b.Disturbed {
			w.victim(p, i, b)
		}
	}
}

// expires is after how long without a new sample a disturbance is over: three times as long as an excess counts.
const expires = 3 * gone

// expire ends a disturbance of which nothing has been heard for so long.
func (b *Baseline) expire(now unit.Micros) {
	if b.Disturbed && now-b.LastAt > expires {
		b.Disturbed, b.Since, b.Highs, b.Lows, b.HighAt, b.Excess = false, 0, 0, 0, 0, 0
	}
}

func (w *work) tellVictim(p *Pod, s Signal, b *Baseline) {
	switch {
	case b.Disturbed:
		w.event(p.UID, p.Name, Disturbed, "disturbed: "+describe(s, b))
	case w.in.Now-b.LastAt > expires:
		w.event(p.UID, p.Name, Undisturbed, "no longer disturbed: nothing new for "+figure.Duration(w.in.Now-b.LastAt)+", at last "+describe(s, b))
	default:
		w.event(p.UID, p.Name, Undisturbed, "no longer disturbed: "+describe(s, b))
	}
}

// describe tells value and baseline: "CPU pressure 40%, usually 5% ± 1%".
func describe(s Signal, b *Baseline) string {
	return s.String() + " " + s.text(Level(b.Value)) + ", usually " + s.text(Level(b.Mean)) + " ± " + s.text(Level(b.sigma(signals[s].least)))
}

// victim puts a disturbed pod into the output.
func (w *work) victim(p *Pod, s Signal, b *Baseline) {
	v := Victim{
		Pod: p.UID, Name: p.Name, Signal: s, Since: b.Since,
		Value: Level(b.Value), Mean: Level(b.Mean),
		Reason: describe(s, b) + ", for " + figure.Duration(max(w.in.Now-b.Since, 0)),
	}
	if signals[s].own {
		v.Reason += ": by its own limit"
	} else {
		w.disturbed[signals[s].resource]++
	}
	w.out.Victims = append(w.out.Victims, v)
}

// distress moves the distress about one resource.
func (w *work) distress(r Resource) {
	d := &w.next.Resource[r]
	d.Now = w.peak[r]
	keep := math.Exp2(-w.elapsed.Seconds() / w.in.Pace.recentHalfLife().Seconds())
	d.Recent = d.Recent*keep + d.Now*(1-keep)
	d.Fresh += int64(w.fresh[r])
	switch {
	case w.disturbed[r] > 0:
		d.CalmSince = 0
	case d.CalmSince == 0:
		d.CalmSince = w.in.Now
	}
}
