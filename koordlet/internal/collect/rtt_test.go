// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
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

// fakeLooker has each question answered by the next Take, as far as the time goes; a walk for a process takes cost, and to follow one a tenth of it.
type fakeLooker struct {
	under  *sockdiag.Batch
	cost   time.Duration
	rtt    map[int]time.Duration // without one: none that was active
	known  map[int]int           // so many connections are there
	err    error
	log    []string // questions that were answered; those about known connections with their number
	walked time.Duration
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
		a := sockdiag.Answer{RTT: f.rtt[q.PID], Err: f.err}
		text := fmt.Sprint(q.PID, " ", q.Since)
		if n := len(q.Known); n > 0 {
			text += fmt.Sprint(" of ", n)
			b.Spent += f.cost / 10
			a.Known = q.Known[:min(n, f.known[q.PID])]
			clear(q.Known[len(a.Known):]) // they are the looker's
		} else {
			b.Spent += f.cost
			f.walked += f.cost
			a.Known = make([]sockdiag.Connection, f.known[q.PID])
		}
		if f.log = append(f.log, text); f.err != nil {
			a = sockdiag.Answer{Err: f.err}
		}
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

// TestRTTFollow: known connections are followed at each slow turn; the pod is walked for once a minute beside them, which tells of it in their place, and at
// once where fewer than half of them are left. A follow without news is told of with the next.
func TestRTTFollow(t *testing.T) {
	t.Parallel()
	_, f, _, scan := newRTTRig(t, 1, 3)
	f.rtt[100], f.known[100] = 250*time.Microsecond, 4
	told := 0
	seen := func(ticks int) string {
		told = 0
		for range ticks {
			told += len(scan(false))
		}
		return f.asked()
	}
	check := func(what string, ticks int, want string, emits int) {
		t.Helper()
		if got := seen(ticks); got != want || told != emits {
			t.Errorf("%s: %s, told %d times; want %s, %d", what, got, told, want, emits)
		}
	}
	check("a walk, then known ones", 7, "100 3s, 100 3s of 4", 2)
	if follows := strings.Count(seen(51), "100 3s of 4"); follows != 17 || told != 17 {
		t.Errorf("%d follows in 17 turns, told %d times", follows, told)
	}
	check("after a minute", 6, "100 3s of 4, 100 3s", 2)
	f.rtt[100] = 0
	check("none was active", 6, "100 3s of 4, 100 6s of 4", 0)
	f.rtt[100] = 250 * time.Microsecond
	f.known[100] = 2
	check("half of them left", 3, "100 9s of 4", 1)
	f.known[100] = 1
	check("fewer than half, told of by a walk", 3, "100 3s of 2, 100 4s", 1)
}

// TestRTTLearn: what an answer leaves known, whether it is news, and whether the pod is walked for before others.
func TestRTTLearn(t *testing.T) {
	t.Parallel()
	const slow, now = 10, 100 * unit.Second
	known := func(n int) []sockdiag.Connection { return make([]sockdiag.Connection, n) }
	failed := errors.New("no memory")
	for name, tc := range map[string]struct {
		follow bool
		before rttState
		answer sockdiag.Answer
		want   rttState
		news   bool
		need   bool
	}{
		"first walk":               {false, rttState{}, sockdiag.Answer{Known: known(3), Connections: 2}, rttState{now, now, known(3), 3}, true, false},
		"a walk finds nobody":      {false, rttState{at: 5}, sockdiag.Answer{}, rttState{at: now, walked: now}, true, false},
		"a walk after a follow":    {false, rttState{now - 2*unit.Second, 5, known(3), 3}, sockdiag.Answer{Known: known(4), Connections: 4}, rttState{now - 2*unit.Second, now, known(4), 4}, false, false},
		"a walk fails":             {false, rttState{7, 5, known(3), 3}, sockdiag.Answer{Err: failed}, rttState{7, 5, known(3), 3}, false, false},
		"a follow":                 {true, rttState{7, 5, known(3), 4}, sockdiag.Answer{Known: known(2), Connections: 1}, rttState{now, 5, known(2), 4}, true, false},
		"a follow without news":    {true, rttState{7, 5, known(3), 4}, sockdiag.Answer{Known: known(3)}, rttState{7, 5, known(3), 4}, true, false},
		"fewer than half are left": {true, rttState{7, 5, known(2), 4}, sockdiag.Answer{Known: known(1), Connections: 1}, rttState{7, 5, nil, 4}, false, true},
		"a follow fails":           {true, rttState{7, 5, known(3), 4}, sockdiag.Answer{Err: failed}, rttState{7, 5, nil, 4}, false, true},
	} {
		c, p := &rtts{askedAt: now}, &podEntry{}
		l, s := &c.need, c.of.of(&p.entry)
		if tc.follow {
			l = &c.follow
		}
		*s = tc.before
		if news := c.learn(l, p, s, &tc.answer, slow); news != tc.news || !slices.Equal(s.known, tc.want.known) || s.at != tc.want.at || s.walked != tc.want.walked || s.brought != tc.want.brought {
			t.Errorf("%s: news %v, %+v", name, news, *s)
		}
		if need := slices.Contains(c.need, p); need != tc.need {
			t.Errorf("%s: walked for before others: %v", name, need)
		}
	}
}

// TestRTTPace: where walking is dear, pods wait in line, nobody twice before all have had their turn, and the time that is spent stays
// within its share. Who has known connections is followed at each turn meanwhile, and is walked for after those who have none.
func TestRTTPace(t *testing.T) {
	t.Parallel()
	_, f, _, scan := newRTTRig(t, 4, 1)
	f.cost = 900 * time.Microsecond // six seconds' share
	walks, follows := map[string]int{}, 0
	last := ""
	const ticks = 240
	for n := range ticks {
		if n == 60 {
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
	if others := []int{walks["101"], walks["102"], walks["103"]}; slices.Min(others) < 11 || slices.Max(others)-slices.Min(others) > 1 {
		t.Errorf("those without were walked for %v times", others)
	}
	if walks["100"] > 4 || follows < 80 {
		t.Errorf("the one with a connection was walked for %d times, followed %d times", walks["100"], follows)
	}
	if f.walked > ticks*rttShare+f.cost {
		t.Errorf("walks took %v in %d s", f.walked, ticks)
	}
	// After a long rest no more than rttSaved is spent at once.
	for range 40 {
		scan(true)
	}
	if scan(false); f.under == nil || f.under.Limit <= 0 || f.under.Limit > rttSaved {
		t.Errorf("%+v at once", f.under)
	}
}

// TestRTTFollowPace: to follow has a share of its own; who is not looked at, because it is used up, is the first next time.
func TestRTTFollowPace(t *testing.T) {
	t.Parallel()
	_, f, _, scan := newRTTRig(t, 6, 1)
	for i := range 6 {
		f.rtt[100+i], f.known[100+i] = time.Millisecond, 1
	}
	for range 10 {
		scan(false)
	}
	f.asked()
	f.cost = 5 * time.Millisecond // half a millisecond for each that is followed: three in ten seconds
	for range 30 {
		scan(true) // the credit is full, for six
	}
	f.asked()
	counts := map[string]int{}
	for range 60 {
		scan(false)
		for q := range strings.SplitSeq(f.asked(), ", ") {
			if pid, rest, ok := strings.Cut(q, " "); ok && strings.HasSuffix(rest, " of 1") {
				counts[pid]++
			}
		}
	}
	for i := range 6 {
		if n := counts[strconv.Itoa(100+i)]; n < 3 || n > 6 { // 60 s and the six of before
			t.Errorf("%d was followed %d times: %v", 100+i, n, counts)
		}
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
	if len(c.of.m)+len(c.need)+len(c.again)+len(c.follow)+len(c.asked) != 0 {
		t.Errorf("%d pods are remembered, %d, %d and %d in line, %d asked about", len(c.of.m), len(c.need), len(c.again), len(c.follow), len(c.asked))
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
