// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/sockdiag"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// fakeLooker has each question answered by the next Take, as far as the time goes; a look at a process takes cost.
type fakeLooker struct {
	under  *sockdiag.Batch
	cost   time.Duration
	rtt    map[int]time.Duration // without one: no connections
	err    error
	log    []string // questions that were answered
	closed bool
}

func (f *fakeLooker) Ask(b *sockdiag.Batch) bool {
	f.under = b
	return true
}

func (f *fakeLooker) Take() *sockdiag.Batch {
	b := f.under
	if b == nil {
		return nil
	}
	f.under = nil
	b.Answers, b.Spent = b.Answers[:0], 0
	for _, q := range b.Questions {
		if b.Spent >= b.Limit {
			break
		}
		b.Spent += f.cost
		f.log = append(f.log, fmt.Sprint(q.PID, " ", q.Since))
		a := sockdiag.Answer{RTT: f.rtt[q.PID], Err: f.err}
		if a.RTT > 0 {
			a.Connections = 3
		}
		b.Answers = append(b.Answers, a)
	}
	return b
}

func (f *fakeLooker) Close() { f.closed = true }

// asked are the questions since the last call.
func (f *fakeLooker) asked() string {
	defer func() { f.log = nil }()
	return strings.Join(f.log, ", ")
}

// newRTTRig follows LS pods, all in the place of the recorded one, that run in each tick; slow is their slow interval.
func newRTTRig(t *testing.T, pods, slow int) (r *rig, f *fakeLooker, whom Targets, scan func(rest bool) []string) {
	t.Helper()
	r = newRig(t, "6.12-v2", node.CgroupV2, func(o *Options) { o.Slow = slow })
	f = &fakeLooker{cost: 10 * time.Microsecond, rtt: map[int]time.Duration{}}
	r.running = append(r.running, running{&rtts{look: f}})
	like := targets(node.CgroupV2).Pods[1]
	like.Containers = nil
	for i := range pods {
		like.UID, like.PID = fmt.Sprint("p", i), 100+i
		whom.Pods = append(whom.Pods, like)
	}
	r.Follow(Targets{Pods: slices.Clone(whom.Pods)})
	ran := 0
	return r, f, whom, func(rest bool) []string {
		if !rest {
			ran++
		}
		r.record.Put(t, "sys/fs/cgroup"+like.Cgroup+"/cpu.stat", fmt.Sprintf(cpuStat, 50_000_000+ran, 0, 0))
		r.now += unit.Second
		r.scan(t)
		return r.only(sample.NetworkRTT)
	}
}

// TestRTT: a pod is looked at in its slow turn and told of in the tick after; what counts is the time since the look before.
func TestRTT(t *testing.T) {
	t.Parallel()
	_, f, _, scan := newRTTRig(t, 1, 3)
	f.rtt[100] = 250 * time.Microsecond
	var told []string
	ticks := func(n int, rest bool) string {
		told = nil
		for range n {
			told = append(told, scan(rest)...)
		}
		return f.asked()
	}
	if got := ticks(4, false); got != "100 3s" {
		t.Errorf("first: %s", got)
	}
	expect(t, "first", told, "pod/p0 network_rtt 250")
	f.rtt[100] = 0
	if got := ticks(3, false); got != "100 3s" {
		t.Errorf("second: %s", got)
	}
	expect(t, "nobody has sent anything", told)
	ticks(3, true)
	if got := ticks(6, true); got != "" {
		t.Errorf("of a pod at rest: %s", got)
	}
	f.rtt[100] = 300 * time.Microsecond
	if got := ticks(6, false); got != "100 9s, 100 3s" {
		t.Errorf("awake again, all that it did since the last look counts: %s", got)
	}
	expect(t, "awake again", told, "pod/p0 network_rtt 300", "pod/p0 network_rtt 300")
}

// TestRTTPace: where looking is dear, pods wait in line, nobody twice before all have had their turn, and the time that is spent stays
// within its share.
func TestRTTPace(t *testing.T) {
	t.Parallel()
	_, f, _, scan := newRTTRig(t, 4, 1)
	f.cost = 900 * time.Microsecond // three seconds' share
	counts := map[string]int{}
	last := ""
	const ticks = 60
	for range ticks {
		scan(false)
		for q := range strings.SplitSeq(f.asked(), ", ") {
			if pid, _, ok := strings.Cut(q, " "); ok {
				counts[pid]++
				n, err := strconv.Atoi(pid)
				if prev, _ := strconv.Atoi(last); err != nil || last != "" && n != 100+(prev-100+1)%4 {
					t.Errorf("%s after %s", pid, last)
				}
				last = pid
			}
		}
	}
	total := 0
	for pid, n := range counts {
		total += n
		if n < 4 || n > 6 {
			t.Errorf("%s was looked at %d times", pid, n)
		}
	}
	if spent := time.Duration(total) * f.cost; spent > ticks*rttShare+f.cost {
		t.Errorf("%v in %d s", spent, ticks)
	}
	// After a long rest no more than rttSaved is spent at once.
	f.cost = time.Microsecond
	for range 30 {
		scan(true)
	}
	if f.under != nil && f.under.Limit > rttSaved {
		t.Errorf("%v at once", f.under.Limit)
	}
}

// TestRTTWho: not the host's network, not best effort, nobody without a process; who goes while it is looked at is not told of.
func TestRTTWho(t *testing.T) {
	t.Parallel()
	r, f, whom, scan := newRTTRig(t, 5, 1)
	for i := range 5 {
		f.rtt[100+i] = time.Millisecond
	}
	whom.Pods[1].HostNetwork, whom.Pods[2].QoS, whom.Pods[3].PID = true, protocol.QoSBE, 0
	r.Follow(Targets{Pods: slices.Clone(whom.Pods)})
	scan(false)
	scan(false)
	expect(t, "who counts", scan(false), "pod/p0 network_rtt 1000", "pod/p4 network_rtt 1000")
	r.Follow(Targets{Pods: slices.Clone(whom.Pods[1:])})
	expect(t, "one went", scan(false), "pod/p4 network_rtt 1000")
	r.Follow(Targets{})
	expect(t, "all went", scan(false))
	c := r.running[len(r.running)-1].collector.(*rtts)
	if len(c.of.m)+len(c.line)+len(c.asked) != 0 {
		t.Errorf("%d pods are remembered, %d in line, %d asked about", len(c.of.m), len(c.line), len(c.asked))
	}
	f.err = fmt.Errorf("no way in")
	r.Follow(Targets{Pods: slices.Clone(whom.Pods[4:])})
	failed := 0
	for range 3 {
		r.now += unit.Second
		failed += r.Scan(func([]sample.Sample) {}).Failed
	}
	if failed == 0 {
		t.Error("an error was lost")
	}
	r.Close()
	if !f.closed {
		t.Error("the thread lives on")
	}
}
