// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// mib is in bytes.
const mib = 1 << 20

// memoryQoS is memory QoS with the watermarks of BE: ratio 0 is none.
func memoryQoS(wmarkRatio int) string {
	return fmt.Sprintf(`
resourceQOSStrategy:
  policies: {memoryHighPolicy: requestLimitRange}
  lsClass: {memoryQOS: {enable: true, minLimitPercent: 25, lowLimitPercent: 50, throttlingPercent: 50}}
  beClass: {memoryQOS: {enable: true, lowLimitPercent: 25, throttlingPercent: 50, wmarkRatio: %d, wmarkScalePermill: 1000}}
`, wmarkRatio)
}

// memoryProtects: the formulas at container, pod and class. The best-effort container is the reference's example at a
// sixteenth: request 64 MiB, limit 128 MiB, throttling 50 give memory.high 96 MiB (koordinator-node.md §12.8).
func memoryProtects(l *loops) {
	l.put(memoryQoS(0))
	l.soon(20*time.Second, l.be, bytesOf("main", map[string]int{
		"memory.max": 128 * mib, "memory.high": 96 * mib, "memory.low": 16 * mib, "memory.min": 0,
	}))
	l.soon(20*time.Second, l.be, bytesOf("pod", map[string]int{"memory.max": 128 * mib, "memory.low": 16 * mib, "memory.min": 0}))
	for _, level := range []string{"main", "pod"} {
		l.soon(20*time.Second, l.burst, bytesOf(level, map[string]int{"memory.min": 24 * mib, "memory.low": 48 * mib}))
	}
	l.soon(20*time.Second, l.burst, bytesOf("main", map[string]int{"memory.high": 96 * mib}))
	// Without a kubelet the request of a Burstable pod is known by its oom_score_adj.
	text, err := l.value(l.ls, "main @oom")
	if err != nil {
		l.t.Fatal(err)
	}
	adj, err := strconv.Atoi(text)
	if err != nil {
		l.t.Fatal(err)
	}
	request := l.memTotal() / 1000 * (1000 - adj)
	least, low := page(request/4), page(request/2)
	for _, level := range []string{"main", "pod"} {
		l.soon(20*time.Second, l.ls, bytesOf(level, map[string]int{"memory.min": least, "memory.low": low}))
	}
	l.soon(20*time.Second, l.ls, bytesOf("main", map[string]int{"memory.high": page(request + (l.memTotal()-request)/2)}))
	top := l.kubepods("")
	l.classes(map[string]int{
		top + "/memory.min": 24*mib + least, top + "/memory.low": 48*mib + low + 16*mib,
		top + "/burstable/memory.min": least, top + "/burstable/memory.low": low,
		top + "/besteffort/memory.min": 0, top + "/besteffort/memory.low": 16 * mib,
	})
	l.tell("request %d by oom_score_adj %d: memory.min %d, memory.low %d at container, pod and class; kubepods min %d, low %d; BE memory.high %s",
		request, adj, least, low, 24*mib+least, 64*mib+low, l.file(l.dir(l.be), "memory.high"))
}

// memoryIsReclaimed: page cache of a best-effort container stays while it has no marks, and goes down to them as soon as it
// has: nobody waits, is throttled or killed for it.
func memoryIsReclaimed(l *loops) {
	pid, err := l.pid(l.be, "main")
	if err != nil {
		l.t.Fatal(err)
	}
	l.inside(l.be, "dd if=/dev/zero of="+cacheFile(pid)+" bs=64k count=1280 conv=fsync")
	used := func() (int, error) { return l.bytes(l.dir(l.be), "memory.current") }
	filled, err := used()
	if err != nil || filled < 80*mib {
		l.t.Fatalf("memory.current is %d after writing 80 MiB, %v", filled, err)
	}
	l.ticks(3, func() error {
		if now, err := used(); err != nil || now < 80*mib {
			return fmt.Errorf("memory.current went from %d to %d before anybody reclaims, %v", filled, now, err)
		}
		return nil
	})
	// Half of memory.high is where reclaim starts, a tenth of it below, 38.4 MiB, where it stops. koordlet counts
	// anonymous and file memory; memory.current has also the kernel's, and up to 64 pages that each CPU has charged ahead.
	waited := l.stall(l.dir(l.be), "memory.pressure", "full")
	l.put(memoryQoS(50))
	after := l.within(20*time.Second, "memory.current above the mark", 0, 44*mib, used)
	if now := l.stall(l.dir(l.be), "memory.pressure", "full"); now != waited {
		l.t.Errorf("its tasks waited %d µs for memory while it was reclaimed", now-waited)
	}
	events := l.file(l.dir(l.be), "memory.events")
	for _, key := range []string{"high", "max", "oom", "oom_kill"} {
		if n := event(events, key); n != 0 {
			l.t.Errorf("%s happened %d times: somebody else has reclaimed", key, n)
		}
	}
	l.tell("memory.current of a BE container with 80 MiB of page cache: %d without marks, %d with marks at 48 and 38.4 MiB; memory.events: %s",
		filled, after, oneLine(events))
}

