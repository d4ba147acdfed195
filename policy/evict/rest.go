// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

// Rest is what a decision means for victims of earlier steps whose turn has not come (ByTurn). Victims are chosen all at once and asked for one
// after another; what they were chosen for may be over before the last.
type Rest uint8

// The cases; of several decisions about one victim the last of these counts.
const (
	// Enough: they need not go any more. Nothing is to be released, or those that were asked for hold all of it.
	Enough Rest = iota
	// Unknown: it was not measured. They are still chosen for a while, and not asked for meanwhile: what was not measured evicts nobody.
	Unknown
	// Needed: they go in their turn, until the lower mark is reached and not only the threshold.
	Needed
)

// RestOf is what the decisions of a step mean for a victim of an earlier one. Where its feature has none (it is switched off, has lost its
// threshold, or is another agent's business) it need not go.
func RestOf(decisions []Decision, e *Eviction) (rest Rest) {
	for i := range decisions {
		if d := &decisions[i]; d.Feature == e.Feature && d.Band == e.Band {
			rest = max(rest, d.Rest)
		}
	}
	return rest
}

// Take reports whether a victim may be asked for by the decisions of a step, and takes what it releases from what they have left: between two steps
// no more are asked for than the first needs, however many might go at once. The two features that look at the node's memory need the same of it.
func Take(decisions []Decision, e *Eviction) (needed bool) {
	ofUse := func(f Feature) bool { return f == MemoryEvict || f == BEMemoryEvict }
	for i := range decisions {
		d := &decisions[i]
		mine := d.Feature == e.Feature && d.Band == e.Band
		needed = needed || mine && (d.CPU.Left > 0 || d.Memory.Left > 0)
		if mine || ofUse(d.Feature) && ofUse(e.Feature) {
			d.CPU.Left -= e.CPU
			d.Memory.Left -= e.Memory
		}
	}
	return needed
}

// rest is what a rule means for them, and what is left to release: what those hold that were asked for counts as released.
func (k *kind[T]) rest(r *round, u *rule[T]) (Rest, T) {
	left := u.need
	for i := range r.in.Pods {
		if !r.leaving[i] || r.waits[i] {
			continue
		}
		if amount, known := u.gives(&r.in.Pods[i]); known && u.counts(&r.in.Pods[i]) {
			left -= max(amount, 0)
		}
	}
	if left > 0 {
		return Needed, left
	}
	return Enough, 0
}

// calm keeps the decision that nobody is chosen. The rule's need is down to the lower mark, where the threshold is not crossed, too.
func (k *kind[T]) calm(r *round, u *rule[T], reason string) {
	rest, left := k.rest(r, u)
	d := Decision{Feature: u.feature, Band: u.band, Reason: reason, Limited: u.limited, Rest: rest}
	k.keep(&d, Demand[T]{Left: left})
	r.out.Decisions = append(r.out.Decisions, d)
}

// quiet keeps the decision that nothing is to be done.
func (r *round) quiet(f Feature, reason string) {
	r.out.Decisions = append(r.out.Decisions, Decision{Feature: f, Reason: reason})
}

// unknown keeps that there is no decision, and why.
func (r *round) unknown(f Feature, reason string) {
	r.out.Decisions = append(r.out.Decisions, Decision{Feature: f, Rest: Unknown, Reason: "no decision: " + reason})
}
