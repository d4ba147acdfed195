// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// slowBPS is what the guest's slow disk reads in a second.
const slowBPS = 4 * mib

// diskCPU is where the pod is that waits for the disk. The kernel reads the clock of the CPU that begins a wait and of the one that ends it, and
// those of emulated CPUs are apart: what ends before it began does not count, and what else there is lasts as long as they are apart.
const diskCPU = "5"

// disturbs lets best effort disturb: its CPUs are all, its memory and its reads are nobody's business until somebody waits for them.
const disturbs = "resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota, cpuSuppressThresholdPercent: 100, memoryEvictThresholdPercent: 100}\n"

// soonJudged is a koordlet's patience for these tests: a pod is judged after 20 s.
var soonJudged = map[string]any{
	"collect":      map[string]any{"slowInterval": "1s"},
	"interference": map[string]any{"history": "20s", "trial": "8s", "calm": "6s"},
}

// TestGuestNeighbours is koordlet beside a kubelet that tells it the pods, and a best-effort pod that takes what a latency-sensitive one needs:
// a CPU, a disk, then memory. Each time koordlet tells who suffers, by every signal that there is of it, and, once best effort may be held, who is
// suspected; holds that one by cpu.max, io.max and memory.high, finds it guilty, since the other waits less, and gives back what it took when
// nobody is disturbed any more. Where holding does not help, it decides who must leave. How long a pod waits (PSI), what it has and what holds it
// is read from the kernel.
func TestGuestNeighbours(t *testing.T) {
	if !cgroupV2() || runtime.NumCPU() != 8 {
		t.Fatalf("the figures are for cgroup v2 and 8 CPUs, here are %d", runtime.NumCPU())
	}
	// Waits are counted of tasks that start from now on.
	if err := os.WriteFile("/proc/sys/kernel/task_delayacct", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	l := &loops{rig: newRig(t, rigOptions{})}
	l.put(disturbs)
	l.up("", nil)
	light := openPod("works-ls", "LS")
	light.Containers[0].Resources.Requests["cpu"] = "2m"
	l.ls, l.be, l.burst = l.pod(light), l.pod(openPod("greedy-be", "BE")), l.pod(limitedPod())
	l.a = l.newAgent()
	l.a.kubelet = l.serve() // who is to leave is known by what it tells
	l.extra = maps.Clone(soonJudged)
	l.extra["nodeName"] = servesFor
	l.a.configure(nil)
	l.extra = nil
	quiet := l.pod(openPod("quiet-ls", "LS"))
	dev, _ := l.slowDisk()
	// So long at once that what the machine beneath keeps it waiting is little of it.
	works, limited := l.loading(l.ls, "works", sharedCPU, "400ms", "100ms"), l.loading(l.burst, "works", anywhere, "1ms", "99ms")
	reads, holds := l.loading(quiet, "reads", dev, diskCPU, "4096", "1", "50ms"), l.loading(quiet, "holds", strconv.Itoa(8*mib), "100ms")
	for _, load := range []*burden{works, limited, reads, holds} {
		load.hasBegun() // what that costs is not usual
	}
	l.a.start()
	l.ticks(26, quietly) // 20 s of history, and what is lost at its ends
	l.neighbours([]*burden{limited}, []step[*loops]{{"Throttled", throttledByItself}})
	l.neighbours([]*burden{works}, []step[*loops]{{"CPU", disturbedOnCPU}})
	l.ls = quiet
	l.neighbours([]*burden{reads, holds}, []step[*loops]{{"Disk", disturbedAtDisk}, {"Memory", disturbedInMemory}})
	l.neighbours(nil, []step[*loops]{{"Starved", starvedOfCPU}, {"Full", fullOfMemory}})
}

// neighbours takes steps, after which these loads end.
func (l *loops) neighbours(quiet []*burden, steps []step[*loops]) {
	if l.t.Failed() {
		return
	}
	inSteps(l.t, l.rig, l, steps)
	for _, q := range quiet {
		q.stop()
	}
}

// disturbance is one that best effort makes.
type disturbance struct {
	about   string   // the resource
	signals []string // each of them tells it
	stall   string   // the pressure file of whoever waits
	begin   func() (stop func())
	held    func() error // nil when the kernel holds the one that disturbs
	free    func() error // nil when it does not
	// holds is the strategy under which somebody is held, disturbs when it is empty; meanwhile, if any, looks at what else that does.
	holds     string
	meanwhile func()
}

// disturb makes it while nobody may be held for it, so that each signal has the time to tell, then lets koordlet act, and takes it away again.
func (l *loops) disturb(d disturbance) {
	l.t.Helper()
	l.put("")
	calm := l.waits(l.ls, d.stall)
	l.ticks(5, quietly)
	l.a.rests(l.ls) // a machine that gives the guest no time may have disturbed it
	calm.end()
	stalled, begun := l.waits(l.ls, d.stall), time.Now()
	stop := d.begin()
	l.eventually(20*time.Second, func() error { // the load does what it is for
		now := l.waits(l.ls, d.stall)
		time.Sleep(time.Second)
		if now.end(); now.part < calm.part+0.05 {
			return fmt.Errorf("the pod waits %s of the time, undisturbed %s; %s: %s; io.stat %q and %q, memory.current %s", now, calm, d.stall, l.file(l.dir(l.ls), d.stall),
				l.file(l.dir(l.ls), "io.stat"), l.file(l.dir(l.be), "io.stat"), l.file(l.dir(l.be), "memory.current"))
		}
		return nil
	})
	told := l.eachTells(l.ls, begun, d.signals)
	if list, err := l.a.events(begun, func(r *journal.Record) bool { return strings.HasPrefix(r.Reason, "suspected") }); err != nil || len(list) > 0 {
		l.t.Errorf("nobody may be held, and koordlet tries %+v, %v", list, err)
	}
	l.put(cmp.Or(d.holds, disturbs))
	told = append(told, l.a.interferes(begun, l.be, "suspected of disturbing others about "+d.about))
	stalled.end()
	l.eventually(20*time.Second, d.held)
	if d.meanwhile != nil {
		d.meanwhile()
	}
	told = append(told, l.a.interferes(begun, l.be, "guilty", "innocent, released"))
	held := l.waits(l.ls, d.stall)
	for again := 0; ; again++ { // others may disturb the pod for a while
		l.ticks(3, quietly)
		held.end()
		if held.part <= stalled.part/2 || again == 4 || d.held() != nil {
			break
		}
		held = l.waits(l.ls, d.stall)
	}
	if stalled.part < calm.part+0.02 || held.part > stalled.part/2 {
		l.t.Errorf("the pod waits %s of the time undisturbed, %s disturbed, %s while the other is held", calm, stalled, held)
	}
	stop()
	told = append(told, l.a.interferes(begun, l.be, "released: nobody is disturbed any more"))
	l.eventually(20*time.Second, d.free)
	told = append(told, l.eachIsOver(l.ls, begun, d.signals)...)
	l.tell("%s: the pod waits %s of the time undisturbed, %s disturbed, %s while the other is held; %s", d.about, calm, stalled, held, strings.Join(told, "; "))
}

// waiting is the part of the time in which tasks of a pod stalled.
type waiting struct {
	l     *loops
	file  string
	from  time.Time
	run   *kubelet.Running
	total int // µs at from
	part  float64
}

func (w *waiting) String() string { return strconv.FormatFloat(w.part*100, 'f', 1, 64) + " %" }

var stallTotal = regexp.MustCompile(`(?m)^(some|full) .* total=(\d+)$`)

func (l *loops) waits(run *kubelet.Running, file string) *waiting {
	l.t.Helper()
	return &waiting{l: l, run: run, file: file, from: time.Now(), total: l.stalled(run, file)}
}

func (w *waiting) end() {
	w.l.t.Helper()
	w.part = float64(w.l.stalled(w.run, w.file)-w.total) / float64(time.Since(w.from).Microseconds())
}

// stalled is the total of some in a pressure file.
func (l *loops) stalled(run *kubelet.Running, file string) int {
	l.t.Helper()
	return l.stall(l.dir(run), file, "some")
}

// stall is the total of a line of a pressure file, "some" or "full", in microseconds.
func (r *rig) stall(dir, file, line string) int {
	r.t.Helper()
	text, err := cgroups.Read(dir, file)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range stallTotal.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(m[2]); m[1] == line && err == nil {
			return n
		}
	}
	r.t.Fatalf("%s has no total of %s: %q", file, line, text)
	return 0
}

