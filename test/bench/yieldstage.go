// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// stage is the node on which loads come and go: a container of an LS pod and one of a best-effort pod.
type stage struct {
	n                   *labNode
	tree                cgroups.Tree
	class, front, batch cpuGroup
	quota               *gauge
}

// newStage is for a node whose pods run.
func (n *labNode) newStage(ctx context.Context) (*stage, error) {
	s := &stage{n: n}
	var err error
	if s.tree, err = cgroups.Detect(); err != nil {
		return nil, err
	}
	if s.class, err = cpuGroupOf(s.tree, filepath.Join(n.rig.host.Cgroup, "kubepods", "besteffort")); err != nil {
		return nil, err
	}
	for class, group := range map[string]*cpuGroup{"LS": &s.front, "BE": &s.batch} {
		if *group, err = n.containerOf(ctx, s.tree, class); err != nil {
			return nil, err
		}
	}
	s.quota, err = openGauge(s.class.limits, s.tree.V2())
	return s, err
}

func (s *stage) close() error { return s.quota.close() }

// containerOf is the first container of the first pod of a class.
func (n *labNode) containerOf(ctx context.Context, tree cgroups.Tree, class string) (cpuGroup, error) {
	pods, err := n.cluster.Admin().Items(ctx, podsPath)
	if err != nil {
		return cpuGroup{}, err
	}
	for _, p := range pods {
		if groups := groupsOf(p); p.Str("metadata", "labels", classLabel) == class && len(groups) > 1 { // the first is the pod's
			return cpuGroupOf(tree, filepath.Join(n.rig.host.Cgroup, groups[1]))
		}
	}
	return cpuGroup{}, fmt.Errorf("there is no container of a pod of class %s", class)
}

// cpuGroup is where a control group's CPU is limited and where it is counted: directories of the controllers cpu and cpuacct on cgroup v1, which are
// often one, and one directory on v2.
type cpuGroup struct{ limits, counts string }

func cpuGroupOf(tree cgroups.Tree, name string) (cpuGroup, error) {
	limits, counts := tree.Unified, tree.Unified
	if !tree.V2() {
		limits, counts = tree.Controllers["cpu"], tree.Controllers["cpuacct"]
	}
	if limits == "" || counts == "" {
		return cpuGroup{}, errors.New("the controllers cpu and cpuacct are not mounted")
	}
	return cpuGroup{filepath.Join(limits, name), filepath.Join(counts, name)}, nil
}

// dirs are those in which a process of the group has to be.
func (g cpuGroup) dirs() []string {
	if g.limits == g.counts {
		return []string{g.limits}
	}
	return []string{g.limits, g.counts}
}

// leg is one agent's turns, beside a best-effort process that computes from before its start to after its end.
func (s *stage) leg(ctx context.Context, r *report, way string, rounds int) (all yields, err error) {
	// What the agent before has left would pass for this one's.
	if err := s.lift(); err != nil {
		return nil, err
	}
	batch, err := newSpinner(s.batch.dirs()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, batch.end()) }()
	if err := batch.begin(); err != nil {
		return nil, fmt.Errorf("let best effort begin: %w", err)
	}
	_, _, end, err := s.n.startAgent(ctx, way)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	for i := range rounds {
		y, err := s.turn(ctx, way)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", i+1, err)
		}
		s.n.b.say("yield: %d %s", i+1, y)
		r.note("%3d %s", i+1, y)
		all = append(all, y)
	}
	return all, nil
}

// lift takes the quota of the class away, while no agent runs.
func (s *stage) lift() error {
	if s.tree.V2() {
		return cgroups.Write(s.class.limits, "cpu.max", "max")
	}
	return cgroups.Write(s.class.limits, "cpu.cfs_quota_us", "-1")
}

// turn waits until the class has what it had, and lets the load begin at any moment of the agent's second.
func (s *stage) turn(ctx context.Context, way string) (y *yielded, err error) {
	load, err := newSpinner(s.front.dirs()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, load.end()) }()
	if err := wait(ctx, restFor); err != nil {
		return nil, err
	}
	y = &yielded{turn: turn{Way: way}}
	quota := 0
	for !roomy(quota) { // it may move in the part of a second that follows the calm
		if err := awaitCalm(ctx, calm{room: yieldRoom, wobble: yieldWobble}, s.quota.allowed); err != nil {
			return nil, err
		}
		if quota, err = s.quota.allowed(); err != nil {
			return nil, err
		}
	}
	y.Steps = []step{{0, quota}}
	return y, s.loaded(ctx, load, y)
}

// roomy reports whether a load can take leastTaken from a quota.
func roomy(quota int) bool { return quota >= yieldRoom && quota != unlimited }

// loaded is the turn from the load's begin on.
func (s *stage) loaded(ctx context.Context, load *spinner, y *yielded) error {
	batch, err := s.tree.CPUTime(s.class.counts)
	if err != nil {
		return err
	}
	front, err := s.tree.CPUTime(s.front.counts)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := load.begin(); err != nil {
		return fmt.Errorf("let a load begin: %w", err)
	}
	if err := s.quota.watch(ctx, begun, yieldWithin, &y.turn); err != nil {
		return err
	}
	over := time.Since(begun).Seconds()
	batchNow, err := s.tree.CPUTime(s.class.counts)
	if err != nil {
		return err
	}
	frontNow, err := s.tree.CPUTime(s.front.counts)
	y.batch, y.load = (batchNow-batch).Seconds()/over, (frontNow-front).Seconds()/over
	return err
}

// watch looks until the turn is done or the limit has passed.
func (g *gauge) watch(ctx context.Context, begun time.Time, limit time.Duration, t *turn) error {
	rest := unix.NsecToTimespec(yieldEvery.Nanoseconds())
	for !t.done() && time.Since(begun) < limit && ctx.Err() == nil {
		quota, err := g.allowed()
		if err != nil {
			return err
		}
		t.sees(time.Since(begun), quota)
		_ = unix.Nanosleep(&rest, nil) // a shorter one does no harm
	}
	return ctx.Err()
}
