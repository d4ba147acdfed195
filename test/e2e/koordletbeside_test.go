// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// both is a node with koord-nri and koordlet, one of which goes away.
type both struct {
	*rig
	a *agent
	// ls has a burst, load has no limit and computes now and then; be has batch resources, idle none.
	ls, load, be, idle *kubelet.Running
	stands             portrait
	first              held
}

// held is what the two processes could leak.
type held struct{ agentFDs, goroutines, pluginFDs int }

// TestHostKoordletBeside: koord-nri is killed while koordlet runs, containerd under both, and koordlet with containerd. What stands in the kernel stays, a
// class is suppressed by what happens now whoever is away, what somebody else changes is put right once, by whoever is there to do
// it, and when all are back koord-nri is the only writer of containers again. Neither keeps more open than before. What no annotation
// says of a pod koordlet has of a kubelet, and koord-nri of koordlet.
func TestHostKoordletBeside(t *testing.T) {
	b := &both{rig: newRig(t, rigOptions{})}
	b.up(everywhere, nil)
	b.ls, b.load, b.be, b.idle = b.pod(lsPod("both-ls")), b.pod(openPod("both-load", "LS")), b.pod(bePod("both-be")), b.pod(idlePod("both-idle"))
	b.a = b.newAgent()
	b.a.kubelet, b.extra = b.serve(), map[string]any{"nodeName": servesFor}
	b.a.strategy(everywhere)
	b.a.start()
	inSteps(t, b.rig, b, []step[*both]{{"Unannotated", besideUnannotated}}) // where cfsQuota suppresses, batch pods have no quota
	if t.Failed() {
		return
	}
	b.a.strategy(everywhere +
		"resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 95, cpuSuppressMinPercent: 10, cpuSuppressPolicy: cfsQuota}\n")
	b.soon(20*time.Second, b.ls, b.bursts())
	b.soon(20*time.Second, b.idle, wants("idle", ""))
	b.yields(false)
	b.a.ticks(3, quietly)
	b.stands, b.first = b.portray(), b.holds()
	inSteps(t, b.rig, b, []step[*both]{
		{"ComeAndGone", besideComeAndGone}, {"PluginKilled", besideKilledPlugin}, {"RuntimeKilled", besideKilledRuntime},
		{"OneLife", besideNothingLeft}, {"NoRuntime", besideNoRuntime}, {"NothingLeft", besideNothingLeft},
	})
}

// bursts are wants of ls: what 1000 % would be is held at the quota.
func (b *both) bursts() []string {
	if b.tree.V2() {
		return []string{"main cpu.max.burst=50000", "pod cpu.max.burst=50000"}
	}
	return []string{"main cpu.cfs_burst_us=50000", "pod cpu.cfs_burst_us=50000"}
}

// portray is every control file of the pods. Those of the classes above go with the load, and with the pods that come and go.
func (b *both) portray() portrait {
	b.t.Helper()
	out := b.treesOf([]*kubelet.Running{b.ls, b.load, b.be, b.idle})
	for k := range out {
		if !strings.Contains(k, "/pod"+b.ls.Pod.UID[:8]) {
			delete(out, k)
		}
	}
	return out
}

// yields waits for the quota of the best-effort class: its least while the node computes, more while it does not. All the time ls has
// its burst.
func (b *both) yields(loaded bool) {
	b.t.Helper()
	tenth := 100 * runtime.NumCPU()
	low, high := tenth*12/10, tenth*96/10
	if loaded {
		low, high = tenth*9/10, tenth*11/10
	}
	begun := time.Now()
	got := b.within(30*time.Second, fmt.Sprintf("quota of the class (load: %t)", loaded), low, high, func() (int, error) {
		if err := b.differs(b.ls, b.bursts()); err != nil {
			b.t.Fatal(err)
		}
		return b.tierQuota(b.be)
	})
	b.t.Logf("quota of the class %d after %s (load: %t)", got, time.Since(begun).Round(100*time.Millisecond), loaded)
}

