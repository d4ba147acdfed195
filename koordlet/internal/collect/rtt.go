// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/sockdiag"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// rtts tells the round trip time of pods: the median over up to sockdiag.MaxKnown of their TCP connections, those that have sent something and heard an
// answer since there was news of the pod. One that nobody uses says nothing.
//
// To find a pod's connections the kernel walks its whole table of them, which on a large machine takes milliseconds; a connection that is
// known it finds at once. So at each slow turn a pod's known connections are followed. It is walked for where none is known or half of them have
// ended, and, after those, once in rttAgain, for connections that are new. Nobody waits for either: a thread of sockdiag looks, and what it has
// found is told a tick later. Each of the two has a share of CPU time; where that is not enough, pods wait in line. Not looked at are pods that have
// not run since, those of the host's network, and best-effort ones, which nobody protects.
type rtts struct {
	look looker
	of   each[rttState]
	// need and again are pods to walk for; the latter have known connections, and wait until there is none of the former.
	need, again, follow rttLine
	walks, follows      rttCredit
	// under is the line whose pods are in the batch under way; followed says that the batch before was of that kind.
	under    *rttLine
	followed bool
	// asked are the pods of the batch under way; nil in place of one that has gone since.
	asked   []*podEntry
	batch   sockdiag.Batch
	askedAt unit.Micros
	at      unit.Micros // credits grew until then
}

// rttLine are pods that wait, each once.
type rttLine []*podEntry

// rttCredit is the CPU time that may be spent on one kind of look, below zero after one that was dearer.
type rttCredit time.Duration

// rttState is one pod's.
type rttState struct {
	// at is until when its connections are told of, and walked when they were looked for, 0 for never.
	at, walked unit.Micros
	// known are the connections to follow, of so many that the last walk brought.
	known   []sockdiag.Connection
	brought int
}

// looker is *sockdiag.Looker.
type looker interface {
	Ask(b *sockdiag.Batch) bool
	Take() *sockdiag.Batch
	Close()
}

const (
	// rttShare is the CPU time that either kind of look may take in a second, 0.015 % of a CPU; rttSaved is the most that is saved up.
	rttShare = 150 * time.Microsecond
	rttSaved = 3 * time.Millisecond
	rttBatch = 32
	// rttAgain is after how long new connections are looked for beside the known ones.
	rttAgain = unit.Minute
)

func newRTT(m *machine) (collector, support) {
	l, err := sockdiag.Open(m.proc)
	if err != nil {
		return nil, unless(err)
	}
	return &rtts{look: l}, support{}
}

func (c *rtts) collect(t *tick) {
	now := t.clock()
	if b := c.look.Take(); b != nil {
		c.take(t, b, now)
	}
	for _, p := range t.pods {
		if p.fresh && t.due(&p.entry) && p.pod.PID > 0 && !p.pod.HostNetwork && p.pod.QoS != protocol.QoSBE {
			c.turn(p, now)
		}
	}
	if c.at != 0 && now > c.at {
		c.walks.grow(now - c.at)
		c.follows.grow(now - c.at)
	}
	c.at = now
	if c.under != nil {
		return
	}
	walk := &c.need
	if len(c.need) == 0 {
		walk = &c.again
	}
	switch may, follow := len(*walk) > 0 && c.walks > 0, len(c.follow) > 0 && c.follows > 0; {
	case may && (c.followed || !follow):
		c.ask(walk, c.walks, now, t.slow)
	case follow:
		c.ask(&c.follow, c.follows, now, t.slow)
	}
}

func (c *rttCredit) grow(by unit.Micros) {
	*c = min(*c+rttCredit(by.Seconds()*float64(rttShare)), rttCredit(rttSaved))
}

// turn puts a pod in line, unless it cannot have sent anything.
func (c *rtts) turn(p *podEntry, now unit.Micros) {
	s := c.of.of(&p.entry)
	switch {
	case p.rested && s.at != 0:
	case len(s.known) == 0:
		c.join(&c.need, p)
	default:
		c.join(&c.follow, p)
		if now-s.walked >= rttAgain {
			c.join(&c.again, p)
		}
	}
}

