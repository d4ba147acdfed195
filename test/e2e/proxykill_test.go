// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

var killedLives = []proxyLife{
	{"AnyMoment", proxyKilledAnyMoment},
	{"Rebuilt", proxyRebuilt},
	{"RuntimeRestarts", proxyRuntimeRestarts},
	{"CreatedBefore", proxyCreatedBefore},
	{"PodStops", proxyPodStops},
}

// TestHostProxyKilled ends the proxy and the runtime in every way and at any moment.
func TestHostProxyKilled(t *testing.T) {
	proxyLives(t, rigOptions{nri: host.Options{DisableNRI: true}}, killedLives)
}

// TestGuestProxyKilled is the same in a VM.
func TestGuestProxyKilled(t *testing.T) {
	proxyLives(t, rigOptions{nri: host.Options{DisableNRI: true}}, killedLives)
}

// proxyKilledAnyMoment kills the proxy 20 times (6 where the machine is emulated) while pods come and go. Every pod ends up with its
// values, those of running containers never leave the kernel, and nothing is left.
func proxyKilledAnyMoment(p *viaProxy) {
	_, rest := cpus()
	p.upProxy(standard, nil)
	lsr, ls := p.pod(lsrPod("kill-lsr")), p.pod(lsPod("kill-ls"))
	p.soon(5*time.Second, ls, wants("LS", rest))
	// Lives have to be long enough for the slowest step, or nothing ever gets done between two kills.
	window := max(patience(1200*time.Millisecond), 2*p.slowestStep(lsPod("kill-none")))
	before := p.leftovers()
	l := p.stubbornLoad(2)
	kills, done := 20, 0
	if emulated() {
		kills = 6
	}
	// Some more kills where pods are slow: those of a few pods prove little.
	for ; done < kills || l.count() < kills/2 && done < 3*kills; done++ {
		// The client is back after its backoff, and in the middle of something.
		p.eventually(10*time.Second, func() error { _, err := p.client.Pods(p.t.Context()); return err })
		time.Sleep(patience(100*time.Millisecond) + rand.N(window))
		p.crash()
		p.now(lsr, wants("LSR", ""))
		p.now(ls, wants("LS", rest))
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		p.again()
		p.now(lsr, wants("LSR", ""))
		if p.t.Failed() {
			p.t.Fatalf("in round %d", done)
		}
	}
	pods := l.end(p)
	if l.made < kills/2 || l.tries == 0 {
		p.t.Errorf("%d pods, %d steps tried again: the kills met nothing", l.made, l.tries)
	}
	p.soon(5*time.Second, lsr, wants("LSR", ""))
	for name, run := range pods {
		p.soon(5*time.Second, run, wants(kindOf(name), rest))
	}
	p.t.Logf("%d pods live, %d were made, %d steps were tried again during %d kills, containerd lost %d tasks", len(pods), l.made, l.tries, done, l.lost)
	s := p.stubborn()
	for _, run := range pods {
		if err := s.stop(p.t.Context(), run); err != nil {
			p.t.Error(err)
		}
	}
	p.eventually(10*time.Second, func() error {
		after := p.leftovers()
		// Each step that was cut may have cost runc its life while it made a task.
		if dust := after["dust"] - before["dust"]; dust > 0 && dust <= l.tries {
			p.t.Logf("runc left the folders of %d tasks without a process", dust)
			after["dust"] = before["dust"]
		}
		if fmt.Sprint(after) != fmt.Sprint(before) {
			return fmt.Errorf("left behind: %v, before %v", after, before)
		}
		return nil
	})
}

// slowestStep is how long the slowest step of a pod's life takes that nobody disturbs.
func (p *viaProxy) slowestStep(pod kubelet.Pod) (slowest time.Duration) {
	p.t.Helper()
	ctx := p.t.Context()
	var run *kubelet.Running
	for _, step := range []func() error{
		func() (err error) { run, err = p.kube.RunPod(ctx, pod); return err },
		func() error { _, err := p.kube.CreateContainer(ctx, run, "main"); return err },
		func() error { return p.kube.StartContainer(ctx, run, "main") },
		func() error { return p.kube.StopPod(ctx, run) },
	} {
		begun := time.Now()
		if err := step(); err != nil {
			p.t.Fatal(err)
		}
		slowest = max(slowest, time.Since(begun))
	}
	return slowest
}