// slowDisk is the one that the guest has for this.
func (l *loops) slowDisk() (dev, number string) {
	l.t.Helper()
	files, err := filepath.Glob("/sys/block/*/serial")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			l.t.Fatal(err)
		}
		if strings.TrimSpace(string(text)) == guestcfg.SlowSerial {
			return "/dev/" + filepath.Base(filepath.Dir(file)), l.file(filepath.Dir(file), "dev")
		}
	}
	l.t.Fatalf("no disk is %s, of %q", guestcfg.SlowSerial, files)
	return "", ""
}

// disturbedAtDisk: the one reads a page twenty times a second, the other as much as the disk gives, sixteen reads at once,
// for which a page has to wait a second.
func disturbedAtDisk(l *loops) {
	dev, number := l.slowDisk()
	limits := func() string {
		for line := range strings.Lines(l.file(l.kube.PodDir(l.be, ""), "io.max")) {
			if rest, ok := strings.CutPrefix(line, number+" "); ok {
				return strings.TrimSpace(rest)
			}
		}
		return ""
	}
	var most string
	l.disturb(disturbance{
		about: "disk", signals: []string{"disk latency", "IO pressure"}, stall: "io.pressure",
		begin: func() (stop func()) {
			return l.loading(l.be, "reads", dev, anywhere, strconv.Itoa(256<<10), "16", "0s").stop
		},
		held: func() error {
			var read int
			most = limits()
			if _, err := fmt.Sscanf(most, "rbps=%d ", &read); err != nil || read < slowBPS/4 || read > slowBPS*3/4 {
				return fmt.Errorf("io.max of the pod is %q for %s, want about half of %d bytes per second", most, number, slowBPS)
			}
			return nil
		},
		free: func() error {
			if text := limits(); text != "" {
				return fmt.Errorf("io.max of the pod is still %q", text)
			}
			return nil
		},
	})
	l.tell("io.max of the pod while it is held: %s", most)
}

