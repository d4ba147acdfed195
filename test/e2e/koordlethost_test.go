// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// alone is koordlet without koord-nri and proxy beside many containers that were there before it. Its run directory is a
// filesystem of its own, which can be filled.
type alone struct {
	*rig
	a      *agent
	ls, be []*kubelet.Running
	// narrow has a limit that stops it all the time, until rest ends its load.
	narrow *kubelet.Running
	rest   func()
	// full is near its memory limit of so many bytes, by kept; own is a process in it that has set its own OOM score.
	full      *kubelet.Running
	limit     int
	kept, own *hoarder
	// score of that container's processes: what they began with, and what tuning has made of it.
	score, tuned int
	// before is the kernel without us, parameters the node's kernel parameters.
	before     portrait
	parameters map[string]string
}

// TestHostKoordlet is what koordlet does beside the loops, and what it bears: host applications, shares of the classes under full
// load, kernel parameters, room for who is throttled though nobody needs the CPUs, another OOM score for who is near its limit, ten kill -9 in
// a row, others who write, a full disk, a ledger that is read-only, its configuration in a ConfigMap; on a quiet node it says next to nothing.
// At the end every file is as before it.
func TestHostKoordlet(t *testing.T) {
	h := &alone{rig: newRig(t, rigOptions{}), parameters: map[string]string{}}
	h.ownRunDir()
	h.crowd()
	h.limit = max(512*mib, h.memTotal()/256)
	h.narrow, h.full = h.pod(narrowPod()), h.pod(fullPod(h.limit))
	h.before = h.treesOf(h.pods())
	h.keepParameters()
	h.extra = map[string]any{"tune": true}
	h.a = h.koordlet(everywhere)
	h.rest = h.burn(h.narrow, 1) // a minute later it is tuned
	h.nearlyFill()
	inSteps(t, h.rig, h, []step[*alone]{
		{"NearItsLimit", nearItsLimit}, {"Killed", killedTenTimes}, {"StillNear", stillNear}, {"Drift", driftIsTold}, {"HostApplications", appsTakePart}, {"Tuned", throttledGetsRoom}, {"Shares", sharesHold}, {"Parameters", parametersAreLent}, {"DiskFull", diskFull},
		{"NoLedger", noLedger},
		{"ConfigMap", fromConfigMap}, {"UpstreamFlags", upstreamFlags}, {"NoInotify", noInotify},
		{"Restore", nothingIsLeftAlone},
	})
}

// step is one part of a test on a node N.
type step[N any] struct {
	name string
	do   func(N)
}

// inSteps takes the steps in order. Each goes on from where the one before has ended, so none follows a failure.
func inSteps[N any](t *testing.T, r *rig, node N, steps []step[N]) {
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			outer, begun := r.t, time.Now()
			r.t = t
			defer func() { r.t = outer }()
			s.do(node)
			r.t.Logf("%s took %s", s.name, time.Since(begun).Round(100*time.Millisecond))
		})
		if t.Failed() {
			return
		}
	}
}

// everywhere is a strategy that has something to write for each container.
const everywhere = `
cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 1000}
resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: -1}}}
`

func (h *alone) pods() []*kubelet.Running {
	return append(append([]*kubelet.Running(nil), h.ls...), h.be...)
}

// ownRunDir puts a tmpfs where koordlet keeps its ledger, state and handoff.
func (h *alone) ownRunDir() {
	h.t.Helper()
	if err := unix.Mount("koord-rt-lab", h.run, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=24m,mode=0700"); err != nil {
		h.t.Fatalf("mount a run directory: %v", err)
	}
	run := h.run
	h.t.Cleanup(func() {
		if err := unix.Unmount(run, unix.MNT_DETACH); err != nil {
			h.t.Errorf("unmount the run directory: %v", err)
		}
	})
}

// inPod is how many containers a pod of the crowd has.
const inPod = 10

// crowd starts pods of ten containers each, a third of them best effort: 30 containers, or as many as KOORD_RT_CONTAINERS
// says (make lab-long).
func (h *alone) crowd() {
	h.t.Helper()
	n := 30
	if text := os.Getenv("KOORD_RT_CONTAINERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			h.t.Fatal(err)
		}
	}
	begun := time.Now()
	runs, errs := make([]*kubelet.Running, max((n+inPod-1)/inPod, 3)), make([]error, max((n+inPod-1)/inPod, 3))
	t := h.t
	t.Cleanup(func() { // one after the other, many take longer than the rig waits
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(len(runs))*5*time.Second)
		defer cancel()
		atOnce(len(runs), func(i int) {
			if err := h.kube.StopPod(ctx, runs[i]); err != nil {
				t.Errorf("stop pod %d: %v", i, err)
			}
		})
	})
	atOnce(len(runs), func(i int) { runs[i], errs[i] = h.kube.StartPod(t.Context(), crowdPod(i)) })
	for i, run := range runs {
		if errs[i] != nil {
			h.t.Fatalf("start pod %d: %v", i, errs[i])
		}
		if i%3 == 2 {
			h.be = append(h.be, run)
		} else {
			h.ls = append(h.ls, run)
		}
	}
	h.t.Logf("%d containers in %d pods after %s", len(runs)*inPod, len(runs), time.Since(begun).Round(100*time.Millisecond))
}

