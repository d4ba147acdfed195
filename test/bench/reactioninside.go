// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

const (
	// restFor lies between two loads before calm is looked for: what the load has used is then out of the last second's use.
	restFor = 3 * time.Second
	// calmWithin is how long a class may take to get back what it had. Without load that is ten seconds and a tenth of the node each
	// second.
	calmWithin = 2 * time.Minute
	// answeredWithin bounds a turn. What has not come by then has not come.
	answeredWithin = 10 * time.Second
	// calledWithin is how long the benchmark's own trigger is waited for, which may be told after koordlet's.
	calledWithin = 200 * time.Millisecond
)

// scene is the node inside the guest: an LS pod at rest and a best-effort pod that computes on the last CPU.
type scene struct {
	b         *bench
	rig       *rig
	run, dir  string
	spec      any
	lookout   *lookout
	triggers  *psi.Watcher
	pod, main string // cgroups of the LS pod and of its container
	batch     *spinner
	// base is what called counts from: when the benchmark's own trigger fired for the first time in this turn, 0 for not yet.
	base   time.Time
	called atomic.Int64
}

// reactionInside is the part of the benchmark that runs in the guest.
func (b *bench) reactionInside(ctx context.Context, out io.Writer) (err error) {
	s, err := b.newScene(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := s.close(); err != nil {
			b.say("reaction: clean up: %v", err) // the machine ends with us
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.triggers.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	var all turns
	for i := range b.o.reaction.rounds {
		for _, way := range []string{wayTriggers, wayTick} {
			t, err := s.life(ctx, way)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", i+1, way, err)
			}
			b.say("reaction: %d %s", i+1, t)
			all = append(all, t)
		}
	}
	return json.NewEncoder(out).Encode(all)
}

func (b *bench) newScene(ctx context.Context) (*scene, error) {
	r, err := newRig(ctx)
	if err != nil {
		return nil, err
	}
	s := &scene{b: b, rig: r, base: time.Now()}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// prepare starts koord-nri and the pods. The strategy puts no class before another on a CPU, so that an LS pod which asks for next to
// nothing waits for half of the time beside a best-effort one: that is what is to be answered.
func (s *scene) prepare(ctx context.Context) (err error) {
	if !s.rig.tree.V2() {
		return errors.New("pressure triggers of pods need cgroup v2")
	}
	if err := yaml.Unmarshal([]byte(agentStrategy), &s.spec); err != nil {
		return fmt.Errorf("parse strategy: %w", err)
	}
	if s.run, err = runDir(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp(s.rig.host.Dir, wayOurs); err != nil {
		return fmt.Errorf("create folder of the daemons: %w", err)
	}
	_, err = s.b.launchOurs(ctx, s.rig, "koord-nri", s.run, s.dir, map[string]any{
		"kind": "NRIConfig", "socket": s.rig.host.NRISocket, "strategy": s.spec,
		"metrics": map[string]any{"address": "unix:" + filepath.Join(s.run, "nri-metrics.sock")},
	})
	if err != nil {
		return err
	}
	ls := named("react", "LS", 0, 1)
	ls.Containers[0].Resources.Requests = map[string]kubelet.Quantity{"cpu": "10m", "memory": "64Mi"}
	front, err := s.rig.kube.StartPod(ctx, ls)
	if err != nil {
		return err
	}
	back, err := s.rig.kube.StartPod(ctx, named("react", "BE", 1, 1))
	if err != nil {
		return err
	}
	s.pod, s.main = s.rig.kube.PodDir(front, ""), s.rig.kube.ContainerDir(front, "c0", "")
	if s.lookout, err = newLookout(filepath.Dir(s.rig.kube.PodDir(back, "")), s.pod); err != nil {
		return err
	}
	if s.triggers, err = psi.NewWatcher(); err != nil {
		return err
	}
	if s.batch, err = lastSpinner(s.rig.kube.ContainerDir(back, "c0", "")); err != nil {
		return err
	}
	return s.batch.begin()
}

func (s *scene) close() error {
	errs := []error{s.batch.end()}
	if s.lookout != nil {
		errs = append(errs, s.lookout.close())
	}
	return errors.Join(append(errs, s.rig.close(), os.RemoveAll(s.run))...)
}

// life is one turn of a koordlet of its own, and of a trigger of the benchmark's own: neither a trigger's window nor what koordlet has counted
// is left of the turn before.
func (s *scene) life(ctx context.Context, way string) (t *turn, err error) {
	metrics := filepath.Join(s.run, "koordlet-metrics.sock")
	config := map[string]any{
		"kind": "KoordletConfig", "runtimeEndpoint": "unix://" + s.rig.host.Socket, "strategy": s.spec,
		"metrics": map[string]any{"address": "unix:" + metrics},
		"kubelet": map[string]any{"endpoint": ""}, "apiServer": map[string]any{"mode": "off"},
	}
	if way == wayTick {
		config["pressure"] = map[string]any{"stall": "0s"}
	}
	// What an earlier turn's pressure has taught holds growth back for twice as long each time (ADR 24), and a turn waits for all of it.
	if err := os.Remove(filepath.Join(s.run, "koordlet-state.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	agent, err := s.b.launchOurs(ctx, s.rig, "koordlet", s.run, s.dir, config)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w; end of koordlet's log:\n%s", err, agent.tail())
		}
		err = errors.Join(err, agent.stop())
	}()
	if way == wayTriggers {
		watch, err := s.triggers.Add(filepath.Join(s.pod, "cpu.pressure"), watchedTrigger(), func(psi.Event) {
			s.called.CompareAndSwap(0, int64(time.Since(s.base)))
		})
		if err != nil {
			return nil, err
		}
		defer watch.Close()
	}
	return s.turn(ctx, way, metrics)
}

// decisions are koordlet's between two ticks: how long each took, and from the trigger to the end of its writes.
func decisions(ctx context.Context, metrics string) (both histograms, err error) {
	each := func(map[string]string) bool { return true }
	loops, err := scrape(ctx, metrics, "http://koordlet/metrics", "koord_rt_koordlet_loop_duration_seconds", "loop", each)
	if err != nil {
		return nil, err
	}
	steps, err := scrape(ctx, metrics, "http://koordlet/metrics", "koord_rt_koordlet_reaction_seconds", "", each)
	if err != nil {
		return nil, err
	}
	return histograms{decided: loops["pressure"], answered: steps[""]}, nil
}

// Of decisions.
const decided, answered = "decided", "answered"

// turn waits until the class has what it had, and lets the load begin at any moment of koordlet's second.
func (s *scene) turn(ctx context.Context, way, metrics string) (*turn, error) {
	load, err := lastSpinner(s.main)
	if err != nil {
		return nil, err
	}
	t := &turn{Way: way}
	if err = wait(ctx, restFor); err == nil {
		err = awaitCalm(ctx, calm{room: leastRoom, wobble: calmWobble}, s.lookout.quota.allowed)
	}
	var before, after histograms
	if err == nil {
		before, err = decisions(ctx, metrics)
	}
	if err == nil {
		err = s.loaded(ctx, load, t)
	}
	if err == nil {
		after, err = decisions(ctx, metrics)
	}
	if since := after.since(before); since[decided].count > 0 {
		t.Between, t.Step = since[decided].count, since[answered].mean()
	}
	return t, errors.Join(err, load.end())
}

// loaded is the turn from the load's begin on.
func (s *scene) loaded(ctx context.Context, load *spinner, t *turn) error {
	rested, err := s.lookout.stalled()
	if err != nil {
		return err
	}
	quota, err := s.lookout.quota.allowed()
	if err != nil {
		return err
	}
	t.Steps = []step{{0, quota}}
	s.called.Store(0)
	begun := time.Now()
	if err := load.begin(); err != nil {
		return fmt.Errorf("let a load begin: %w", err)
	}
	if err := s.lookout.watch(ctx, begun, rested, answeredWithin, t); err != nil || t.Way != wayTriggers {
		return err
	}
	for until := time.Now().Add(calledWithin); s.called.Load() == 0 && time.Now().Before(until); time.Sleep(time.Millisecond) {
	}
	if at := s.called.Load(); at != 0 {
		t.Called = max(time.Duration(at)-begun.Sub(s.base), 1)
	}
	return nil
}

// spinner is a process in a container's cgroup that computes from its begin on.
type spinner struct {
	cmd  *exec.Cmd
	gate io.Closer
}

// newSpinner has it in place: what it uses, makes others wait for, and waits for itself, is the container's. These are its directories: of each
// controller on cgroup v1.
func newSpinner(groups ...string) (*spinner, error) {
	l := &spinner{cmd: exec.Command("sh", "-c", "read go; while :; do :; done")}
	gate, err := l.cmd.StdinPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a load: %w", err)
	}
	l.gate = gate
	for _, group := range groups {
		err = errors.Join(err, cgroups.Write(group, "cgroup.procs", strconv.Itoa(l.cmd.Process.Pid)))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("place a load: %w", err), l.end())
	}
	return l, nil
}

// lastSpinner computes on the last CPU only.
func lastSpinner(group string) (*spinner, error) {
	l, err := newSpinner(group)
	if err != nil {
		return nil, err
	}
	var set unix.CPUSet
	set.Set(lastCPU())
	if err := unix.SchedSetaffinity(l.cmd.Process.Pid, &set); err != nil {
		return nil, errors.Join(fmt.Errorf("bind a load: %w", err), l.end())
	}
	return l, nil
}

func (l *spinner) begin() error { return l.gate.Close() }

// end is for one that never was, too.
func (l *spinner) end() error {
	if l == nil {
		return nil
	}
	if err := l.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("end a load: %w", err)
	}
	_ = l.cmd.Wait() // it was killed
	return nil
}

// lastCPU is where both pods compute.
func lastCPU() int { return runtime.NumCPU() - 1 }
