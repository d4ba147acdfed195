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

// rtts tells the round trip time of pods: the median over their TCP connections that have sent something and heard an answer since the
// look before. A slow connection shows as soon as it is used, and one that nobody uses says nothing.
//
// To find a pod's connections the kernel walks its whole table of them, which on a large machine takes milliseconds; a connection that is
// known it finds at once. So at each slow turn a pod's known connections are followed, and it is walked for where none is known, none was
// active or half of them have ended, and once in rttAgain. Nobody waits for either: a thread of sockdiag looks, and what it has found is told a
// tick later. Each of the two has a share of CPU time; where that is not enough, pods wait in line. Not looked at are pods that have not run
// since, those of the host's network, and best-effort ones, which nobody protects.
type rtts struct {
	look          looker
	of            each[rttState]
	walk, follow  rttLine
	under, before *rttLine // whose batch is under way, and whose was before it
	// asked are the pods of the batch under way; nil in place of one that has gone since.
	asked   []*podEntry
	batch   sockdiag.Batch
	askedAt unit.Micros
	at      unit.Micros // credits grew until then
}

// rttLine are the pods that wait for one kind of look, each once.
type rttLine struct {
	pods []*podEntry
	// credit is the CPU time that may be spent, below zero after a look that was dearer.
	credit time.Duration
}

// rttState is one pod's.
type rttState struct {
	// at is when it was looked at last, and walked when it was walked for, 0 for never.
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
	for _, l := range []*rttLine{&c.walk, &c.follow} {
		if c.at != 0 && now > c.at {
			l.credit = min(l.credit+time.Duration((now-c.at).Seconds()*float64(rttShare)), rttSaved)
		}
	}
	c.at = now
	if c.under != nil {
		return
	}
	switch walk, follow := c.walk.ready(), c.follow.ready(); {
	case walk && (!follow || c.before == &c.follow):
		c.ask(&c.walk, now, t.slow)
	case follow:
		c.ask(&c.follow, now, t.slow)
	}
}

// turn puts a pod in line, unless it cannot have sent anything.
func (c *rtts) turn(p *podEntry, now unit.Micros) {
	s := c.of.of(&p.entry)
	if p.rested && s.at != 0 {
		return
	}
	if len(s.known) > 0 {
		c.join(&c.follow, p)
	}
	if len(s.known) == 0 || now-s.walked >= rttAgain {
		c.join(&c.walk, p)
	}
}

// join puts a pod at the end of a line, unless it stands there or is being looked at.
func (c *rtts) join(l *rttLine, p *podEntry) {
	if !slices.Contains(l.pods, p) && (c.under != l || !slices.Contains(c.asked, p)) {
		l.pods = append(l.pods, p)
	}
}

func (l *rttLine) leave(e *entry) {
	l.pods = slices.DeleteFunc(l.pods, func(p *podEntry) bool { return &p.entry == e })
}

func (l *rttLine) ready() bool { return len(l.pods) > 0 && l.credit > 0 }

// ask has the first in line looked at. For a pod that is new what counts is the last slow interval.
func (c *rtts) ask(l *rttLine, now unit.Micros, slow uint64) {
	n := min(len(l.pods), rttBatch)
	c.asked = append(c.asked[:0], l.pods[:n]...)
	l.pods = slices.Delete(l.pods, 0, n)
	c.batch.Questions = c.batch.Questions[:0]
	for _, p := range c.asked {
		q := sockdiag.Question{PID: p.pod.PID, Since: time.Duration(slow) * time.Second} //nolint:gosec // a few ticks
		s := c.of.of(&p.entry)
		if s.at != 0 {
			q.Since = time.Duration(now-s.at) * time.Microsecond
		}
		if l == &c.follow {
			q.Known = s.known
		}
		c.batch.Questions = append(c.batch.Questions, q)
	}
	c.batch.Limit, c.askedAt = l.credit, now
	c.under, c.before = l, l
	c.look.Ask(&c.batch)
}

// take tells what was found. Who was not looked at, because the time was up, is the first in line again.
func (c *rtts) take(t *tick, b *sockdiag.Batch, now unit.Micros) {
	l := c.under
	c.under = nil
	l.credit -= b.Spent
	for i, a := range b.Answers {
		p := c.asked[i]
		if p == nil {
			continue
		}
		s := c.of.of(&p.entry)
		s.known = a.Known
		switch {
		case l == &c.walk:
			s.at, s.walked, s.brought = c.askedAt, c.askedAt, len(a.Known)
			c.follow.leave(&p.entry) // all of this turn is told
		case a.Connections > 0:
			s.at = c.askedAt
		}
		if l == &c.follow && (a.Connections == 0 || 2*len(a.Known) < s.brought) {
			c.join(&c.walk, p)
		}
		switch {
		case a.Err != nil:
			t.fail(a.Err)
		case a.Connections > 0:
			t.emit(p.subject, sample.NetworkRTT, float64(a.RTT.Microseconds()), now)
		}
	}
	rest := slices.DeleteFunc(c.asked[len(b.Answers):], func(p *podEntry) bool { return p == nil })
	l.pods = slices.Insert(l.pods, 0, rest...)
	c.asked = c.asked[:0]
}

func (c *rtts) forget(e *entry) {
	c.of.forget(e)
	for _, l := range []*rttLine{&c.walk, &c.follow} {
		l.leave(e)
	}
	for i, p := range c.asked {
		if p != nil && &p.entry == e {
			c.asked[i] = nil
		}
	}
}

func (c *rtts) close() { c.look.Close() }
