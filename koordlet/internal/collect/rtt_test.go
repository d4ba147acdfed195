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

// fakeLooker has each question answered by the next Take, as far as the time goes; a walk for a process takes cost, and to follow nothing.
type fakeLooker struct {
	under  *sockdiag.Batch
	cost   time.Duration
	rtt    map[int]time.Duration // without one: none that was active
	known  map[int]int           // so many connections are there to follow
	err    error
	log    []string // questions that were answered; those about known connections with their number
	spent  time.Duration
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
		text := fmt.Sprint(q.PID, " ", q.Since)
		if n := len(q.Known); n > 0 {
			text += fmt.Sprint(" of ", n)
		} else {
			b.Spent += f.cost
			f.spent += f.cost
		}
		f.log = append(f.log, text)
		a := sockdiag.Answer{RTT: f.rtt[q.PID], Err: f.err, Known: make([]sockdiag.Connection, f.known[q.PID])}
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
	f = &fakeLooker{cost: 10 * time.Microsecond, rtt: map[int]time.Duration{}, known: map[int]int{}}
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

// TestRTTFollow: known connections are followed at each slow turn; the pod is walked for beside them once a minute, and at once where fewer than
// half of them are left or none was active. A walk that is due to a follow without news tells of all the time since there was some.
func TestRTTFollow(t *testing.T) {
	t.Parallel()
	_, f, _, scan := newRTTRig(t, 1, 3)
	f.rtt[100], f.known[100] = 250*time.Microsecond, 4
	seen := func(n int) string {
		for range n {
			scan(false)
		}
		return f.asked()
	}
	if got, want := seen(7), "100 3s, 100 3s of 4"; got != want {
		t.Errorf("a walk, then known ones: %s, want %s", got, want)
	}
	follows := strings.Count(seen(51), "of 4")
	if follows != 17 {
		t.Errorf("%d follows in 17 turns", follows)
	}
	if got, want := seen(6), "100 3s of 4, 100 3s"; got != want {
		t.Errorf("after a minute: %s, want %s", got, want)
	}
	f.known[100] = 2
	if got, want := seen(3), "100 3s of 4"; got != want {
		t.Errorf("half of them left: %s, want %s", got, want)
	}
	f.known[100] = 1
	if got, want := seen(3), "100 3s of 2, 100 1s"; got != want {
		t.Errorf("fewer than half: %s, want %s", got, want)
	}
	f.rtt[100] = 0
	if got, want := seen(3), "100 2s of 1, 100 3s"; got != want {
		t.Errorf("none was active: %s, want %s", got, want)
	}
}

// TestRTTPace: where walking is dear, pods wait in line, nobody twice before all have had their turn, and the time that is spent stays
// within its share. Who has known connections is followed at each turn meanwhile.
func TestRTTPace(t *testing.T) {
	t.Parallel()
	_, f, _, scan := newRTTRig(t, 4, 1)
	f.cost = 900 * time.Microsecond // six seconds' share
	walks, follows := map[string]int{}, 0
	last := ""
	const ticks = 120
	for n := range ticks {
		if n == ticks/2 {
			f.rtt[100], f.known[100] = time.Millisecond, 1 // it has got a connection that stays
		}
		scan(false)
		for q := range strings.SplitSeq(f.asked(), ", ") {
			pid, rest, ok := strings.Cut(q, " ")
			if !ok {
				continue
			}
			if strings.HasSuffix(rest, " of 1") {
				follows++
				continue
			}
			walks[pid]++
			n, err := strconv.Atoi(pid)
			if prev, _ := strconv.Atoi(last); err != nil || follows == 0 && last != "" && n != 100+(prev-100+1)%4 {
				t.Errorf("%s after %s", pid, last)
			}
			last = pid
		}
	}
	for pid, n := range walks {
		if n < 4 || n > 7 {
			t.Errorf("%s was walked for %d times", pid, n)
		}
	}
	if walks["100"] > 4 || follows < 20 {
		t.Errorf("the one with a connection was walked for %d times, followed %d times", walks["100"], follows)
	}
	if f.spent > ticks*rttShare+f.cost {
		t.Errorf("%v in %d s", f.spent, ticks)
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
	if len(c.of.m)+len(c.walk.pods)+len(c.follow.pods)+len(c.asked) != 0 {
		t.Errorf("%d pods are remembered, %d and %d in line, %d asked about", len(c.of.m), len(c.walk.pods), len(c.follow.pods), len(c.asked))
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
