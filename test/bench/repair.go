// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

const (
	syncGoal   = 0.5 // seconds inside Synchronize
	repairGoal = 5.0 // seconds from its reply to the last repaired container
)

// value is one control file and what it must hold.
type value struct{ path, want string }

// sync starts koord-nri on a node full of containers that it has never seen.
func (b *bench) sync(ctx context.Context, r *report) error {
	f, err := b.bigFleet(ctx)
	if err != nil {
		return err
	}
	before, err := f.snapshot()
	if err != nil {
		return err
	}
	want := f.wanted()
	var answers, repairs sample
	for i := range b.o.repeat {
		if n := len(unmet(want)); n != len(want) {
			return fmt.Errorf("%d of %d values stand before koord-nri starts: nothing would be measured", len(want)-n, len(want))
		}
		answered, repaired, err := b.syncOnce(ctx, r, f, want)
		if err != nil {
			return fmt.Errorf("repetition %d: %w", i+1, err)
		}
		answers, repairs = append(answers, answered), append(repairs, repaired)
		r.note("repetition %d: Synchronize %s, all repaired %s after it", i+1, took(answered), took(repaired))
		if err := before.write(); err != nil {
			return err
		}
	}
	answers, repairs = answers.sorted(), repairs.sorted()
	r.note("%d containers in %d pods, %d values read from the kernel", b.o.fleet, len(f.pods), len(want))
	r.judge("Synchronize answered in (worst)", "≤ 500 ms", took(answers.quantile(1)), answers.quantile(1) <= syncGoal)
	r.judge("all repaired after it (worst)", "≤ 5 s", took(repairs.quantile(1)), repairs.quantile(1) <= repairGoal)
	r.tell("median of both", "%s, %s", took(answers.median()), took(repairs.median()))
	return nil
}

// syncOnce returns the seconds inside Synchronize and those from its end to the last value in the kernel.
func (b *bench) syncOnce(ctx context.Context, r *report, f *fleet, want []value) (answered, repaired float64, err error) {
	p, err := b.launch(ctx, f.rig, "ours", plainIndex)
	if err != nil {
		return 0, 0, err
	}
	left := want
	err = eventually(ctx, time.Minute, 5*time.Millisecond, func() error {
		if left = unmet(left); len(left) > 0 {
			return fmt.Errorf("%d of %d values are missing, the first is %s = %s", len(left), len(want), left[0].path, left[0].want)
		}
		return nil
	})
	done := time.Now()
	if err == nil {
		err = p.wait(ctx)
	}
	if err == nil {
		if left = unmet(want); len(left) > 0 {
			err = fmt.Errorf("%d values did not last", len(left))
		}
	}
	if err != nil {
		return 0, 0, errors.Join(fmt.Errorf("%w; koord-nri:\n%s", err, p.tail()), p.stop())
	}
	synced, err := p.lastSync()
	if err != nil {
		return 0, 0, errors.Join(err, p.stop())
	}
	repaired = done.Sub(synced).Seconds()
	l := load{rig: f.rig, ours: p}
	own, err := l.own(ctx)
	if err != nil {
		return 0, 0, errors.Join(err, p.stop())
	}
	if remote, err := l.remote(ctx); err == nil {
		for op, h := range remote["ours"] {
			r.note("containerd sees %s: %s in %d messages so far", op, took(h.sum), h.count)
		}
	}
	return own["Synchronize"].sum, repaired, p.stop()
}

// bigFleet is shared by the benchmarks that need a full node.
func (b *bench) bigFleet(ctx context.Context) (*fleet, error) {
	if b.crowd != nil {
		return b.crowd, nil
	}
	r, err := newRig(ctx)
	if err != nil {
		return nil, err
	}
	f, err := b.startFleet(ctx, r, b.o.fleet, 50)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	b.crowd = f
	return f, nil
}

