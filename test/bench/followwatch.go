// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// burstEvery lies between two reads of the kernel's files.
const burstEvery = 2 * time.Millisecond

// change changes the ConfigMap and waits until NodeSLO, kernel and status have followed. Kernel and NodeSLO are watched from before the change on:
// the manager may hear of it sooner than the answer is here, which counts as no time.
func (n *labNode) change(ctx context.Context, files *bursts, percent int) (followed, error) {
	f := followed{percent: percent}
	already, err := files.all(burstOf(percent))
	if err == nil && already {
		err = fmt.Errorf("the kernel has a burst of %d µs before the change", burstOf(percent))
	}
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	h := heard{percent: percent}
	stands, ended := make(chan struct{}), make(chan error, 2)
	go func() { ended <- n.hear(ctx, &h, sync.OnceFunc(func() { close(stands) })) }()
	<-stands
	var inKernel time.Time
	go func() {
		var err error
		inKernel, f.gap, err = files.await(ctx, burstOf(percent))
		ended <- err
	}()
	err = n.cluster.TellManager(ctx, map[string]string{burstKey: burstConfig(percent)})
	answered := time.Now()
	if err != nil {
		cancel()
	}
	for range cap(ended) {
		if e := <-ended; e != nil {
			err = errors.Join(err, e)
			cancel()
		}
	}
	f.written, f.kernel, f.told = max(h.written.Sub(answered), 0), max(inKernel.Sub(answered), 0), max(h.told.Sub(answered), 0)
	return f, err
}

// heard is when a NodeSLO had a percentage, and when its status said that this is in force.
type heard struct {
	percent       int
	written, told time.Time
}

// sees takes in the object as it is now and reports whether there is more to come.
func (h *heard) sees(now time.Time, o cluster.Object) bool {
	if burstPercent(o) != h.percent {
		return true
	}
	if h.written.IsZero() {
		h.written = now
	}
	if o.InForce() {
		h.told = now
	}
	return h.told.IsZero()
}

// hear watches the NodeSLO until all of it was heard. stands is called when nothing can be missed any more, at the end at the latest.
func (n *labNode) hear(ctx context.Context, h *heard, stands func()) error {
	defer stands()
	err := n.cluster.Admin().Watch(ctx, sloPath+"/nodeslos", func(e cluster.Event) bool {
		now := time.Now()
		stands() // the first event is the object as it is
		return h.sees(now, e.Object)
	})
	if err != nil {
		return fmt.Errorf("NodeSLO with %d %%, written %t, in force %t: %w", h.percent, !h.written.IsZero(), !h.told.IsZero(), err)
	}
	return nil
}

// burstPercent is what a NodeSLO says.
func burstPercent(o cluster.Object) int { return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") }

// settled waits until a percentage is in force everywhere.
func (n *labNode) settled(ctx context.Context, files *bursts, percent int) error {
	n.b.say("follow: wait for the first strategy")
	return eventually(ctx, followStart, 200*time.Millisecond, func() error {
		o, err := n.cluster.Admin().Get(ctx, sloPath+"/nodeslos/"+n.kubelet.Node)
		if err != nil {
			return err
		}
		if burstPercent(o) != percent || !o.InForce() {
			return fmt.Errorf("the first strategy is not in force: spec %s, status %s", o.Compact("spec"), o.Compact("status"))
		}
		has, err := files.all(burstOf(percent))
		if err == nil && !has {
			err = fmt.Errorf("the kernel does not have %d µs", burstOf(percent))
		}
		return err
	})
}

// burstFiles are those in which the kernel has the burst of the containers of LS pods.
func (n *labNode) burstFiles(ctx context.Context) ([]string, error) {
	tree, err := cgroups.Detect()
	if err != nil {
		return nil, err
	}
	mount, file := tree.Controllers["cpu"], "cpu.cfs_burst_us"
	if tree.V2() {
		mount, file = tree.Unified, "cpu.max.burst"
	}
	pods, err := n.cluster.Admin().Items(ctx, podsPath)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range pods {
		if p.Str("metadata", "labels", classLabel) != "LS" {
			continue
		}
		for _, dir := range groupsOf(p)[1:] { // the first is the pod's
			out = append(out, filepath.Join(mount, n.rig.host.Cgroup, dir, file))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is no container of an LS pod")
	}
	return out, nil
}

// bursts are such files, which stay open. One goroutine at a time may read them.
type bursts struct {
	files []*os.File
	buf   [32]byte
}

func openBursts(paths []string) (*bursts, error) {
	b := &bursts{}
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch the burst of a container: %w", err), b.close())
		}
		b.files = append(b.files, f)
	}
	return b, nil
}

func (b *bursts) close() error {
	var errs []error
	for _, f := range b.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// all reports whether every container has that burst.
func (b *bursts) all(micros int) (bool, error) {
	for _, f := range b.files {
		n, err := f.ReadAt(b.buf[:], 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("read the burst of a container: %w", err)
		}
		has, err := strconv.Atoi(strings.TrimSpace(string(b.buf[:n])))
		if err != nil {
			return false, fmt.Errorf("read the burst of a container: %s: %w", f.Name(), err)
		}
		if has != micros {
			return false, nil
		}
	}
	return true, nil
}

// await reads until every container has that burst, and returns the end of the read that shows it, so too late by up to gap: the time since the read
// before began.
func (b *bursts) await(ctx context.Context, micros int) (at time.Time, gap time.Duration, err error) {
	tick := time.NewTicker(burstEvery)
	defer tick.Stop()
	for before := time.Now(); ; {
		begun := time.Now()
		all, err := b.all(micros)
		if at = time.Now(); all || err != nil {
			return at, at.Sub(before), err
		}
		before = begun
		select {
		case <-ctx.Done():
			return at, 0, fmt.Errorf("wait for a burst of %d µs: %w", micros, ctx.Err())
		case <-tick.C:
		}
	}
}
