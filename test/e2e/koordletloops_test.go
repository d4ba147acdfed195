// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// base is what the container of burst and its pod stand at: a limit of 20 ms, and a burst of 1000 % held at the quota.
var base = []string{
	"main cpu.max=20000 100000", "main cpu.max.burst=20000", "pod cpu.max=20000 100000", "pod cpu.max.burst=20000",
}

// burstRaises throttles a container by its pod's limit, which is as much as its own: its quota rises by fifths up to 300 %, its pod's with it.
// The kernel counts as throttled only whose quota runs dry first. As the container's is kept full here, that is never the container's.
func burstRaises(l *loops) {
	l.soon(10*time.Second, l.burst, base)
	refilled := l.keepFull(l.dir(l.burst))
	before := [2]int{l.throttled(l.dir(l.burst)), l.throttled(filepath.Dir(l.dir(l.burst)))}
	stop := l.spin(l.burst, anyCPU)
	went := l.steps(30*time.Second, l.dir(l.burst), "cpu.max", "60000 100000")
	refilled()
	own, pods := l.throttled(l.dir(l.burst))-before[0], l.throttled(filepath.Dir(l.dir(l.burst)))-before[1]
	if pods < 4*max(own, 5) {
		l.t.Errorf("the container was throttled in %d periods, its pod in %d: this has not shown a pod that is throttled first", own, pods)
	}
	l.soon(10*time.Second, l.burst, []string{
		"main cpu.max.burst=60000", "pod cpu.max=60000 100000", "pod cpu.max.burst=60000",
	})
	l.tell("cpu.max of a throttled container: %s; its cpu.stat: %s", went, oneLine(l.file(l.dir(l.burst), "cpu.stat")))
	stop()
	l.rested = time.Now()
}

// keepFull gives a cgroup, until the result is called, what it may use of a period twenty times a second: a write of its burst fills its
// quota up, whatever the value is (tg_set_cfs_bandwidth).
func (l *loops) keepFull(dir string) (end func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error)
	go func() {
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-time.After(50 * time.Millisecond):
			}
			burst, err := cgroups.Read(dir, "cpu.max.burst")
			if err == nil {
				err = cgroups.Write(dir, "cpu.max.burst", burst)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("fill the quota of %s: %v", dir, err)
		}
	})
	l.t.Cleanup(end)
	return end
}

// throttled is in how many periods a cgroup's own quota has run dry.
func (l *loops) throttled(dir string) int {
	l.t.Helper()
	return event(l.file(dir, "cpu.stat"), "nr_throttled")
}

// burstEnds: two minutes after the load a container is back at its base.
func burstEnds(l *loops) {
	went := l.steps(150*time.Second, l.dir(l.burst), "cpu.max", "20000 100000")
	l.soon(10*time.Second, l.burst, base)
	records, _, err := ledger.ReadAll(l.run)
	if err != nil {
		l.t.Fatal(err)
	}
	var down []string
	for i := range records {
		r := &records[i]
		if r.Target.Container == l.burst.Containers["main"] && r.Knob == plan.CPUQuota.String() && r.Via == journal.ViaDirect && r.Time.After(l.rested) {
			down = append(down, fmt.Sprintf("%s %s s", r.Want, strconv.FormatFloat(r.Time.Sub(l.rested).Seconds(), 'f', 0, 64)))
		}
	}
	l.tell("cpu.max without the load: %s; by the ledger, after the end of the load: %s", went, strings.Join(down, ", "))
}

func (l *loops) quota() (int, error) { return l.tierQuota(l.be) }

// calmQuota and busyQuota wait for the quota that policy cfsQuota leaves the tier without load, and beside an LS pod that uses two
// CPUs: less than that is taken where what the system is said to use falls meanwhile.
func (l *loops) calmQuota(when string, least int) int {
	l.t.Helper()
	return l.a.granted(time.Minute, grant{what: "quota of the tier " + when, read: l.quota, least: least})
}

func (l *loops) busyQuota(calm int) int {
	l.t.Helper()
	const taken = 500
	return l.a.granted(20*time.Second, grant{
		what: "quota of the tier while an LS pod uses two CPUs", read: l.quota, busy: 2, least: 20, most: calm - taken,
	})
}