// disturb takes the burst of ls away, as a human might, and waits until somebody has put it right.
func (b *both) disturb() {
	b.t.Helper()
	file, ctrl := "cpu.cfs_burst_us", "cpu"
	if b.tree.V2() {
		file, ctrl = "cpu.max.burst", ""
	}
	if err := cgroups.Write(b.kube.ContainerDir(b.ls, "main", ctrl), file, "0"); err != nil {
		b.t.Fatal(err)
	}
	begun := time.Now()
	b.soon(25*time.Second, b.ls, b.bursts())
	b.t.Logf("the burst of ls is right again after %s", time.Since(begun).Round(100*time.Millisecond))
}

// wrote fails unless since then one writer has written containers and pods, each knob once, and of the pods of the beginning the burst
// of ls alone, if it was disturbed. The quota of the best-effort class is koordlet's whoever else is there.
func (b *both) wrote(since time.Time, disturbed bool, only ...string) {
	b.t.Helper()
	var all []string
	times := map[string]int{}
	for _, writer := range []string{"nri", "koordlet"} {
		records, torn, err := ledger.Read(b.run, writer)
		if err != nil || torn > 0 {
			b.t.Fatalf("ledger of %s: %d torn lines, %v", writer, torn, err)
		}
		for i := range records {
			r := &records[i]
			// Who takes something over that stands as it should says so in his ledger, and writes nothing.
			if r.Time.Before(since) || r.Via != journal.ViaRuntime && (r.Via != journal.ViaDirect || len(r.Written) == 0) {
				continue
			}
			if r.Target.Level == plan.LevelQoS && r.Knob == plan.CPUQuota.String() {
				if writer != "koordlet" {
					b.t.Errorf("%s writes the quota of the class", writer)
				}
				continue
			}
			all = append(all, fmt.Sprintf("%s: %s %s = %s", writer, r.Target, r.Knob, r.Want))
			what := r.Target.String() + " " + r.Knob
			if times[what]++; times[what] > 1 || !slices.Contains(only, writer) {
				b.t.Errorf("%s for the %d. time by %s, want once by %q", what, times[what], writer, only)
			}
			if b.ofBeginning(r.Target.Name) && what != burstOfLS {
				b.t.Errorf("%s = %s by %s, though it stood", what, r.Want, writer)
			}
		}
	}
	if n := times[burstOfLS]; disturbed != (n == 1) {
		b.t.Errorf("the burst of ls was written %d times, disturbed: %t", n, disturbed)
	}
	b.t.Logf("written: %q", all)
}

const burstOfLS = "container default/both-ls/main cpu.burst"

func (b *both) ofBeginning(name string) bool {
	return slices.ContainsFunc([]*kubelet.Running{b.ls, b.load, b.be, b.idle}, func(run *kubelet.Running) bool {
		return name == "default/"+run.Pod.Name || strings.HasPrefix(name, "default/"+run.Pod.Name+"/")
	})
}

// holds counts what the processes have open.
func (b *both) holds() held {
	b.t.Helper()
	fds := func(pid int) int {
		list, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil {
			b.t.Fatal(err)
		}
		return len(list)
	}
	return held{fds(b.a.cmd.Process.Pid), int(b.a.figure("koord_rt_koordlet_goroutines")), fds(b.plugin.Process.Pid)}
}