// stubbornPods is a load of pods whose kubelet tries again.
type stubbornPods struct {
	stop  func()
	done  chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	pods  map[string]*kubelet.Running
	errs  []error
	tries int
	lost  int
	made  int
}

func (p *viaProxy) stubbornLoad(workers int) *stubbornPods {
	l := &stubbornPods{done: make(chan struct{}), pods: map[string]*kubelet.Running{}}
	l.stop = sync.OnceFunc(func() {
		close(l.done)
		l.wg.Wait()
	})
	p.t.Cleanup(l.stop)
	ctx := p.t.Context()
	for w := range workers {
		s := p.stubborn()
		l.wg.Go(func() {
			defer func() {
				l.mu.Lock()
				l.tries, l.lost = l.tries+s.tries, l.lost+s.lost
				l.mu.Unlock()
			}()
			for i := 0; ; i++ {
				select {
				case <-l.done:
					return
				default:
				}
				l.one(ctx, s, fmt.Sprintf("kill-%d-%s%d", w, []string{"ls", "be"}[i%2], i), i%6 > 1 || i > 20)
			}
		})
	}
	return l
}

func (l *stubbornPods) one(ctx context.Context, s *stubborn, name string, remove bool) {
	pod := lsPod(name)
	if kindOf(name) == "BE" {
		pod = bePod(name)
	}
	run, err := s.start(ctx, pod)
	if err == nil && remove {
		err = s.stop(ctx, run)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	if err != nil {
		l.errs = append(l.errs, err)
	} else if !remove {
		l.pods[name] = run
	}
}

// count is how many pods were made, or could not be.
func (l *stubbornPods) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

func (l *stubbornPods) end(p *viaProxy) map[string]*kubelet.Running {
	p.t.Helper()
	l.stop()
	if len(l.errs) > 0 {
		p.t.Errorf("%d pods failed: %v", len(l.errs), errors.Join(l.errs...))
	}
	for _, run := range l.pods {
		p.cleanPod(run)
	}
	return l.pods
}

// proxyRebuilt: what a killed proxy knew, the next one learns from the runtime and the ledger: what the kubelet asked of a
// resized container, which CPUs are claimed, what has to be taken back.
func proxyRebuilt(p *viaProxy) {
	last, rest := cpus()
	p.normalise(1, 120)
	p.upProxy(standard, onlyEvents()) // starts, requests and the ratio are what it follows
	ls := p.pod(lsPod("rebuilt-ls"))
	quota := func(n string) []string {
		if cgroupV2() {
			return []string{"main cpu.max=" + n + " 100000"}
		}
		return []string{"main cpu.cfs_quota_us=" + n}
	}
	p.now(ls, quota("41667"))
	if err := p.kube.ResizeContainer(p.t.Context(), ls, "main", limited("1500m", "128Mi")); err != nil {
		p.t.Fatal(err)
	}
	p.now(ls, quota("125000"))
	lsr := p.pod(lsrPod("rebuilt-lsr"))
	p.soon(5*time.Second, ls, []string{"main cpuset.cpus=" + rest})

	for range 3 { // not once more with every life
		p.crash()
		p.again()
		p.now(ls, quota("125000"))
	}
	p.now(p.pod(bePod("rebuilt-be")), []string{"main cpuset.cpus=" + rest})
	p.now(lsr, []string{"main cpuset.cpus=" + last})
	// The base is the kubelet's last word, not the one of the creation.
	p.normalise(2, 150)
	p.soon(5*time.Second, ls, quota("100000"))
	p.normalise(3, 100)
	p.soon(5*time.Second, ls, quota("150000"))
	p.crash()
	if err := p.kube.StopPod(p.t.Context(), lsr); err == nil {
		p.t.Error("the pod could be stopped through a proxy that is dead")
	}
	p.again()
	s := p.stubborn()
	if err := s.again(p.t.Context(), "removal", func() error { return s.dropPods(p.t.Context(), lsr.Pod.UID) }); err != nil {
		p.t.Fatal(err)
	}
	p.soon(5*time.Second, ls, inForce(allCPUs()))
	p.soon(5*time.Second, ls, quota("150000"))
	p.eventually(5*time.Second, func() error {
		for _, r := range p.records() {
			if r.Via == journal.ViaGone && r.Target.Container == lsr.Containers["main"] {
				return nil
			}
		}
		return errors.New("the ledger does not say that the container is gone")
	})
	// The next one to claim CPUs frees them of containers that this proxy has never created.
	second := p.pod(lsrPod("rebuilt-second"))
	p.now(second, []string{"main cpuset.cpus=" + last})
	p.soon(5*time.Second, ls, []string{"main cpuset.cpus=" + rest})
}

// proxyRuntimeRestarts restarts and kills containerd behind the proxy, with pods made at once after.
func proxyRuntimeRestarts(p *viaProxy) {
	_, rest := cpus()
	p.upProxy(standard, nil)
	lsr, ls, be := p.pod(lsrPod("down-lsr")), p.pod(lsPod("down-ls")), p.pod(bePod("down-be"))
	p.soon(5*time.Second, ls, wants("LS", rest))
	pid := p.cmd.Process.Pid
	rounds := 4
	if emulated() {
		rounds = 2 // 10 s each, or 25
	}
	for i := range rounds {
		if i%2 == 0 {
			if err := p.host.Kill(); err != nil {
				p.t.Fatal(err)
			}
			if _, err := p.client.Pods(p.t.Context()); err == nil {
				p.t.Error("the proxy answers for a runtime that is dead")
			}
		}
		if err := p.host.Restart(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
		s := p.stubborn()
		for _, pod := range []kubelet.Pod{lsPod(fmt.Sprint("up-ls", i)), bePod(fmt.Sprint("up-be", i))} {
			run, err := s.start(p.t.Context(), pod)
			if err != nil {
				p.t.Fatal(err)
			}
			p.cleanPod(run)
			p.soon(2*time.Second, run, wants(kindOf(pod.Name), rest))
			if m := p.mark(run.Containers["main"]); m == nil && !p.unmarked(pod.FullName()) || m != nil && !strings.HasPrefix(m.By, "koord-runtime-proxy/") {
				p.t.Errorf("%s: mark %+v", pod.Name, m)
			}
		}
		p.now(lsr, wants("LSR", ""))
		p.now(ls, wants("LS", rest))
		p.now(be, wants("BE", rest))
		p.eventually(5*time.Second, func() error {
			if p.proxyMetric("koord_rt_cri_connected") != 1 {
				return errors.New("not connected")
			}
			return nil
		})
	}
	select {
	case <-p.exited:
		p.t.Error("the proxy ended with the runtime")
	default:
	}
	if p.cmd.Process.Pid != pid {
		p.t.Error("the proxy was started anew")
	}
}

// proxyCreatedBefore: a container that was created before the proxy was killed and is started long after keeps its claim.
func proxyCreatedBefore(p *viaProxy) {
	last, rest := cpus()
	p.upProxy(standard, nil)
	ls := p.pod(lsPod("waits-ls"))
	waiting := p.created(lsrPod("waits-lsr"))
	p.crash()
	p.again()
	time.Sleep(11 * time.Second) // a check for drift passes: the container has no cgroup yet
	p.soon(time.Second, ls, []string{"main cpuset.cpus=" + rest})
	if err := p.kube.StartContainer(p.t.Context(), waiting, "main"); err != nil {
		p.t.Fatal(err)
	}
	p.now(waiting, []string{"main cpuset.cpus=" + last})
	p.soon(5*time.Second, waiting, wants("LSR", ""))
	p.now(ls, []string{"main cpuset.cpus=" + rest})
	p.now(p.pod(bePod("waits-be")), []string{"main cpuset.cpus=" + rest})
}

// proxyPodStops: StopPodSandbox ends a pod's containers without a word of each; their CPUs are free at once.
func proxyPodStops(p *viaProxy) {
	_, rest := cpus()
	p.upProxy(standard, onlyEvents()) // StopPodSandbox is what frees them
	ls, lsr := p.pod(lsPod("stops-ls")), p.pod(lsrPod("stops-lsr"))
	p.soon(5*time.Second, ls, []string{"main cpuset.cpus=" + rest})
	if err := p.client.StopPod(p.t.Context(), lsr.SandboxID); err != nil {
		p.t.Fatal(err)
	}
	p.soon(3*time.Second, ls, inForce(allCPUs()))
}