// memoryIsHeld: close below the eviction threshold best-effort containers get no more than they have. What they read is
// reclaimed from themselves; nobody is killed or evicted.
func memoryIsHeld(l *loops) {
	pid, err := l.pid(l.be, "main")
	if err != nil {
		l.t.Fatal(err)
	}
	held := 0
	percent, threshold := l.tight(func(threshold int) {
		l.put(memoryQoS(0) + fmt.Sprintf("resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota, memoryEvictThresholdPercent: %d}\n", threshold))
	}, func() (err error) {
		if held, err = l.bytes(l.dir(l.be), "memory.high"); err == nil && (held < mib || held > 80*mib) {
			err = fmt.Errorf("memory.high on a tight node is %d", held)
		}
		return err
	})
	before := event(l.file(l.dir(l.be), "memory.events"), "high")
	l.inside(l.be, "dd if="+cacheFile(pid)+" of=/dev/null bs=64k")
	now, err := l.bytes(l.dir(l.be), "memory.current")
	if err != nil || now > held+4*mib {
		l.t.Errorf("memory.current is %d after reading 80 MiB with memory.high %d, %v", now, held, err)
	}
	events := l.file(l.dir(l.be), "memory.events")
	if n := event(events, "high"); n <= before {
		l.t.Errorf("memory.high was met %d times before 80 MiB were read and %d times after", before, n)
	}
	for _, run := range l.pods() {
		if n := event(l.file(l.kube.PodDir(run, ""), "memory.events"), "oom_kill"); n != 0 {
			l.t.Errorf("%s: %d processes were killed", run.Pod.Name, n)
		}
	}
	if n := l.figure("koord_rt_koordlet_evictions_total"); n != 0 {
		l.t.Errorf("%v evictions were decided", n)
	}
	l.tell("node uses %.1f %% of its memory, threshold %d %%: memory.high of a BE container %d; it then read 80 MiB and has %d; memory.events: %s",
		percent, threshold, held, now, oneLine(events))
	l.put(memoryQoS(0))
	l.soon(20*time.Second, l.be, bytesOf("main", map[string]int{"memory.high": 96 * mib}))
	l.put("")
	l.noMemoryQoS()
	l.within(20*time.Second, "quota of the tier without suppression", -1, -1, l.quota)
}

// tight has the node within two points below the threshold of evictions, in the middle of them as far as whole percents allow, until done. What the node
// uses moves by itself, and where it has moved away the threshold follows.
func (l *loops) tight(put func(threshold int), done func() error) (percent float64, threshold int) {
	l.t.Helper()
	follow := func(now float64) {
		percent, threshold = now, int(now+1.5)
		put(threshold)
	}
	l.ticks(2, quietly) // the figure is of now
	follow(l.a.usedPercent())
	l.eventually(20*time.Second, func() error {
		err := done()
		if now := l.a.usedPercent(); err != nil && (now <= float64(threshold-2) || now > float64(threshold)) {
			follow(now)
		}
		return err
	})
	return percent, threshold
}

// noMemoryQoS waits until nothing of memory QoS is left, at any level.
func (l *loops) noMemoryQoS() {
	l.t.Helper()
	for _, run := range l.pods() {
		l.soon(20*time.Second, run, []string{"main memory.min=0", "main memory.low=0", "main memory.high=max", "pod memory.min=0", "pod memory.low=0"})
	}
	off := map[string]int{}
	for _, class := range []string{"", "/burstable", "/besteffort"} {
		for _, file := range []string{"/memory.min", "/memory.low"} {
			off[l.kubepods("")+class+file] = 0
		}
	}
	l.classes(off)
}

// cacheFile is a file of a container, as it is seen from outside.
func cacheFile(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/root/cache" }

// page rounds down to a page.
func page(n int) int { return n &^ 4095 }

func (r *rig) memTotal() int {
	r.t.Helper()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		r.t.Fatal(err)
	}
	return int(info.Totalram) * int(info.Unit)
}

// usedPercent is what the node uses of its memory, as evictions go by it.
func (a *agent) usedPercent() float64 {
	a.r.t.Helper()
	return a.figure("koordlet_node_used_memory_bytes") / float64(a.r.memTotal()) * 100
}

// bytesOf are lines of wants for one level.
func bytesOf(level string, files map[string]int) (out []string) {
	for file, n := range files {
		out = append(out, level+" "+file+"="+strconv.Itoa(n))
	}
	return out
}

// classes waits until the files of the class directories have these values.
func (l *loops) classes(want map[string]int) {
	l.t.Helper()
	l.eventually(20*time.Second, func() error {
		for path, n := range want {
			got, err := l.bytes(filepath.Split(path))
			if err != nil || got != n {
				return fmt.Errorf("%s is %d (%v), want %d", path, got, err, n)
			}
		}
		return nil
	})
}
