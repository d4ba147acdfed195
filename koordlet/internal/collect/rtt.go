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
// The kernel walks its whole table of connections for one pod, so a look costs what the machine's table does. Nobody waits for it: a thread of sockdiag looks, and what it has found is told a tick later.
// It has rttShare of CPU time for it; where that is not enough for a look at each slow turn, pods wait in line. Not looked at are pods
// that have not run since, those of the host's network, and best-effort ones, which nobody protects.
type rtts struct {
	look looker
	of   each[rttState]
	// line are the pods whose turn it is, asked those in the batch under way; nil in place of one that has gone since.
	line, asked []*podEntry
	batch       sockdiag.Batch
	under       bool
	askedAt     unit.Micros
	// credit is the CPU time that may be spent, below zero after a look that was dearer; it grew until at.
	credit time.Duration
	at     unit.Micros
}

// rttState is one pod's.
type rttState struct {
	// at is when it was looked at, 0 for never.
	at     unit.Micros
	inLine bool
}

// looker is *sockdiag.Looker.
type looker interface {
	Ask(b *sockdiag.Batch) bool
	Take() *sockdiag.Batch
	Close()
}

const (
	// rttShare is the CPU time that looking may take in a second, 0.03 % of a CPU; rttSaved is the most that is saved up.
	rttShare = 300 * time.Microsecond
	rttSaved = 3 * time.Millisecond
	rttBatch = 32
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
			c.queue(p)
		}
	}
	if c.at != 0 && now > c.at {
		c.credit = min(c.credit+time.Duration((now-c.at).Seconds()*float64(rttShare)), rttSaved)
	}
	c.at = now
	if !c.under && len(c.line) > 0 && c.credit > 0 {
		c.ask(now, t.slow)
	}
}

// queue puts a pod in line, unless it stands there or cannot have sent anything.
func (c *rtts) queue(p *podEntry) {
	s := c.of.of(&p.entry)
	if s.inLine || p.rested && s.at != 0 {
		return
	}
	s.inLine = true
	c.line = append(c.line, p)
}

// ask has the first in line looked at. For a pod that is new what counts is the last slow interval.
func (c *rtts) ask(now unit.Micros, slow uint64) {
	n := min(len(c.line), rttBatch)
	c.asked = append(c.asked[:0], c.line[:n]...)
	c.line = slices.Delete(c.line, 0, n)
	c.batch.Questions = c.batch.Questions[:0]
	for _, p := range c.asked {
		since := time.Duration(slow) * time.Second //nolint:gosec // a few ticks
		if s := c.of.of(&p.entry); s.at != 0 {
			since = time.Duration(now-s.at) * time.Microsecond
		}
		c.batch.Questions = append(c.batch.Questions, sockdiag.Question{PID: p.pod.PID, Since: since})
	}
	c.batch.Limit, c.askedAt = c.credit, now
	c.under = c.look.Ask(&c.batch)
}

// take tells what was found. Who was not looked at, because the time was up, is the first in line again.
func (c *rtts) take(t *tick, b *sockdiag.Batch, now unit.Micros) {
	c.under = false
	c.credit -= b.Spent
	rest := c.asked[len(b.Answers):]
	for i, a := range b.Answers {
		p := c.asked[i]
		if p == nil {
			continue
		}
		*c.of.of(&p.entry) = rttState{at: c.askedAt}
		switch {
		case a.Err != nil:
			t.fail(a.Err)
		case a.Connections > 0:
			t.emit(p.subject, sample.NetworkRTT, float64(a.RTT.Microseconds()), now)
		}
	}
	rest = slices.DeleteFunc(rest, func(p *podEntry) bool { return p == nil })
	c.line = slices.Insert(c.line, 0, rest...)
	c.asked = c.asked[:0]
}

func (c *rtts) forget(e *entry) {
	c.of.forget(e)
	c.line = slices.DeleteFunc(c.line, func(p *podEntry) bool { return &p.entry == e })
	for i, p := range c.asked {
		if p != nil && &p.entry == e {
			c.asked[i] = nil
		}
	}
}

func (c *rtts) close() { c.look.Close() }
