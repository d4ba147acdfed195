// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
)

const (
	// followGoal is from the API server's answer to a change of the ConfigMap to the kernel, and to the status that says so; followUsual is
	// what the kernel is to take as a rule. In seconds.
	followGoal, followUsual = 10.0, 2.0
	// followPods are the node's, of one container each.
	followPods = 10
	// followLow and followHigh are cpuBurstPercent, by turns. The burst of a container with a limit says to the microsecond which of them is in
	// force, whatever the machine does, where the quota of the best-effort class moves with the node's use and grows in steps. It goes the longest
	// way, too: koordlet hands it on to koord-nri, which writes it; that quota it writes itself.
	followLow, followHigh = 25, 50
	// followRest lies between two changes, and a random part of followPhase. The end of a round is in step with koordlet, which looks every two
	// seconds for what is in force and ticks every second; two of the longer interval leave no phase of either more likely than another.
	followRest, followPhase = 2 * time.Second, 4 * time.Second
	// followLimit bounds a round, followStart the time to the first strategy in force.
	followLimit, followStart = time.Minute, 2 * time.Minute
)

// followOptions are those of the benchmark of a change of the cluster's strategy.
type followOptions struct{ rounds int }

func (o *followOptions) flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "follow-rounds", 20, "follow: changes of the ConfigMap")
}

// follow changes the strategy of a cluster whose one node is real, again and again, and looks how soon koord-manager and the node have followed.
func (b *bench) follow(ctx context.Context, r *report) (err error) {
	n, err := b.newNode(ctx, r.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	end, err := n.manage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	versions, err := lab.Versions()
	if err != nil {
		return err
	}
	r.note("kubelet and API server %s; %d pods of one container, LS and BE by turns; cpuBurstPercent %d and %d by turns",
		versions["KUBERNETES"], followPods, followLow, followHigh)
	all, err := n.rounds(ctx, r)
	if err != nil {
		if ctx.Err() == nil {
			err = n.explained(err)
		}
		return err
	}
	tellFollowed(r, all)
	return nil
}

// manage starts pods, koord-nri and koordlet on the node and koord-manager, with the rights of its manifests, beside its cluster; end is for those
// on the node.
func (n *labNode) manage(ctx context.Context) (end func() error, err error) {
	if err := n.define(ctx, "packaging/crds"); err != nil {
		return nil, err
	}
	if err := n.cluster.InstallManager(ctx, "packaging/manifests"); err != nil {
		return nil, err
	}
	// Before the manager: with colocation off, which is the default, it takes the room for batch pods away; those that run stay.
	if err := n.startPods(ctx, followPods, 1); err != nil {
		return nil, err
	}
	if err := n.cluster.TellManager(ctx, map[string]string{
		"resource-threshold-config": `{"clusterStrategy": ` + agentThreshold + `}`, burstKey: burstConfig(followLow),
	}); err != nil {
		return nil, err
	}
	cmd, _, err := n.b.ourManager(n.cluster, "slo")
	if err != nil {
		return nil, err
	}
	p, err := startManager(n.rig.host.Dir, "koord-manager", cmd)
	if err != nil {
		return nil, err
	}
	n.rig.plugins = append(n.rig.plugins, p)
	_, _, end, err = n.startOurs(ctx)
	return end, err
}

// burstKey is the key of the ConfigMap that changes.
const burstKey = "cpu-burst-config"

// burstConfig is its text. Quotas are left alone (cpuBurstOnly): a burst is held at the quota.
func burstConfig(percent int) string {
	return fmt.Sprintf(`{"clusterStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": %d}}`, percent)
}

// burstOf is what the kernel has by it for a container of an LS pod, in µs: the limit is one CPU.
func burstOf(percent int) int { return percent * quotaMicros / 100 }

// explained adds what the programs have said last.
func (n *labNode) explained(err error) error {
	for _, p := range n.rig.plugins {
		err = fmt.Errorf("%w; end of the log of %s:\n%s", err, p.name, p.tail())
	}
	return err
}

// rounds waits for the first strategy, and then changes it; the raw file has a line for each change.
func (n *labNode) rounds(ctx context.Context, r *report) (all []followed, err error) {
	paths, err := n.burstFiles(ctx)
	if err != nil {
		return nil, err
	}
	files, err := openBursts(paths)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, files.close()) }()
	if err := n.settled(ctx, files, followLow); err != nil {
		return nil, err
	}
	r.note("changes, since the API server's answer to the PATCH of the ConfigMap; in the kernel: in %d containers", len(paths))
	for i := range n.b.o.follow.rounds {
		if err := wait(ctx, followRest+rand.N(followPhase)); err != nil {
			return nil, err
		}
		f, err := n.change(ctx, files, [...]int{followHigh, followLow}[i%2])
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		n.b.say("follow: %d %s", i+1, f)
		r.note("%3d %s", i+1, f)
		all = append(all, f)
	}
	return all, nil
}

// followed is one change: when the NodeSLO had it, the kernel, and the NodeSLO's status, each since the API server's answer.
type followed struct {
	percent               int
	written, kernel, told time.Duration
	// gap is how long before the kernel's instant the last read began that did not show it.
	gap time.Duration
}

// String is the change in a line.
func (f followed) String() string {
	return fmt.Sprintf("to %d %%: NodeSLO written after %s, in the kernel after %s (read %s after the read before), status says so after %s",
		f.percent, took(f.written.Seconds()), took(f.kernel.Seconds()), took(f.gap.Seconds()), took(f.told.Seconds()))
}

// tellFollowed judges what koord-manager and the node have taken together.
func tellFollowed(r *report, all []followed) {
	of := func(name string, is func(followed) time.Duration) sample {
		var out sample
		for _, f := range all {
			out = append(out, is(f).Seconds())
		}
		r.note("%-7s %s", name, out.line())
		return out.sorted()
	}
	written := of("written", func(f followed) time.Duration { return f.written })
	kernel := of("kernel", func(f followed) time.Duration { return f.kernel })
	told := of("told", func(f followed) time.Duration { return f.told })
	gap := of("read", func(f followed) time.Duration { return f.gap })
	const changed = "ConfigMap changed → "
	r.tell(changed+"NodeSLO written", "%s", spread(written))
	r.judge(changed+"in the kernel, median", "≤ 2 s", took(kernel.median()), kernel.median() <= followUsual)
	for _, f := range []struct {
		what string
		took sample
	}{{"in the kernel", kernel}, {"NodeSLO.status says so", told}} {
		most := f.took.quantile(1)
		text := fmt.Sprintf("%s (median %s, p90 %s of %d)", took(most), took(f.took.median()), took(f.took.quantile(0.9)), len(f.took))
		r.judge(changed+f.what+", max", "≤ 10 s", text, most <= followGoal)
	}
	r.tell("between two reads of the kernel, of which the second showed it", "%s", spread(gap))
}
