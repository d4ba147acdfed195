// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// What first and second ask for, and their memory.high: 80 % of it. All pods of best effort ask for tierAsks.
const (
	asks      = 512 * mib
	throttled = asks / 100 * 80 &^ 4095
	tierAsks  = 2*asks + 2*64*mib
	firstHas  = 384 * mib
)

// counts are what the kernel counts of the memory of a cgroup and all below it.
type counts struct {
	stalled int // µs in which all of its tasks waited for memory
	high    int // how often it met its memory.high
	given   int // bytes that were reclaimed
}

func (n *served) counts(dir string) counts {
	n.t.Helper()
	return counts{
		n.stall(dir, "memory.pressure", "full"), event(n.file(dir, "memory.events"), "high"), event(n.file(dir, "memory.stat"), "pgsteal") * 4096,
	}
}

// holds is a container's anonymous memory in bytes.
func (n *served) holds(pod cluster.Object) (int, error) {
	text, err := cgroups.Read(n.dir(pod), "memory.stat")
	return event(text, "anon"), err
}

// writes has a container write so much into a file of its own, and keep it as page cache.
func (n *served) writes(pod cluster.Object, file string, size int) {
	n.t.Helper()
	pids := cgroups.Pids(n.dir(pod))
	if len(pids) == 0 {
		n.t.Fatalf("%s has no processes", pod.Str("metadata", "name"))
	}
	n.insideOf(n.dir(pod), writing(cacheFile(pids[0])+file, size))
}

// reclaimed is A8 and F2-3 of the documents: best effort that uses 45 % of the memory that it asks for gives page cache back, below that
// nothing; its tasks do not wait for that, as they do in one that meets its memory.high (F2-4). Nobody is evicted.
func (n *served) reclaimed() {
	n.t.Helper()
	const mark = tierAsks / 100 * 45
	n.put(map[string]any{
		"resourceQOSStrategy": map[string]any{"beClass": map[string]any{"memoryQOS": map[string]any{
			"enable": true, "throttlingPercent": 80, "wmarkRatio": 0,
		}}},
		"resourceUsedThresholdWithBE": map[string]any{"cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 100},
	})
	const each = `"kubernetes.io/batch-memory":"512Mi"`
	main, volume := n.stressed(taking(firstHas))
	n.batch("first", "batch-low", "", each, main, volume)
	n.batch("second", "batch-high", `koordinator.sh/priority: "5300"`, each, "")
	first, second, be, idle := n.ready("first"), n.ready("second"), n.ready("be"), n.ready("idle")
	n.have(second, "memory.high="+strconv.Itoa(throttled))
	n.have(idle, "memory.high=53686272")
	n.within(20*time.Second, "anonymous memory of first", firstHas, firstHas+16*mib, func() (int, error) { return n.holds(first) })
	seen := n.disruptions()

	before := n.counts(n.dir(idle))
	for i := range 3 { // what is on the disk already can be dropped when the next needs room
		n.writes(idle, strconv.Itoa(i), 32*mib)
	}
	met := n.counts(n.dir(idle))
	if met.high <= before.high || met.stalled <= before.stalled {
		n.t.Errorf("F2-4: idle wrote 96 MiB with a memory.high of 51: %+v before, %+v after", before, met)
	}

	n.put(withBE(map[string]any{"memoryRequestUtilizationPercent": 45}))
	uses := func() (sum int, err error) {
		for _, pod := range []cluster.Object{first, second, be, idle} {
			used, err := n.bytes(n.dir(pod), "memory.current")
			if err != nil {
				return 0, err
			}
			sum += used
		}
		return sum, nil
	}
	calm, err := uses()
	if err != nil || calm > mark-16*mib {
		n.t.Fatalf("best effort uses %d, %v, which is no less than the mark of %d", calm, err, mark)
	}
	before = n.counts(n.besteffort())
	n.a.ticks(3, quietly)
	if now := n.counts(n.besteffort()); now != before {
		n.t.Errorf("A8: best effort uses %d MiB of %d and is reclaimed: %+v, then %+v", calm/mib, tierAsks/mib, before, now)
	}
	size := (tierAsks/100*50 - calm + 65535) &^ 65535 // half of what it asks for
	n.writes(second, "", size)
	left := n.within(20*time.Second, "memory of best effort above the mark", 0, mark, uses)
	after := n.counts(n.besteffort())
	if given := after.given - before.given; given < tierAsks/100*4 || after.high != before.high || after.stalled != before.stalled {
		n.t.Errorf("A8, F2-3: best effort has given %d MiB, and its counts went from %+v to %+v", given/mib, before, after)
	}
	if got := seen(); len(got) != 0 {
		n.t.Errorf("A8: %+v are to go", got)
	}
	n.untouched(first, second, be, idle)
	n.tell("A8: best effort asks for %d MiB, the mark is %d: at %d nothing is reclaimed, after %d more %d are used; its counts %+v → %+v; "+
		"of idle at its memory.high %+v", tierAsks/mib, mark/mib, calm/mib, size/mib, left/mib, before, after, met)
}

// lowest follows a control file with a number.
type lowest struct {
	mu    sync.Mutex
	value int
	at    time.Time // when it first fell below what it was
}

func (l *lowest) seen() (value int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.at
}

// gives says when best effort has given back more than that much, since its beginning.
func (n *served) gives(most int) *lowest {
	l, ctx, dir := new(lowest), n.t.Context(), n.besteffort()
	go func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if text, err := cgroups.Read(dir, "memory.stat"); err == nil && event(text, "pgsteal")*4096 > most {
				l.mu.Lock()
				l.at = time.Now()
				l.mu.Unlock()
				return
			}
		}
	}()
	return l
}