// file is a control file of cgroup v1 or v2.
func (f *fleet) file(v1, v2 string) (controller, name string) {
	if f.rig.tree.V2() {
		return "", v2
	}
	controller, _, _ = strings.Cut(v1, ".")
	return controller, v1
}

// wanted is one value per LS container and two per BE container, known from the pods' specification.
func (f *fleet) wanted() []value {
	var out []value
	for i, run := range f.pods {
		for _, c := range run.Pod.Containers {
			put := func(v1, v2, want1, want2 string) {
				controller, name := f.file(v1, v2)
				want := want2
				if controller != "" {
					want = want1
				}
				out = append(out, value{filepath.Join(f.rig.kube.ContainerDir(run, c.Name, controller), name), want})
			}
			if i%2 == 0 {
				put("cpu.cfs_burst_us", "cpu.max.burst", strconv.Itoa(burstMicros), strconv.Itoa(burstMicros))
				continue
			}
			put("memory.limit_in_bytes", "memory.max", strconv.Itoa(batchMemory), strconv.Itoa(batchMemory))
			put("cpu.cfs_quota_us", "cpu.max", strconv.Itoa(quotaMicros), fmt.Sprintf("%d %d", quotaMicros, quotaMicros))
		}
	}
	return out
}

// unmet are the values that the kernel does not hold.
func unmet(want []value) []value {
	var out []value
	for _, w := range want {
		data, err := os.ReadFile(w.path)
		if err != nil || strings.TrimSpace(string(data)) != w.want {
			out = append(out, w)
		}
	}
	return out
}

// snapshot is what the kernel held before the first repetition, pods before their containers.
type snapshot struct {
	values []value
	dirs   []string // of containers, whose processes return to the default policy
}

// restoreFiles in the order in which they can be written back: what forbids other values first.
func restoreFiles() [][2]string {
	return [][2]string{
		{"cpu.idle", "cpu.idle"}, {"cpu.shares", "cpu.weight"}, {"cpu.cfs_burst_us", "cpu.max.burst"},
		{"cpu.cfs_quota_us", "cpu.max"}, {"memory.memsw.limit_in_bytes", "memory.swap.max"}, {"memory.limit_in_bytes", "memory.max"}, {"memory.high", "memory.high"},
		{"memory.low", "memory.low"}, {"memory.min", "memory.min"},
	}
}

func (f *fleet) snapshot() (snapshot, error) {
	var s snapshot
	for _, run := range f.pods {
		if err := f.note(&s, func(controller string) string { return f.rig.kube.PodDir(run, controller) }); err != nil {
			return s, err
		}
	}
	for _, run := range f.pods {
		for _, c := range run.Pod.Containers {
			if err := f.note(&s, func(controller string) string { return f.rig.kube.ContainerDir(run, c.Name, controller) }); err != nil {
				return s, err
			}
			s.dirs = append(s.dirs, f.containerDir(run, c.Name))
		}
	}
	return s, nil
}

func (f *fleet) containerDir(run *kubelet.Running, name string) string {
	controller, _ := f.file("cpu.shares", "")
	return f.rig.kube.ContainerDir(run, name, controller)
}

// note reads the files of one cgroup; those that this kernel lacks are left out.
func (f *fleet) note(s *snapshot, dir func(controller string) string) error {
	for _, names := range restoreFiles() {
		controller, name := f.file(names[0], names[1])
		path := filepath.Join(dir(controller), name)
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read cgroup file: %w", err)
		}
		s.values = append(s.values, value{path, strings.TrimSpace(string(data))})
	}
	return nil
}

// write puts everything back that has changed.
func (s snapshot) write() error {
	for _, v := range unmet(s.values) {
		if err := cgroups.Write(filepath.Dir(v.path), filepath.Base(v.path), v.want); err != nil {
			return err
		}
	}
	for _, d := range s.dirs {
		for _, pid := range cgroups.Pids(d) {
			err := unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("set scheduling policy of %d: %w", pid, err)
			}
		}
	}
	return nil
}
