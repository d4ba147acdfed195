// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// rule is one feature's wish: release need of what gives tells, from pods that belong.
type rule[T ~int64] struct {
	feature Feature
	band    protocol.PriorityClass
	need    T
	// cause is the crossed threshold with its figures; limited is the decision's.
	cause, limited string
	// belongs says who may be a victim, counts whose end helps: a pod that leaves anyway need not have agreed to it.
	belongs, counts func(*Pod) bool
	// gives is what the pod's end releases; not ok when it is not known.
	gives func(*Pod) (T, bool)
	// greed orders pods of equal priority, the largest first; nil is by use.
	greed func(*Pod) float64
}

// victim is a candidate with what it gives.
type victim[T ~int64] struct {
	at    int
	gives T
	greed float64
}

// run takes victims for a rule and writes decision and evictions.
func (k *kind[T]) run(r *round, u *rule[T]) {
	rest, left := k.rest(r, u)
	d, reason := k.demand(r, u)
	d.Left = left
	decision := Decision{Feature: u.feature, Band: u.band, Over: true, Rest: rest, Reason: reason, Limited: u.limited}
	k.keep(&decision, d)
	r.out.Decisions = append(r.out.Decisions, decision)
}

// demand takes the victims.
func (k *kind[T]) demand(r *round, u *rule[T]) (d Demand[T], reason string) {
	d.Release = u.need
	greed := u.greed
	if greed == nil {
		greed = k.greed
	}
	var candidates []victim[T]
	var spared int
	var appeal string
	for i := range r.in.Pods {
		p := &r.in.Pods[i]
		amount, known := u.gives(p)
		mine := u.belongs(p)
		late := r.waits[i] && p.Held == ByTurn && !r.budget // in danger nobody waits for his turn, and who does is not counted on
		hurry := mine && late && r.appeal(p, u.feature) == ""
		switch {
		case !known || amount <= 0:
		case r.leaving[i] && !late && u.counts(p):
			d.Pending += amount
		case !hurry && (r.leaving[i] || p.Leaving || !mine): // a pod that is stuck neither counts nor can it be evicted again
		default:
			if why := r.appeal(p, u.feature); why != "" {
				spared++
				appeal = why
				continue
			}
			candidates = append(candidates, victim[T]{i, amount, greed(p)})
		}
	}
	reason = u.cause + ": release " + k.text(u.need)
	if d.Pending > 0 {
		reason += ", of which leaving pods hold " + k.text(d.Pending)
	}
	left := u.need - d.Pending
	switch {
	case left <= 0:
		return d, reason + ": nothing more to do"
	case r.rest != "":
		return d, reason + ": waits, " + r.rest
	}
	chosen := cover(r, candidates, left)
	for _, v := range chosen {
		d.Chosen += v.gives
		r.leaving[v.at], r.waits[v.at] = true, false
		e := r.eviction(u.feature, &r.in.Pods[v.at], reason+"; this pod holds "+k.text(v.gives))
		e.Band = u.band
		k.put(&e, v.gives)
		r.out.Evictions = append(r.out.Evictions, e)
	}
	reason += ": " + figure.Count(len(chosen), "victim") + " with " + k.text(d.Chosen)
	if d.Chosen < left {
		reason += ", " + k.text(left-d.Chosen) + " cannot be released"
	}
	if spared > 0 && d.Chosen < left {
		reason += " (" + figure.Count(spared, "pod") + " spared: " + appeal + ")"
	}
	return d, reason
}

// cover takes candidates in order until left is covered, then gives up those that the later ones make unnecessary, the
// last first: whoever is more important is spared first.
func cover[T ~int64](r *round, candidates []victim[T], left T) []victim[T] {
	slices.SortFunc(candidates, func(a, b victim[T]) int {
		p, q := &r.in.Pods[a.at], &r.in.Pods[b.at]
		return cmp.Or(before(p, q), cmp.Compare(b.greed, a.greed), cmp.Compare(p.Namespace, q.Namespace),
			cmp.Compare(p.Name, q.Name), cmp.Compare(p.UID, q.UID))
	})
	var sum T
	n := 0
	for ; n < len(candidates) && sum < left; n++ {
		sum += candidates[n].gives
	}
	chosen := slices.Clone(candidates[:n])
	for i := len(chosen) - 2; i >= 0; i-- {
		if sum-chosen[i].gives >= left {
			sum -= chosen[i].gives
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	return chosen
}

// eviction is a victim's eviction without its amount.
func (r *round) eviction(f Feature, p *Pod, reason string) Eviction {
	e := Eviction{Pod: p.UID, Namespace: p.Namespace, Name: p.Name, Feature: f, RespectBudget: r.budget, Reason: f.String() + ": " + reason}
	if !r.budget {
		e.Reason += "; the node is in danger: " + r.in.Danger
	}
	return e
}