// quotaYields: policy cfsQuota at 75 % of 8 CPUs leaves six to the tier, less what the system and an LS pod use.
func quotaYields(l *loops) {
	l.put(suppressAt("cfsQuota", 75))
	calm := l.calmQuota("on a calm node", 1000)
	stop := l.spinIn([]string{l.dir(l.ls)}, 2)
	loaded := l.busyQuota(calm)
	l.tell("cpu.max of the tier, in thousandths of a CPU: calm %d, with two busy CPUs of an LS pod %d (allowance %v, LS %v, system %v CPUs)",
		calm, loaded, l.figure("koord_rt_koordlet_be_allowance_cores"), l.figure("koordlet_be_suppress_ls_used_cpu_cores"),
		l.figure("koord_rt_koordlet_system_cpu_cores"))
	stop()
	after := l.calmQuota("after the load", loaded+300)
	l.put("")
	none := l.within(20*time.Second, "quota of the tier without suppression", -1, -1, l.quota)
	l.tell("cpu.max of the tier: after the load %d, switched off %d", after, none)
}

func (l *loops) beCPUs() (int, error) { return l.cpusOf(l.be) }

// fragments has a pod own all CPUs but three, which the tier gets. Where a node has two last-level caches two of them share one: not those with the
// highest numbers, which would be kept for these.
func (l *loops) fragments() (gone func()) {
	p := levelPod("loop-owner", "LSR", "64Mi")
	p.Annotations = map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"0-3,7"}`}
	owner := l.pod(p)
	l.put("resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 10, cpuSuppressMinPercent: 37, cpuSuppressPolicy: cpuset}\n")
	l.steps(20*time.Second, l.dir(l.be), "cpuset.cpus", "4-6")
	return func() {
		l.t.Helper()
		if err := l.kube.StopPod(l.t.Context(), owner); err != nil {
			l.t.Fatal(err)
		}
		l.within(20*time.Second, "CPUs of the LS pod when no pod owns any", 8, 8, func() (int, error) { return l.cpusOf(l.ls) })
	}
}

// cpusetYields: policy cpuset at 80 % leaves seven CPUs less what the system uses, and fewer while an LS pod uses two; at 25 % two, its least.
func cpusetYields(l *loops) {
	l.put(suppressAt("cpuset", 80))
	set := grant{what: "CPUs of the tier at 80 %", read: l.beCPUs, set: true, least: 3, most: 7}
	calm := l.a.granted(40*time.Second, set)
	half := l.local()
	stop := l.spinIn([]string{l.dir(l.ls)}, 2)
	set.what, set.busy, set.least, set.most = "CPUs of the tier while an LS pod uses two", 2, 2, calm-1
	fewer := l.a.granted(20*time.Second, set)
	loaded := l.local()
	stop()
	set.what, set.busy, set.least, set.most = "CPUs of the tier after the load", 0, fewer+1, 7
	l.a.granted(40*time.Second, set)
	after := l.local()
	gone := l.fragments()
	l.put(suppressAt("cpuset", 25))
	l.within(20*time.Second, "CPUs of the tier at 25 %", 2, 2, l.beCPUs)
	least := l.local()
	late := l.pod(l.tells(idlePod("loop-late")))
	l.told(late, "@allowed", least, nil)
	l.tell("cpuset.cpus of the tier: at 80 %% %s, with two busy CPUs of an LS pod %s, afterwards %s; at 25 %% %s, where a new container began",
		half, loaded, after, least)
	gone()
	l.put("")
	l.within(20*time.Second, "CPUs of the tier without suppression", 8, 8, l.beCPUs)
	l.within(20*time.Second, "CPUs of the new container", 8, 8, func() (int, error) { return l.cpusOf(late) })
}

// local is the tier's set.
func (l *loops) local() string {
	l.t.Helper()
	return l.isLocal(l.dir(l.be))
}

// pressureDecides has a best-effort pod and an LS pod compute on one CPU. By the formula the tier may have two
// CPUs and more, of which it uses half a one: only the pressure of the LS pod takes from that, and the pod keeps its CPU, of which it has half
// without.
func pressureDecides(l *loops) {
	l.put(suppressAt("cfsQuota", 75))
	calm := l.calmQuota("by the formula", 2000)
	const counter = `koord_rt_koordlet_loop_duration_seconds_count{loop="pressure"}`
	before := l.figure(counter)
	stopBE := l.spin(l.be, 7)
	l.ticks(3, quietly) // its use is known then, as that of a pod that has run for long
	fired := l.arm(filepath.Join(l.kube.PodDir(l.ls, ""), "cpu.pressure"))
	begun := time.Now()
	stopLS := l.spin(l.ls, 7)
	first := fired()
	cut := l.within(20*time.Second, "quota of the tier under pressure", 20, 480, l.quota)
	if n := l.figure(counter); n <= before {
		l.t.Errorf("koordlet decided %v times between ticks before the pressure and %v times since", before, n)
	}
	var reason string
	l.eventually(10*time.Second, func() (err error) {
		reason, err = l.a.urgent(begun)
		return err
	})
	written := l.writtenAt(begun, reason)
	const fair = 0.8
	had := l.keepsOf("7", fair, l.ls, l.be)
	if had < fair {
		l.t.Errorf("the LS pod has %.2f of the CPU on which it computes, while best effort may use %d thousandths of it and would use it all, want %v", had, cut, fair)
	}
	stopLS()
	stopBE()
	l.tell("cpu.max of the tier: %d by the formula, %d under pressure of an LS pod, which then has %.2f of its CPU. The kernel's first trigger came %s after the load, "+
		"koordlet's first write for one %s after the load; decided between ticks %v times, a step takes %.1f ms on average: %s",
		calm, cut, had, first.Sub(begun).Round(time.Millisecond), written.Sub(begun).Round(time.Millisecond), l.figure(counter)-before,
		1000*l.figure("koord_rt_koordlet_reaction_seconds_sum")/l.figure("koord_rt_koordlet_reaction_seconds_count"), reason)
	after := l.calmQuota("when nobody waits", 2000)
	l.tell("cpu.max of the tier without the pressure: %d", after)
	l.put("")
}

// arm sets a trigger of ours beside koordlet's: as much stall in as long a window. The result waits for it.
func (l *loops) arm(file string) func() time.Time {
	l.t.Helper()
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("some 50000 500000\x00"))
	}
	if err != nil {
		l.t.Fatalf("pressure trigger on %s: %v", file, err)
	}
	return func() time.Time {
		l.t.Helper()
		defer unix.Close(fd)
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
		for deadline := time.Now().Add(patience(shortest)); time.Now().Before(deadline); {
			n, err := unix.Poll(fds, 1000)
			if err != nil && !errors.Is(err, unix.EINTR) {
				l.t.Fatal(err)
			}
			if n > 0 {
				return time.Now()
			}
		}
		l.t.Fatalf("the kernel tells no pressure of %s", file)
		return time.Time{}
	}
}

// urgent is why koordlet took something between two ticks for the first time since then, by its log.
func (a *agent) urgent(since time.Time) (reason string, err error) {
	for line := range strings.Lines(a.log.String()) {
		if !strings.Contains(line, "urgent=true") || !strings.Contains(line, "LS waits for a CPU") {
			continue
		}
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return "", err
		}
		_, quoted, _ := strings.Cut(line, " reason=")
		if quoted, err = strconv.QuotedPrefix(quoted); err != nil {
			return "", fmt.Errorf("reason in %q: %w", line, err)
		}
		if !at.Before(since.Truncate(time.Millisecond)) {
			return strconv.Unquote(quoted)
		}
	}
	return "", errors.New("koordlet's log has no decision between ticks")
}

// writtenAt is when the ledger says that the tier's quota was written for a reason.
func (r *rig) writtenAt(since time.Time, reason string) time.Time {
	r.t.Helper()
	records, _, err := ledger.ReadAll(r.run)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range records {
		rec := &records[i]
		if rec.Target.Level == plan.LevelQoS && rec.Knob == plan.CPUQuota.String() && rec.Reason == reason && !rec.Time.Before(since) {
			return rec.Time
		}
	}
	r.t.Fatalf("the ledger has no write for %q", reason)
	return time.Time{}
}

// clockJumps moves the clock on the wall an hour on and two back while the tier is suppressed: ticks later it has its CPUs, and a
// pod that comes then begins on them. The clock goes on again while koordlet and koord-nri are dead: who starts then knows what was handed on
// before by how long ago that is, and not by the time of day. A program outside of Kubernetes that is declared best effort has the tier's CPUs
// with it.
func clockJumps(l *loops) {
	app := filepath.Join(l.tree.Unified, l.root(), "app-batch")
	if err := os.MkdirAll(app, 0o755); err != nil {
		l.t.Fatal(err)
	}
	own := l.file(app, "cpuset.cpus")
	l.put(suppressAt("cpuset", 25) + "resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: -1}}}\n" +
		"hostApplications: [{name: batch, qos: BE, cgroupPath: {relativePath: " + strings.TrimPrefix(l.root(), "/") + "/app-batch}}]\n")
	l.within(20*time.Second, "CPUs of the tier", 2, 2, l.beCPUs)
	set := l.file(l.dir(l.be), "cpuset.cpus")
	l.steps(20*time.Second, app, "cpuset.cpus", set)
	l.steps(20*time.Second, app, "cpu.idle", "1")
	stays := func(by time.Duration) {
		l.t.Helper()
		l.ticks(3, func() error {
			if got := l.file(l.dir(l.be), "cpuset.cpus"); got != set {
				return fmt.Errorf("the tier is on CPUs %s after the clock went %s, want %s", got, by, set)
			}
			return nil
		})
		l.steps(20*time.Second, app, "cpuset.cpus", set)
	}
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour} {
		l.jump(by)
		stays(by)
	}
	l.told(l.pod(l.tells(idlePod("loop-clock"))), "@allowed", set, nil)
	l.eventually(40*time.Second, func() error { // it is written anew after half a minute, and is to last until the pod begins
		if left := time.Until(handoff.Read(handoff.Options{RunDir: l.run}).Dynamic.Expires); left < 50*time.Second {
			return fmt.Errorf("what was handed on holds for another %s", left)
		}
		return nil
	})
	l.a.end(syscall.SIGKILL)
	l.stop(syscall.SIGKILL)
	l.jump(time.Hour)
	l.again()
	l.told(l.pod(l.tells(idlePod("loop-clock-alone"))), "@allowed", set, nil)
	l.a.start()
	stays(time.Hour)
	l.put("")
	l.within(20*time.Second, "CPUs of the tier without suppression", 8, 8, l.beCPUs)
	l.steps(20*time.Second, app, "cpuset.cpus", own)
	l.steps(20*time.Second, app, "cpu.idle", "0")
	l.tell("the clock went an hour on, two back, and one on while nobody ran: the tier and an application beside it are on CPUs %s", set)
}

// jump sets the clock on the wall.
func (r *rig) jump(by time.Duration) {
	r.t.Helper()
	if by == 0 {
		return
	}
	to := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &to); err != nil {
		r.t.Fatalf("set the clock: %v", err)
	}
}

// decisionsOutlive kills koordlet right after a decision of each policy: it holds, also for a pod that comes meanwhile, and
// the next koordlet goes on with it.
func decisionsOutlive(l *loops) {
	l.put(suppressAt("cpuset", 25))
	l.within(20*time.Second, "CPUs of the tier", 2, 2, l.beCPUs)
	l.a.end(syscall.SIGKILL)
	set := l.file(l.dir(l.be), "cpuset.cpus")
	orphan := l.pod(l.tells(idlePod("loop-orphan")))
	l.told(orphan, "@allowed", set, nil)
	l.a.start()
	l.ticks(5, func() error {
		if got, err := cgroups.Read(l.dir(l.be), "cpuset.cpus"); err != nil || got != set {
			return fmt.Errorf("koordlet came back: the tier had CPUs %s and has %s (%v)", set, got, err)
		}
		return nil
	})
	l.put(suppressAt("cfsQuota", 75))
	calm := l.calmQuota("on a calm node", 1000)
	stop := l.spinIn([]string{l.dir(l.ls)}, 2)
	loaded := l.busyQuota(calm)
	l.a.end(syscall.SIGKILL)
	low := func() error {
		if got, err := l.quota(); err != nil || got < 20 || got > 5050 {
			return fmt.Errorf("the tier had a quota of %d, now it has %d (%v)", loaded, got, err)
		}
		return nil
	}
	if err := low(); err != nil {
		l.t.Error(err)
	}
	l.a.start()
	l.ticks(5, low)
	stop()
	after := l.calmQuota("after the load", loaded+300)
	l.tell("killed with the tier on CPUs %s, and at a quota of %d: both held over the restart, after the load %d", set, loaded, after)
}

// nothingIsLeft stops both and restores: every file is as before us.
func nothingIsLeft(l *loops) {
	disk := diskForRestore(l, suppressAt("cfsQuota", 40))
	l.a.end(syscall.SIGTERM)
	l.stop(syscall.SIGTERM)
	out, err := l.ctl("restore")
	if err != nil {
		l.t.Fatalf("restore: %v\n%s", err, out)
	}
	for _, d := range differences(l.before, l.treesOf(l.pods())) {
		if !widest.MatchString(d) {
			l.t.Errorf("after restore: %s", d)
		}
	}
	l.identical("processes after restore", l.attributes, l.attributesOf(l.pods()))
	disk()
	l.within(time.Second, "CPUs of the tier after restore", 8, 8, l.beCPUs)
	if again, err := l.ctl("restore"); err != nil || !strings.Contains("\n"+again, "\n0 restored, ") {
		l.t.Errorf("a second restore finds something to do: %v\n%s\nafter the first:\n%s", err, again, out)
	}
	l.tell("restore: %s", out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:])
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