// lowest looks until the step ends: what stands for a few seconds only is not missed by who looks later.
func (n *served) lowest(pod cluster.Object, file string, was int) *lowest {
	l, ctx, dir := &lowest{value: was}, n.t.Context(), n.dir(pod)
	go func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			v, err := n.bytes(dir, file)
			if err != nil {
				continue // the last word stays
			}
			l.mu.Lock()
			if v < l.value && l.at.IsZero() {
				l.at = time.Now()
			}
			l.value = min(l.value, v)
			l.mu.Unlock()
		}
	}()
	return l
}

// evicted: stress-ng in an LS pod takes more memory than the node may use. Best effort gives page cache back and gets no more than it has, by
// memory.high; that is not enough, and the pod of the lowest priority goes, by an eviction that the API server accepts. The others stay,
// and have the memory.high that they had.
func (n *served) evicted() {
	n.t.Helper()
	first, second := n.ready("first"), n.ready("second")
	others := []cluster.Object{second, n.ready("be"), n.ready("idle"), n.ready("busy"), n.ready("ls"), n.ready("lsr")}
	busy := others[3]
	seen := n.disruptions()
	n.a.ticks(2, quietly) // the figure is of now
	threshold := int(n.a.usedPercent()) + 8
	n.put(withBE(map[string]any{"memoryRequestUtilizationPercent": nil, "memoryEvictThresholdPercent": threshold}))
	n.a.ticks(3, func() error {
		if now, err := n.bytes(n.dir(second), "memory.high"); err != nil || now != throttled {
			return fmt.Errorf("memory.high of second is %d on a calm node, %v", now, err)
		}
		return nil
	})
	before, high, calm := n.counts(n.besteffort()), n.lowest(second, "memory.high", throttled), n.a.usedPercent()
	gives := n.gives(before.given + mib)
	had, err := n.holds(busy)
	if err != nil {
		n.t.Fatal(err)
	}
	size := int((float64(threshold) + 4 - calm) / 100 * float64(n.memTotal()))
	begun, load := time.Now(), n.stressing([]string{n.dir(busy)}, taking(size)...)
	accepted := n.evictedAlone(first, seen)
	after := n.counts(n.besteffort())
	n.gone(first)
	held, at := high.seen()
	_, began := gives.seen()
	given := after.given - before.given
	if held >= throttled || at.After(accepted) || began.IsZero() || began.After(accepted) || given < 32*mib {
		n.t.Errorf("memory.high of second went from %d to %d at %s, best effort gave its first MiB back at %s, and %d in all, before the eviction of first was accepted at %s",
			throttled, held, at.Format(time.StampMilli), began.Format(time.StampMilli), given/mib, accepted.Format(time.StampMilli))
	}
	n.have(second, "memory.high="+strconv.Itoa(throttled))
	if now, err := n.holds(busy); err != nil || now < had+size {
		n.t.Errorf("busy has taken %d of %d, %v", now-had, size, err)
	}
	n.untouched(others...)
	n.evictedAlone(first, seen)
	n.tell("node at %.1f %% of its memory, threshold %d %%, stress-ng in an LS pod takes %d MiB: memory.high of second %d → %d after %s, %d MiB reclaimed; "+
		"the eviction of first was accepted after %s; node at %.1f %%", calm, threshold, size/mib, throttled, held, at.Sub(begun).Round(time.Millisecond),
		(after.given-before.given)/mib, accepted.Sub(begun).Round(time.Millisecond), n.a.usedPercent())
	load.stop()
}

