// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// levelPod has as much memory as it asks for.
func levelPod(name, class, memory string) kubelet.Pod {
	res := map[string]kubelet.Quantity{"cpu": "1", "memory": kubelet.Quantity(memory)}
	p := kubelet.Pod{
		Name: name, UID: uid(name), Labels: map[string]string{"koordinator.sh/qosClass": class},
		Containers: []kubelet.Container{{Name: "main", Resources: kubelet.Resources{Requests: res, Limits: res}}},
	}
	if class == "LSR" {
		last, _ := cpus()
		p.Annotations = map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"` + last + `"}`}
	}
	return p
}

// cached writes so much of a file as a container's page cache, and hot reads it again.
func (l *loops) cached(run *kubelet.Running, size int) {
	l.t.Helper()
	pid, err := l.pid(run, "main")
	if err != nil {
		l.t.Fatal(err)
	}
	l.inside(run, writing(cacheFile(pid), size))
}

// writing is a program that writes so much of a file.
func writing(file string, size int) string {
	return "dd if=/dev/zero of=" + file + " bs=64k count=" + strconv.Itoa(size/65536) + " conv=fsync"
}

func (l *loops) hot(run *kubelet.Running) {
	l.t.Helper()
	pid, err := l.pid(run, "main")
	if err != nil {
		l.t.Fatal(err)
	}
	l.inside(run, "dd if="+cacheFile(pid)+" of=/dev/null bs=64k")
}

// current is what the kernel charges a container.
func (l *loops) current(run *kubelet.Running) int {
	l.t.Helper()
	n, err := l.bytes(l.dir(run), "memory.current")
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// kept is an error when a container has less than it had.
func (l *loops) kept(run *kubelet.Running, had int) error {
	if now := l.current(run); now < had-2*mib { // the kernel's own and what each CPU has charged ahead come and go
		return fmt.Errorf("memory.current of %s went from %d to %d", run.Pod.Name, had, now)
	}
	return nil
}

// coldCache is F2-6 of the documents: a BE and an LSR container have page cache that nobody uses. Where the node comes near its
// threshold, BE's goes and LSR keeps its own; LSR gives when the node is close below, and last.
func coldCache(l *loops) {
	lsr := l.pod(levelPod("level-lsr", "LSR", "128Mi"))
	l.hot(l.be)
	l.cached(lsr, 64*mib)
	begunBE, begun := l.current(l.be), l.current(lsr)
	if begunBE < 64*mib || begun < 64*mib {
		l.t.Fatalf("memory.current of BE is %d and of LSR %d after 64 MiB were read or written", begunBE, begun)
	}
	percent := l.a.usedPercent
	at := func(threshold int) {
		l.put(fmt.Sprintf("resourceQOSStrategy: {lsrClass: {memoryQOS: {enable: true, wmarkRatio: 0}}, beClass: {memoryQOS: {enable: true, wmarkRatio: 0}}}\n"+
			"resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota, memoryEvictThresholdPercent: %d}\n", threshold))
	}
	// Whoever else takes memory meanwhile can make the node tight, where LSR gives too: that has shown nothing, and is looked at again.
	var near float64
	for try := 1; ; try++ {
		l.ticks(2, quietly) // the figure is of now
		near = percent()
		most, lost := near, error(nil)
		look := func() error {
			most = max(most, percent())
			if err := l.kept(lsr, begun); err != nil && lost == nil {
				lost = err
			}
			return nil
		}
		threshold := int(near + 4) // three to four points above what is used
		at(threshold)
		l.eventually(20*time.Second, func() error {
			if now := l.current(l.be); look() == nil && lost == nil && now > 36*mib {
				return fmt.Errorf("memory.current of BE is %d, and LSR keeps its own", now)
			}
			return nil
		})
		l.ticks(3, look)
		if lost == nil {
			break
		}
		const tight = 2 // points below the threshold
		if try == 3 || most <= float64(threshold-tight) {
			l.t.Fatalf("%v: the node was at %.1f %% at most, the threshold is %d %%", lost, most, threshold)
		}
		l.put("")
		l.soon(20*time.Second, l.be, []string{"main memory.high=max"})
		l.hot(l.be)
		l.cached(lsr, 64*mib)
		begunBE, begun = l.current(l.be), l.current(lsr)
	}
	first := l.current(l.be)
	last := 0
	tight, threshold := l.tight(at, func() error {
		if last = l.current(lsr); last > 36*mib {
			return fmt.Errorf("memory.current of LSR on a tight node is %d", last)
		}
		return nil
	})
	for _, run := range []*kubelet.Running{l.be, lsr} {
		if n := event(l.file(l.dir(run), "memory.events"), "oom_kill"); n != 0 {
			l.t.Errorf("%s: %d processes were killed", run.Pod.Name, n)
		}
	}
	l.tell("F2-6: memory.current of BE %d and of LSR %d; node at %.1f %%, threshold %d %%: BE %d, LSR as it was; at %.1f %%, threshold %d %%: LSR %d",
		begunBE, begun, near, int(near+4), first, tight, threshold, last)
	l.put("")
	if err := l.kube.StopPod(l.t.Context(), lsr); err != nil {
		l.t.Fatal(err)
	}
	l.soon(20*time.Second, l.be, []string{"main memory.high=max"})
	l.within(20*time.Second, "CPUs of the tier without LSR", 8, 8, l.beCPUs)
}

// memoryLevels is F2-1 and F2-2 at a sixteenth: min 64, low 128, high 192 and limit 256 MiB. One container uses less than its
// min, another something between min and low, both as page cache, which is the first that a kernel takes. Their neighbours fill
// what all pods may have, a limit as the kubelet sets it for the node's allocatable. The cache of best effort goes first. When
// that is used up the second gives, down to its min. Then a neighbour is killed. The first keeps all, and reads nothing again.
func memoryLevels(l *loops) {
	l.put("resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 25, lowLimitPercent: 50, throttlingPercent: 75, wmarkRatio: 0}}}\n")
	below, between, greedy := l.pod(levelPod("level-min", "LS", "256Mi")), l.pod(levelPod("level-low", "LS", "256Mi")), l.pod(openPod("level-hog", "BE"))
	for _, run := range []*kubelet.Running{below, between} {
		l.soon(20*time.Second, run, bytesOf("main", map[string]int{
			"memory.min": 64 * mib, "memory.low": 128 * mib, "memory.high": 192 * mib, "memory.max": 256 * mib,
		}))
	}
	l.cached(below, 48*mib)
	l.cached(between, 96*mib)
	l.hot(l.be)
	firstBE, firstBelow, firstBetween := l.current(l.be), l.current(below), l.current(between)
	if firstBE < 64*mib || firstBelow < 48*mib || firstBelow >= 64*mib || firstBetween < 96*mib || firstBetween >= 128*mib {
		l.t.Fatalf("memory.current of BE is %d, of the two %d and %d", firstBE, firstBelow, firstBetween)
	}
	counts := func(run *kubelet.Running) [3]int {
		return [3]int{
			event(l.file(l.dir(run), "memory.events"), "low"), event(l.file(l.dir(run), "memory.events"), "oom_kill"),
			event(l.file(l.dir(run), "memory.stat"), "workingset_refault_file"),
		}
	}
	calm := counts(below)
	lift := l.room(8 * mib)

	stop := []func(){l.hog(greedy, 40*mib)}
	yields := l.current(l.be)
	if yields > firstBE-24*mib {
		l.t.Errorf("memory.current of BE went from %d to %d while a neighbour took 40 MiB and 8 were free", firstBE, yields)
	}
	for run, had := range map[*kubelet.Running]int{below: firstBelow, between: firstBetween} {
		if err := l.kept(run, had); err != nil {
			l.t.Errorf("while best effort has cache: %v", err)
		}
		if n := event(l.file(l.dir(run), "memory.events"), "low"); n != 0 {
			l.t.Errorf("%s was reclaimed below its memory.low %d times while best effort has cache", run.Pod.Name, n)
		}
	}

	stop = append(stop, l.hog(greedy, yields+16*mib))
	gives, drained := l.current(between), l.current(l.be)
	if gives > firstBetween-4*mib || gives < 62*mib || drained > 16*mib || counts(between)[0] == 0 {
		l.t.Errorf("best effort has %d left, memory.current between min and low went from %d to %d, reclaimed below low %d times",
			drained, firstBetween, gives, counts(between)[0])
	}

	stop = append(stop, l.hogs(greedy, 192*mib))
	l.eventually(20*time.Second, func() error {
		if n := event(l.file(l.dir(greedy), "memory.events"), "oom_kill"); n < 1 {
			return fmt.Errorf("the kernel has killed %d processes of the neighbour; between min and low %d are left", n, l.current(between))
		}
		return nil
	})
	least := l.current(between)
	if least < 62*mib || counts(between)[1] != 0 {
		l.t.Errorf("memory.current of level-low is %d, its min is 64 MiB; killed there: %d", least, counts(between)[1])
	}
	if err := l.kept(below, firstBelow); err != nil {
		l.t.Errorf("below its min: %v", err)
	}
	l.hot(below)
	if now := counts(below); now != calm || calm[0] != 0 || calm[1] != 0 {
		l.t.Errorf("below its min: reclaimed, killed and read again went from %d to %d", calm, now)
	}
	l.tell("F2-1, F2-2: memory.current of BE %d → %d → %d, between min and low %d → %d → %d, below min %d → %d with %d refaults",
		firstBE, yields, drained, firstBetween, gives, least, firstBelow, l.current(below), counts(below)[2]-calm[2])
	lift()
	for _, end := range stop { // the runtime waits for whoever is in a pod's cgroup
		end()
	}
	for _, run := range []*kubelet.Running{greedy, below, between} {
		if err := l.kube.StopPod(l.t.Context(), run); err != nil {
			l.t.Fatal(err)
		}
	}
	l.put("")
	l.noMemoryQoS()
}

// room leaves so much to all pods beside what they have, until the result is called.
func (l *loops) room(size int) (lift func()) {
	l.t.Helper()
	top := l.kubepods("")
	was := l.file(top, "memory.max")
	used, err := l.bytes(top, "memory.current")
	if err == nil {
		err = cgroups.Write(top, "memory.max", strconv.Itoa(used+size))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	t := l.t
	lift = func() {
		if err := cgroups.Write(top, "memory.max", was); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(lift)
	return lift
}

// hog has a process of a best-effort container hold so much more, and hogs lets it try, until the result is called: dd has read it and
// waits for a reader of its pipe.
func (l *loops) hog(run *kubelet.Running, size int) (stop func()) {
	l.t.Helper()
	anon := func() int { return event(l.file(l.dir(run), "memory.stat"), "anon") } // memory.current loses cache of its own meanwhile
	had := anon()
	stop = l.hogs(run, size)
	l.within(20*time.Second, "anonymous memory of "+run.Pod.Name, had+size, had+size+16*mib, func() (int, error) { return anon(), nil })
	return stop
}

func (l *loops) hogs(run *kubelet.Running, size int) (stop func()) {
	l.t.Helper()
	return l.hogsIn(l.dir(run), size)
}

func (r *rig) hogsIn(dir string, size int) (stop func()) {
	r.t.Helper()
	cmd := exec.Command("sh", "-c", "echo 1000 >/proc/self/oom_score_adj; echo $$ >"+dir+"/cgroup.procs && "+holding(size))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		r.t.Fatal(err)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the kernel may have killed it
			<-ended
		})
	}
	r.t.Cleanup(stop)
	return stop
}

// holding is a shell's line that holds so much memory.
func holding(size int) string {
	return "dd if=/dev/zero bs=" + strconv.Itoa(size) + " count=1 | sleep 2147483647"
}
