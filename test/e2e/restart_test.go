// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecyclePluginKilled kills koord-nri at random moments of a series of pods. No pod may fail, and every one has its guarantees in the end.
// Throughout, the exclusive pod has its CPU, and those that were there before the first kill stay off it: what comes while nobody
// is there cannot.
func lifecyclePluginKilled(r *rig) {
	_, rest := cpus()
	r.up(standard, nil)
	lsr := r.pod(lsrPod("kill-lsr"))
	stood := map[*kubelet.Running][]string{
		lsr: wants("LSR", ""), r.pod(lsPod("kill-ls")): withoutProcess(wants("LS", rest)), r.pod(bePod("kill-be")): withoutProcess(wants("BE", rest)),
	}
	for run, want := range stood {
		r.now(run, want)
	}
	l := r.load("kill", 2)
	kills := 0
	// An emulated machine makes a pod in seconds: it is killed more often, until as many pods as elsewhere have come.
	for ; kills < 20 || l.made(10) != nil && kills < 400; kills++ {
		stays := func(when string) {
			for run, want := range stood {
				if err := r.differs(run, want); err != nil {
					r.t.Fatalf("%s, after %d others: %v", when, kills, err)
				}
			}
		}
		r.stop(syscall.SIGKILL)
		stays("after a kill")
		r.launch()
		// At any moment: while it starts, registers, synchronises, repairs, decides.
		for next := time.Now().Add(time.Duration(rand.IntN(400)) * time.Millisecond); time.Now().Before(next); time.Sleep(20 * time.Millisecond) {
			stays("in the life after a kill")
		}
		if n := r.connections(); n > 1 {
			r.t.Errorf("containerd has %v plugins connected", n)
		}
	}
	r.synced()
	r.oneConnection()
	pods := l.end(r)
	if len(pods) < 10 {
		r.t.Errorf("only %d pods were made meanwhile", len(pods))
	}
	deadline := 5 * time.Second
	r.soon(deadline, lsr, wants("LSR", ""))
	for name, run := range pods {
		r.soon(deadline, run, wants(kindOf(name), rest))
	}
	after := r.pod(lsPod("kill-after"))
	r.now(after, wants("LS", rest))
	r.t.Logf("%d pods during %d kills", len(pods), kills)
}

// connections is how many plugins containerd has; it tells from version 2.3 on.
func (r *rig) connections() float64 {
	r.t.Helper()
	if r.crio {
		return 1 // it does not tell
	}
	m, err := scrape(http.DefaultClient, r.host.Metrics)
	if err != nil {
		r.t.Fatal(err)
	}
	n, ok := m["containerd_nri_active_plugins_total"]
	if !ok {
		r.t.Fatal("containerd does not tell how many plugins are connected")
	}
	return n
}

// oneConnection fails unless containerd soon has exactly this plugin.
func (r *rig) oneConnection() {
	r.t.Helper()
	r.eventually(3*time.Second, func() error {
		if n := r.connections(); n != 1 {
			return fmt.Errorf("containerd has %v plugins connected, want 1", n)
		}
		return nil
	})
}

// kindOf reads the kind out of a pod's name.
func kindOf(name string) string {
	if strings.Contains(name, "-be") {
		return "BE"
	}
	return "LS"
}

// load is a series of pods that other goroutines make.
type load struct {
	stop func()
	done chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex
	pods map[string]*kubelet.Running
	errs []error
}

// load makes LS and BE pods, one after the other in each of several goroutines, until end is called. It keeps at most
// 24 of them.
func (r *rig) load(prefix string, workers int) *load {
	l := &load{done: make(chan struct{}), pods: map[string]*kubelet.Running{}}
	l.stop = sync.OnceFunc(func() {
		close(l.done)
		l.wg.Wait()
		for _, run := range l.pods {
			r.cleanPod(run)
		}
	})
	r.t.Cleanup(l.stop) // also of a test that gives up before end
	for w := range workers {
		l.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.done:
					return
				default:
				}
				l.one(r, fmt.Sprintf("%s-%d-%s%d", prefix, w, []string{"ls", "be"}[i%2], i), i >= 24/workers)
			}
		})
	}
	return l
}

// one makes a pod and, when it need not stay, removes it.
func (l *load) one(r *rig, name string, remove bool) {
	p := lsPod(name)
	if kindOf(name) == "BE" {
		p = bePod(name)
	}
	run, err := r.kube.StartPod(r.t.Context(), p)
	if err == nil && remove {
		err = r.kube.StopPod(r.t.Context(), run)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errs = append(l.errs, err)
	} else if !remove {
		l.pods[name] = run
	}
}