// starved is A7 and O3 of the documents: of two best-effort pods of one priority that share one CPU, so that one of them always waits, the one with the lower
// label goes, and the other has the CPU then. Alone on it nobody waits, and nobody goes.
func (n *served) starved() {
	n.t.Helper()
	const above, cpu = 85, 6
	n.put(withBE(map[string]any{
		"memoryEvictThresholdPercent": 100, "cpuEvictPSIThresholdPercent": above, "cpuEvictTimeWindowSeconds": 6,
	}))
	idle, second := n.ready("idle"), n.ready("second")
	others := []cluster.Object{second, n.ready("be"), n.ready("busy"), n.ready("ls"), n.ready("lsr")}
	for _, pod := range []cluster.Object{idle, second} {
		n.have(pod, "cpuset.cpus=0-6") // no longer those of the policy cpuset
	}
	seen := n.disruptions()
	tier := n.besteffort()
	waits := func(begun time.Time, total int) float64 {
		return float64(n.stall(tier, "cpu.pressure", "some")-total) / float64(time.Since(begun).Microseconds()) * 100
	}
	begun, total := time.Now(), n.stall(tier, "cpu.pressure", "some")
	stop := n.spinOn([]string{n.dir(second)}, cpu)
	n.a.ticks(8, func() error {
		if got := seen(); len(got) != 0 {
			return fmt.Errorf("A7: %+v are to go, and best effort waits %.1f %% of the time", got, waits(begun, total))
		}
		return nil
	})
	alone := waits(begun, total)
	total = n.stall(tier, "cpu.pressure", "some")
	end := n.spinOn([]string{n.dir(idle)}, cpu)
	n.eventually(shortest, func() error { // the second process takes its time to begin
		if now := n.stall(tier, "cpu.pressure", "some"); now < total+100_000 {
			return fmt.Errorf("best effort has waited %d us, before the second process %d", now, total)
		}
		return nil
	})
	begun, total = time.Now(), n.stall(tier, "cpu.pressure", "some")
	accepted := n.evictedAlone(idle, seen)
	both := waits(begun, total)
	end() // the runtime waits for whoever is in a pod's cgroup
	n.gone(idle)
	if alone > above || both < above {
		n.t.Errorf("A7: best effort waits %.1f %% of the time with one process on a CPU, and %.1f %% with two", alone, both)
	}
	n.a.ticks(3, quietly) // one round, and it was enough
	n.evictedAlone(idle, seen)
	n.untouched(others...)
	n.freed(second, idle, begun)
	stop()
	n.tell("A7: best effort waits %.1f %% of the time, then %.1f %%: the eviction of idle was accepted after %s", alone, both, accepted.Sub(begun).Round(time.Millisecond))
}

// freed: the pod that has stayed has the whole CPU now, as the kernel counts, and koordlet tells what the end of the other one has brought.
func (n *served) freed(stays, went cluster.Object, since time.Time) {
	n.t.Helper()
	n.eventually(20*time.Second, func() error {
		begun, before := time.Now(), event(n.file(n.dir(stays), "cpu.stat"), "usage_usec")
		time.Sleep(2 * time.Second)
		used := float64(event(n.file(n.dir(stays), "cpu.stat"), "usage_usec")-before) / float64(time.Since(begun).Microseconds())
		if used < 0.85 {
			return fmt.Errorf("%s uses %.2f of a CPU that it has for itself", stays.Str("metadata", "name"), used)
		}
		return nil
	})
	n.eventually(30*time.Second, func() error {
		list, err := n.a.events(since, func(r *journal.Record) bool {
			return r.Knob == "eviction" && r.Target.Name == "work/"+went.Str("metadata", "name") && r.Want == "gone"
		})
		if err != nil {
			return err
		}
		if len(list) != 1 || !released.MatchString(list[0].Reason) {
			return fmt.Errorf("koordlet tells of the end of %s: %+v", went.Str("metadata", "name"), list)
		}
		n.tell("A7: %s", list[0].Reason)
		return nil
	})
}

// released is what koordlet says that the end of a pod which computed on half of a CPU has brought.
var released = regexp.MustCompile(`promised 0\.[3-7]\d* CPUs, its use fell by 0\.[3-7]\d* CPUs, the node's went from `)
