// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// seedEnv repeats the kills of a run whose log names this seed; what they meet is up to the machine.
const seedEnv = "KOORD_RT_SEED"

// lifecycleAnyMoment kills containerd and koord-nri, by turns and both, at moments that nobody has chosen, while pods come, are resized
// and go. What stands keeps its values in the kernel throughout, what failed can be asked for again and then has its values, nothing
// fails for want of koord-nri, and in the end everything can be taken back.
func lifecycleAnyMoment(r *rig) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			r.t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	r.t.Logf("%s=%d", seedEnv, seed)
	a := &anyMoment{rig: r, rand: rand.New(rand.NewPCG(seed, 0)), done: make(chan struct{}), explained: map[string]int{}}
	standing := []*kubelet.Running{r.pod(lsPod("any-ls")), r.pod(bePod("any-be"))}
	before, attributes := r.treesOf(standing), r.attributesOf(standing)
	disk, number := r.disk()
	r.up(everything(disk), nil)
	a.isBack()
	for i, more := range [][]string{nil, limitedDisk(r, number)} {
		if err := a.hold(standing[i], append(wants([]string{"LS", "BE"}[i], ""), more...)); err != nil {
			r.t.Fatal(err)
		}
	}
	a.stop = sync.OnceFunc(func() { close(a.done); a.wg.Wait() })
	r.t.Cleanup(a.stop)
	a.work()
	a.kills()
	later := a.end()
	a.takenBack(standing, later, before, attributes)
}

// anyMoment is the state of lifecycleAnyMoment.
type anyMoment struct {
	*rig
	rand *rand.Rand // of the kills alone

	done chan struct{}
	stop func()
	wg   sync.WaitGroup

	mu        sync.Mutex
	held      []heldPod
	exclusive bool          // a pod among held owns the last CPU, and the others have left it
	back      time.Time     // since when nothing is killed and everything connected, zero meanwhile
	outages   [2][]interval // of containerd, and of the connection between the two
	stays     []*kubelet.Running
	errs      []error
	explained map[string]int // failures by a late pod
	count     struct{ made, resized, failed, refused, lost int }
}

// heldPod has values that no kill may take from the kernel.
type heldPod struct {
	run   *kubelet.Running
	pid   int
	wants []string
	owner bool // of the last CPU
}

// interval is open while to is zero.
type interval struct{ from, to time.Time }

// What can be killed. An outage of the second kind is one of the connection, whoever died.
const (
	runtimeGone = iota
	pluginGone
)

// failed hears of the first failure of every step. containerd has been away meanwhile: nothing else makes a step fail, but for a resize
// to a smaller quota while koord-nri was not connected, or was late with that pod, as it has to say once for each. The kernel refuses it
// because of the burst above, which nobody lowers.
func (a *anyMoment) failed(step string, begun time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count.failed++
	switch shrinks := strings.HasPrefix(step, "resize") && strings.Contains(err.Error(), syscall.EINVAL.Error()); {
	case a.away(runtimeGone, begun), a.t.Context().Err() != nil:
	case shrinks && a.away(pluginGone, begun):
		a.count.refused++
	case shrinks && a.lateAgain("default/"+strings.TrimPrefix(step, "resize of ")):
		a.count.refused++
	default:
		a.errs = append(a.errs, fmt.Errorf("%s: containerd was there from %s on, koord-nri away meanwhile: %t: %w",
			step, begun.Format(time.StampMilli), a.away(pluginGone, begun), err))
	}
}

// lateAgain tells whether koord-nri has been late with a pod more often than was asked; the lock is held.
func (a *anyMoment) lateAgain(pod string) bool {
	of := slices.DeleteFunc(a.late(), func(p string) bool { return p != pod })
	if len(of) <= a.explained[pod] {
		return false
	}
	a.explained[pod]++
	return true
}

// away tells whether one was away at a moment since begun.
func (a *anyMoment) away(which int, begun time.Time) bool {
	return slices.ContainsFunc(a.outages[which], func(i interval) bool { return i.to.IsZero() || i.to.After(begun) })
}

func (a *anyMoment) goes(which int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.back = time.Time{}
	a.outages[which] = append(a.outages[which], interval{from: time.Now()})
	if which == runtimeGone {
		a.outages[pluginGone] = append(a.outages[pluginGone], interval{from: time.Now()})
	}
}

func (a *anyMoment) comes(which int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.outages[which] {
		if o := &a.outages[which][i]; o.to.IsZero() {
			o.to = time.Now()
		}
	}
}

func (a *anyMoment) isBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.back = time.Now()
}