// atOnce does as many things at once as there are CPUs.
func atOnce(n int, do func(int)) {
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for i := range n {
		group.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			do(i)
		})
	}
	group.Wait()
}

func crowdPod(i int) kubelet.Pod {
	p := kubelet.Pod{Name: "crowd-" + strconv.Itoa(i), UID: uid("crowd-" + strconv.Itoa(i)), Labels: map[string]string{"koordinator.sh/qosClass": "LS"}}
	var res kubelet.Resources
	if i%3 == 2 {
		p.Labels["koordinator.sh/qosClass"] = "BE"
	} else {
		res.Requests = map[string]kubelet.Quantity{"cpu": "1m"}
		res.Limits = map[string]kubelet.Quantity{"cpu": "50m"}
	}
	for c := range inPod {
		name := "c" + strconv.Itoa(c)
		if c == 0 {
			name = "main"
		}
		p.Containers = append(p.Containers, kubelet.Container{Name: name, Resources: res})
	}
	return p
}

// burstOf waits until every LS container has this burst in µs, and idle until every best-effort pod has that.
func (h *alone) burstOf(limit time.Duration, burst string) {
	h.t.Helper()
	file := h.burstFile()
	for _, run := range h.ls {
		for name := range run.Containers {
			h.soon(limit, run, []string{name + " " + file + "=" + burst})
		}
	}
}

func (h *alone) burstFile() string {
	if h.tree.V2() {
		return "cpu.max.burst"
	}
	return "cpu.cfs_burst_us"
}

func (h *alone) idle(limit time.Duration) {
	h.t.Helper()
	for _, run := range h.be {
		h.soon(limit, run, []string{"pod cpu.idle=1"})
	}
}

// settled waits for what everywhere asks for.
func (h *alone) settled() {
	h.t.Helper()
	h.burstOf(60*time.Second, "5000")
	h.idle(60 * time.Second)
}

func (h *alone) tier() (int, error) { return h.tierQuota(h.be[0]) }

// vitals are what a program could leak.
type vitals struct {
	fds, goroutines, threads, rss int // rss in KiB
	files, bytes                  int // of the run directory
}

func (h *alone) vitals() (v vitals) {
	h.t.Helper()
	at := "/proc/" + strconv.Itoa(h.a.cmd.Process.Pid)
	fds, err := os.ReadDir(at + "/fd")
	if err != nil {
		h.t.Fatal(err)
	}
	v.fds, v.goroutines = len(fds), int(h.a.figure("koord_rt_koordlet_goroutines"))
	text, err := os.ReadFile(at + "/status")
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		n, _ := strconv.Atoi(strings.Fields(value + " x")[0]) // lines without a number are not read
		switch key {
		case "VmRSS":
			v.rss = n
		case "Threads":
			v.threads = n
		}
	}
	err = filepath.Walk(h.run, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			v.files++
			v.bytes += int(info.Size())
		}
		return err
	})
	if err != nil || v.goroutines == 0 || v.rss == 0 || v.files == 0 {
		h.t.Fatalf("%+v, %v", v, err)
	}
	return v
}

// killedTenTimes: whoever comes back finds everything as it was, and is no larger than the first.
func killedTenTimes(h *alone) {
	h.settled()
	h.a.ticks(5, quietly)
	first, stands := h.vitals(), h.treesOf(h.pods())
	begun := time.Now()
	for range 10 {
		h.a.end(syscall.SIGKILL)
		h.a.start()
	}
	took := time.Since(begun)
	h.a.ticks(5, quietly)
	h.saysLittle(15)
	h.identical("killed ten times", stands, h.treesOf(h.pods()))
	last := h.vitals()
	h.t.Logf("ten kill -9 in %s: before %+v, after %+v", took.Round(100*time.Millisecond), first, last)
	if n, want := h.a.figure("koord_rt_koordlet_window_subjects"), len(h.pods())*(1+inPod); int(n) < want {
		h.t.Errorf("koordlet measures %v things, there are %d pods and containers", n, want)
	}
	h.t.Logf("window: %v subjects, %v series, %v KiB of them; a tick takes %.1f ms on average", h.a.figure("koord_rt_koordlet_window_subjects"),
		h.a.figure("koord_rt_koordlet_window_series"), int(h.a.figure("koord_rt_koordlet_window_bytes"))>>10,
		1000*h.a.figure(`koord_rt_koordlet_loop_duration_seconds_sum{loop="tick"}`)/h.a.figure(`koord_rt_koordlet_loop_duration_seconds_count{loop="tick"}`))
	if n := h.a.figure("koord_rt_koordlet_window_dropped_samples_total"); n != 0 {
		h.t.Errorf("the window did not take %v samples", n)
	}
	for _, c := range []struct {
		what        string
		first, last int
		more        int
	}{
		{"descriptors", first.fds, last.fds, 4}, {"goroutines", first.goroutines, last.goroutines, 4}, {"threads", first.threads, last.threads, 8},
		{"KiB resident", first.rss, last.rss, 8 << 10}, {"files", first.files, last.files, 2},
		{"bytes of files", first.bytes, last.bytes, 10*2048*len(h.pods())*inPod + 64<<10},
	} {
		if c.last > c.first+c.more {
			h.t.Errorf("%s: %d in the first life, %d in the eleventh", c.what, c.first, c.last)
		}
	}
}