// uncached is a file of which nothing is in the page cache: who reads it first is charged for it.
func (l *loops) uncached(size int) string {
	l.t.Helper()
	name := filepath.Join(l.t.TempDir(), "data")
	err := os.WriteFile(name, make([]byte, size), 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return name
}

// disturbedInMemory: the one takes 8 MiB and gives them back, ten times a second, the other fills what all pods may have with the page cache
// of a file that it reads again and again, so that somebody has to give for each of those.
func disturbedInMemory(l *loops) {
	const room = 96 * mib
	file := l.uncached(192 * mib)
	defer l.room(room)()
	high := func() (int, error) {
		text, err := cgroups.Read(l.dir(l.be), "memory.high")
		if err != nil || text == "max" {
			return -1, err
		}
		return strconv.Atoi(text)
	}
	var most int
	l.disturb(disturbance{
		about: "memory", signals: []string{"memory pressure", "memory allocation latency"}, stall: "memory.pressure",
		begin: func() (stop func()) { return l.loading(l.be, "caches", file).stop },
		held: func() (err error) {
			if most, err = high(); err == nil && (most < 16*mib || most > room*9/10) {
				err = fmt.Errorf("memory.high of the container is %d, want about four fifths of %d", most, room)
			}
			return err
		},
		free: func() error {
			now, err := high()
			if err == nil && now != -1 {
				err = fmt.Errorf("memory.high of the container is still %d", now)
			}
			return err
		},
	})
	l.tell("memory.high of the container while it is held: %d", most)
}