// kills is the main part: each round something is killed and brought back, and in most of them everything comes to rest.
func (a *anyMoment) kills() {
	a.t.Helper()
	first, least, window := 0, 12, 700*time.Millisecond
	if emulated() { // koord-nri, and both: that its kernel makes no difference takes no more
		first, least, window = 1, 3, 3*time.Second
	}
	// Some more where pods are slow: the kills of a few pods prove little.
	for i := first; i < least || a.made() < least && i < 2*least && !emulated(); i++ {
		time.Sleep(a.random(window))
		victims := [][]int{{runtimeGone}, {pluginGone}, {runtimeGone, pluginGone}}[i%3]
		a.rand.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		for _, v := range victims {
			a.kill(v)
			a.keeps("at once after the kill")
			time.Sleep(a.random(300 * time.Millisecond))
		}
		a.rand.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		for _, v := range victims {
			a.bring(v)
			a.keeps("when it is back")
			time.Sleep(a.random(100 * time.Millisecond))
		}
		if i >= least-1 || a.rand.IntN(4) > 0 { // else the next kill meets a koord-nri that connects, synchronises or repairs
			a.connects()
			a.comes(pluginGone)
			a.keeps("when everything is back")
			a.isBack()
		}
		if a.t.Failed() {
			a.t.Fatalf("in round %d, which killed %v", i, victims)
		}
	}
}

func (a *anyMoment) made() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count.made
}

func (a *anyMoment) random(below time.Duration) time.Duration {
	return time.Duration(a.rand.Int64N(int64(below)))
}

func (a *anyMoment) kill(which int) {
	a.t.Helper()
	a.goes(which)
	if which == pluginGone {
		a.rig.stop(syscall.SIGKILL)
		return
	}
	if err := a.host.Kill(); err != nil {
		a.t.Fatal(err)
	}
}

// bring starts one again. Some containerds do not get far the first time.
func (a *anyMoment) bring(which int) {
	a.t.Helper()
	if which == pluginGone {
		a.launch()
		return
	}
	if a.rand.IntN(3) == 0 {
		ctx, cancel := context.WithTimeout(a.t.Context(), a.random(patience(500*time.Millisecond)))
		err := a.host.Restart(ctx)
		if err != nil && ctx.Err() == nil {
			a.t.Fatal(err)
		}
		cancel()
		if err := a.host.Kill(); err != nil {
			a.t.Fatal(err)
		}
	}
	if err := a.host.Restart(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	a.comes(which)
}

// keeps fails unless every held pod has its values at this moment.
func (a *anyMoment) keeps(when string) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.lost(); err != nil {
		a.t.Errorf("%s: %v", when, err)
	}
	select {
	case <-a.exited:
		if a.plugin != nil {
			a.t.Errorf("%s: koord-nri has ended by itself", when)
		}
	default:
	}
}

// connects waits until containerd has one plugin, which says that it is connected and synchronised; there are never two.
func (a *anyMoment) connects() {
	a.t.Helper()
	a.eventually(10*time.Second, func() error {
		n := a.connections()
		if n > 1 {
			a.t.Errorf("containerd has %v plugins connected", n)
		}
		m, err := a.metrics()
		if err != nil {
			return err
		}
		if n != 1 || m[`koord_rt_nri_connected`] != 1 || m[`koord_rt_nri_event_duration_seconds_count{event="Synchronize"}`] == 0 {
			return fmt.Errorf("containerd has %v plugins, koord-nri (pid %d) says connected %v", n, a.plugin.Process.Pid, m[`koord_rt_nri_connected`])
		}
		return nil
	})
}

// end stops the work and looks at everything once more. It returns the pods that live.
func (a *anyMoment) end() []*kubelet.Running {
	a.t.Helper()
	a.stop()
	if len(a.errs) > 0 {
		a.t.Errorf("%d pods or steps failed: %v", len(a.errs), errors.Join(a.errs...))
	}
	c := a.count
	a.t.Logf("%d pods were made and %d resizes during %d kills of containerd and %d of koord-nri; %d steps failed and were made again, %d of them because of a burst; %d tasks lost by containerd, %d pods stay",
		c.made, c.resized, len(a.outages[runtimeGone]), len(a.outages[pluginGone])-len(a.outages[runtimeGone]), c.failed, c.refused, c.lost, len(a.stays))
	if !emulated() && c.failed == 0 {
		a.t.Error("the kills met nothing")
	}
	a.keeps("in the end")
	a.oneConnection()
	a.eventually(5*time.Second, func() error {
		if n := a.metric("koord_rt_nri_claimed_cpus"); n != 0 {
			return fmt.Errorf("%v CPUs are claimed, and no container has any", n)
		}
		return nil
	})
	after := a.pod(lsPod("any-after"))
	a.now(after, wants("LS", ""))
	return append(a.stays, after)
}

// takenBack compares what stood before everything with what a restore leaves.
func (a *anyMoment) takenBack(standing, later []*kubelet.Running, before, attributes portrait) {
	a.t.Helper()
	for _, run := range later {
		if err := a.kube.StopPod(a.t.Context(), run); err != nil {
			a.t.Error(err)
		}
	}
	a.rig.stop(syscall.SIGKILL)
	if out, err := a.ctl("restore"); err != nil {
		a.t.Errorf("restore: %v\n%s", err, out)
	}
	for _, d := range differences(before, a.treesOf(standing)) {
		if !widest.MatchString(d) {
			a.t.Errorf("after restore: %s", d)
		}
	}
	a.identical("processes after restore", attributes, a.attributesOf(standing))
}