// join puts a pod at the end of a line, unless it stands there or is being looked at.
func (c *rtts) join(l *rttLine, p *podEntry) {
	if !slices.Contains(*l, p) && (c.under != l || !slices.Contains(c.asked, p)) {
		*l = append(*l, p)
	}
}

func (l *rttLine) leave(e *entry) {
	*l = slices.DeleteFunc(*l, func(p *podEntry) bool { return &p.entry == e })
}

// ask has the first in line looked at.
func (c *rtts) ask(l *rttLine, limit rttCredit, now unit.Micros, slow uint64) {
	n := min(len(*l), rttBatch)
	c.asked = append(c.asked[:0], (*l)[:n]...)
	*l = slices.Delete(*l, 0, n)
	c.batch.Questions = c.batch.Questions[:0]
	for _, p := range c.asked {
		// Of a pod that is new what counts is the last slow interval; and by that it is told who is worth following.
		s := c.of.of(&p.entry)
		q := sockdiag.Question{PID: p.pod.PID, Since: turns(slow)}
		if s.at != 0 && (l == &c.follow || s.since(now) > q.Since) {
			q.Since = s.since(now)
		}
		if l == &c.follow {
			q.Known = s.known
		}
		c.batch.Questions = append(c.batch.Questions, q)
	}
	c.batch.Limit, c.askedAt = time.Duration(limit), now
	c.under, c.followed = l, l == &c.follow
	c.look.Ask(&c.batch)
}

// turns is a slow interval.
func turns(slow uint64) time.Duration {
	return time.Duration(slow) * time.Second //nolint:gosec // a few ticks
}

// since is the time that nothing has been told of yet.
func (s *rttState) since(now unit.Micros) time.Duration {
	return time.Duration(now-s.at) * time.Microsecond
}

// take tells what was found. Who was not looked at, because the time was up, is the first in line again.
func (c *rtts) take(t *tick, b *sockdiag.Batch, now unit.Micros) {
	l := c.under
	c.under = nil
	if l == &c.follow {
		c.follows -= rttCredit(b.Spent)
	} else {
		c.walks -= rttCredit(b.Spent)
	}
	for i, a := range b.Answers {
		p := c.asked[i]
		if p == nil {
			continue
		}
		if a.Err != nil {
			t.fail(a.Err)
		}
		if s := c.of.of(&p.entry); c.learn(l, p, s, &a, t.slow) && a.Connections > 0 {
			t.emit(p.subject, sample.NetworkRTT, float64(a.RTT.Microseconds()), now)
		}
	}
	rest := slices.DeleteFunc(c.asked[len(b.Answers):], func(p *podEntry) bool { return p == nil })
	*l = slices.Insert(*l, 0, rest...)
	c.asked = c.asked[:0]
}

// learn takes in what an answer says of the pod's connections, and reports whether it is news of their round trips.
func (c *rtts) learn(l *rttLine, p *podEntry, s *rttState, a *sockdiag.Answer, slow uint64) (news bool) {
	if l == &c.follow {
		s.known = a.Known
		if a.Err != nil || 2*len(a.Known) < s.brought {
			// What is left is not what was told of before, and a walk tells of the same time.
			s.known = nil
			c.join(&c.need, p)
			return false
		}
		if a.Connections > 0 {
			s.at = c.askedAt
		}
		return true
	}
	if a.Err != nil {
		return false // what is known may be followed all the same
	}
	s.known, s.walked, s.brought = a.Known, c.askedAt, len(a.Known)
	if s.at != 0 && s.since(c.askedAt) < turns(slow)/2 {
		return false // followed a moment ago
	}
	s.at = c.askedAt
	c.follow.leave(&p.entry) // all of this turn is told
	return true
}

func (c *rtts) forget(e *entry) {
	c.of.forget(e)
	for _, l := range []*rttLine{&c.need, &c.again, &c.follow} {
		l.leave(e)
	}
	for i, p := range c.asked {
		if p != nil && &p.entry == e {
			c.asked[i] = nil
		}
	}
}

func (c *rtts) close() { c.look.Close() }