// end stops the series and returns the pods that live; they go with the test.
func (l *load) end(r *rig) map[string]*kubelet.Running {
	r.t.Helper()
	l.stop()
	if len(l.errs) > 0 {
		r.t.Errorf("%d pods failed: %v", len(l.errs), errors.Join(l.errs...))
	}
	return l.pods
}

// lifecycleSwitchedOff switches every feature off in the configuration, which takes a restart, after a kill -9: what the earlier
// life wrote to running pods, their containers and the directories above goes back, byte for byte where the kernel allows.
func lifecycleSwitchedOff(r *rig) {
	runs := []*kubelet.Running{r.pod(lsPod("off-ls")), r.pod(bePod("off-be"))}
	before, attributes := r.treesOf(runs), r.attributesOf(runs)
	disk, number := r.disk()
	r.up(everything(disk), onlyEvents())
	for i, kind := range []string{"LS", "BE"} {
		r.soon(5*time.Second, runs[i], wants(kind, ""))
	}
	r.soon(5*time.Second, runs[1], limitedDisk(r, number))
	r.stop(syscall.SIGKILL)
	off := onlyEvents() // the start is what has it taken back
	off["features"] = modes("off")
	r.up(everything(disk), off)
	r.eventually(8*time.Second, func() error {
		for _, d := range append(differences(attributes, r.attributesOf(runs)), differences(before, r.treesOf(runs))...) {
			if !widest.MatchString(d) {
				return errors.New(d)
			}
		}
		return nil
	})
}

// lifecycleSecondInstance starts koord-nri twice: two connections of one plugin would make every create fail.
func lifecycleSecondInstance(r *rig) {
	r.up(standard, nil)
	out, err := exec.Command(bin("koord-nri"), "--config", r.config).CombinedOutput()
	if err == nil {
		r.t.Fatal("a second instance ran beside the first")
	}
	if !strings.Contains(string(out), strconv.Itoa(r.plugin.Process.Pid)) && !strings.Contains(string(out), "lock") {
		r.t.Errorf("the second instance does not say why it ends: %s", out)
	}
	r.oneConnection()
	r.now(r.pod(lsPod("second")), wants("LS", ""))
}

// lifecycleRuntimeKilled kills containerd under running containers, and under one that has been created and not yet started. The
// plugin comes back by itself.
func lifecycleRuntimeKilled(r *rig) {
	_, rest := cpus()
	r.up(standard, nil)
	lsr, ls, be := r.pod(lsrPod("down-lsr")), r.pod(lsPod("down-ls")), r.pod(bePod("down-be"))
	pid := r.plugin.Process.Pid
	between := r.created(lsPod("between-ls"))
	for i := range rounds(2) {
		before := r.metric("koord_rt_nri_connects_total")
		if err := r.host.Kill(); err != nil {
			r.t.Fatal(err)
		}
		// Processes are found by asking the runtime, cgroups are not.
		r.now(lsr, wants("LSR", ""))
		r.now(ls, withoutProcess(wants("LS", rest)))
		r.now(be, withoutProcess(wants("BE", rest)))
		if err := r.host.Restart(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		r.eventually(5*time.Second, func() error {
			if n := r.metric("koord_rt_nri_connects_total"); n <= before { // one that was lost while it was slow to register counts, too
				return fmt.Errorf("%v connections were made, want more than %v", n, before)
			}
			if r.metric("koord_rt_nri_connected") != 1 {
				return errors.New("not connected")
			}
			return nil
		})
		r.oneConnection()
		r.now(lsr, wants("LSR", ""))
		r.now(ls, wants("LS", rest))
		r.now(be, wants("BE", rest))
		if i == 0 {
			if err := r.kube.StartContainer(r.t.Context(), between, "main"); err != nil {
				r.t.Fatalf("start what was created before the runtime was killed: %v", err)
			}
		}
		r.now(between, wants("LS", rest)) // of which StartContainer writes the burst on cgroup v1
		n := strconv.Itoa(i)
		r.soon(5*time.Second, r.pod(lsPod("up-ls"+n)), wants("LS", rest))
		r.now(r.pod(bePod("up-be"+n)), wants("BE", rest))
	}
	if r.plugin.Process.Pid != pid {
		r.t.Error("koord-nri was started anew")
	}
}

// withoutProcess leaves out what is read from the container's process.
func withoutProcess(wants []string) []string {
	return slices.DeleteFunc(wants, func(w string) bool { return strings.Contains(w, "@") })
}