// besideUnannotated: a best-effort pod whose amounts nobody has written into an annotation. koordlet has them of the kubelet, which lists the
// pod while its containers do not exist yet; the pod's cgroup says that koord-nri knows them, too, and the first program of the init
// container finds them in force, and so does the main one's. koordlet writes none of them.
func besideUnannotated(b *both) {
	run, err := b.kube.RunPod(b.t.Context(), b.tells(setupBE("both-plain", false)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.cleanPod(run)
	_, _, pod := setupBEWants()
	b.soon(10*time.Second, run, pod)
	if err := b.kube.StartContainers(b.t.Context(), run); err != nil {
		b.t.Fatal(err)
	}
	b.toldBySetup(run)
	records, torn, err := ledger.Read(b.run, "koordlet")
	if err != nil || torn > 0 {
		b.t.Fatalf("ledger of koordlet: %d torn lines, %v", torn, err)
	}
	for i := range records {
		if r := &records[i]; strings.HasPrefix(r.Target.Name, run.Pod.FullName()) && len(r.Written) > 0 {
			b.t.Errorf("koordlet has written %s of %s beside koord-nri", r.Knob, r.Target)
		}
	}
}

// besideKilledPlugin: koordlet takes the containers over and gives them back.
func besideKilledPlugin(b *both) {
	begun := time.Now()
	b.stop(syscall.SIGKILL)
	calm := b.burn(b.load, runtime.NumCPU())
	b.yields(true)
	b.disturb()
	late := b.pod(lsPod("both-late"))
	b.soon(25*time.Second, late, b.bursts())
	b.identical("without koord-nri", b.stands, b.portray())
	b.wrote(begun, true, "koordlet")

	back := time.Now()
	b.again()
	calm()
	b.yields(false)
	b.disturb()
	more := b.pod(lsPod("both-more"))
	b.soon(5*time.Second, more, b.bursts())
	b.identical("koord-nri is back", b.stands, b.portray())
	b.wrote(back, true, "nri")
}

// besideKilledRuntime: containers and both programs live on without containerd.
func besideKilledRuntime(b *both) {
	begun, pids := time.Now(), []int{b.plugin.Process.Pid, b.a.cmd.Process.Pid}
	if err := b.host.Kill(); err != nil {
		b.t.Fatal(err)
	}
	calm := b.burn(b.load, runtime.NumCPU())
	b.yields(true)
	b.disturb()
	b.identical("without containerd", b.stands, b.portray())
	b.wrote(begun, true, "nri", "koordlet") // neither hears of containers, and both look after those that they know

	back := time.Now()
	if err := b.host.Restart(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.synced()
	calm()
	b.yields(false)
	b.soon(5*time.Second, b.pod(lsPod("both-after")), b.bursts())
	b.identical("containerd is back", b.stands, b.portray())
	b.wrote(back, false, "nri")
	if got := []int{b.plugin.Process.Pid, b.a.cmd.Process.Pid}; !slices.Equal(got, pids) {
		b.t.Errorf("processes %v, before %v", got, pids)
	}
	b.a.lives()
}

// besideNoRuntime: koordlet is killed with containerd and begins without it. It lives, and what stands stays, the class's quota too;
// as soon as there is a runtime it works with it.
func besideNoRuntime(b *both) {
	calm := b.burn(b.load, runtime.NumCPU())
	b.yields(true)
	if err := b.host.Kill(); err != nil {
		b.t.Fatal(err)
	}
	b.a.end(syscall.SIGKILL)
	b.a.launch()
	b.eventually(30*time.Second, func() error {
		b.a.lives()
		_, err := b.a.figures()
		return err
	})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // some ticks
		b.a.lives()
		if got, err := b.tierQuota(b.be); err != nil || got < 0 || got > 110*runtime.NumCPU() {
			b.t.Fatalf("koordlet has begun without a runtime, and the quota of the class is %d, %v", got, err)
		}
	}
	b.identical("koordlet has begun without containerd", b.stands, b.portray())
	if err := b.host.Restart(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.a.connected()
	b.synced()
	b.yields(true)
	calm()
	b.yields(false)
	b.identical("containerd is back under a koordlet that began without", b.stands, b.portray())
}

// besideComeAndGone: pods that have come, were followed for some ticks and have gone leave nothing open in either process.
func besideComeAndGone(b *both) {
	for round := range 3 {
		var runs []*kubelet.Running
		for _, p := range []kubelet.Pod{lsPod("gone-ls"), bePod("gone-be"), idlePod("gone-idle"), openPod("gone-open", "LS")} {
			p.Name += strconv.Itoa(round)
			p.UID = uid(p.Name)
			runs = append(runs, b.pod(p))
		}
		b.a.ticks(3, quietly)
		for _, run := range runs {
			if err := b.kube.StopPod(b.t.Context(), run); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	besideNothingLeft(b)
}

// besideNothingLeft: with the pods of the beginning, the processes have open what they had.
func besideNothingLeft(b *both) {
	var last held
	b.t.Cleanup(func() { b.t.Logf("open before %+v, after %+v", b.first, last) })
	b.eventually(20*time.Second, func() error {
		if last = b.holds(); last.agentFDs > b.first.agentFDs || last.goroutines > b.first.goroutines || last.pluginFDs > b.first.pluginFDs {
			return fmt.Errorf("open %+v, before %+v", last, b.first)
		}
		return nil
	})
}
