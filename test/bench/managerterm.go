// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// term is one manager's turn.
type term struct {
	name string
	spent
	// server and etcd are the control plane beside it.
	server, etcd spent
	length       time.Duration
	// reports that arrived in the window.
	reports int64
	asked
	// first is from the start to the first NodeSLO of every node, startCPU the processor time until then in seconds; spread is from a
	// change of the ConfigMap to the changed NodeSLO of every node; bare is what the writes of another such change take by themselves, after
	// our legs only.
	first, spread, bare time.Duration
	startCPU            float64
}

func (t term) perMinute() float64 { return float64(t.reports) / t.length.Minutes() }

func (t term) perReport() float64 { return t.cores * t.length.Seconds() / float64(max(t.reports, 1)) }

// perNodeHour leaves the lease out, whose renewals do not become more with the nodes.
func (t term) perNodeHour(nodes int) float64 {
	return float64(t.aboutNodes()) / float64(nodes) / t.length.Hours()
}

func (t term) aboutNodes() int { return t.writes - countOf(t.kinds, "update leases") }

// countOf is the number of one kind of request in a list such as "7 update leases".
func countOf(kinds []string, kind string) int {
	for _, k := range kinds {
		number, name, _ := strings.Cut(k, " ")
		if n, err := strconv.Atoi(number); err == nil && name == kind {
			return n
		}
	}
	return 0
}

// note writes the term into the raw file.
func (t term) note(r *report, number int) {
	r.note("leg %d: %s for %s: %.4f of a core, %.2f ms of CPU per report; %d reports; %d threads, %d descriptors; %s", number, t.name,
		t.length.Round(time.Millisecond), t.cores, t.perReport()*1000, t.reports, t.threads, t.descriptors, t.memory)
	r.note("       first NodeSLOs after %s with %s of CPU, changed ones after %s", took(t.first.Seconds()), took(t.startCPU), took(t.spread.Seconds()))
	if t.bare > 0 {
		r.note("       the writes of a change by themselves %s", took(t.bare.Seconds()))
	}
	r.note("       %d API writes, %d reads in the window: %s", t.writes, t.reads, strings.Join(t.kinds, ", "))
	r.note("       beside it: API server %.3f of a core, %s; etcd %.3f of a core, %s", t.server.cores, t.server.memory, t.etcd.cores, t.etcd.memory)
}

// term starts a manager on a cluster that knows of none, waits until it has settled, and counts what it uses.
func (w *world) term(ctx context.Context, name string) (t term, err error) {
	t.name = name
	// What one manager owns of an object the other leaves alone: each makes its own.
	for _, kind := range []string{"nodeslos", "nodemetrics"} {
		if err := w.cluster.Admin().Delete(ctx, sloPath+"/"+kind, -1); err != nil {
			return t, err
		}
	}
	// Upstream's does not give its lease back.
	const lease = "/apis/coordination.k8s.io/v1/namespaces/" + cluster.ManagerNamespace + "/leases/koordinator-manager"
	if err := w.cluster.Admin().Delete(ctx, lease, 0); err != nil {
		return t, err
	}
	if err := w.cluster.TellManager(ctx, map[string]string{"resource-threshold-config": spreadConfig(65)}); err != nil {
		return t, err
	}
	if w.reports == nil {
		w.reports = w.report(ctx)
	}
	begun := time.Now()
	p, err := w.launch(ctx, name)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	pid := p.cmd.Process.Pid
	if t.first, err = w.spread(ctx, p, begun, 65); err != nil {
		return t, err
	}
	u, err := usedBy(pid)
	if err != nil {
		return t, err
	}
	t.startCPU = float64(u.own) / 100
	w.b.say("manager: all NodeSLOs after %s", t.first.Round(time.Millisecond))
	if err := wait(ctx, w.b.o.manager.settle); err != nil {
		return t, err
	}
	if err := w.window(ctx, &t, pid); err != nil {
		return t, err
	}
	changed := time.Now()
	if err := w.cluster.TellManager(ctx, map[string]string{"resource-threshold-config": spreadConfig(55)}); err != nil {
		return t, err
	}
	if t.spread, err = w.spread(ctx, p, changed, 55); err != nil {
		return t, err
	}
	// The peak is that of everything that it did.
	if t.memory, err = residentOf(pid); err != nil {
		return t, err
	}
	if name == wayOurs {
		if err := p.stop(); err != nil {
			return t, err
		}
		w.b.say("manager: the same writes by themselves")
		if t.bare, err = w.bare(ctx, 45); err != nil {
			return t, err
		}
	}
	return t, w.reports.problem()
}

// window counts while nothing happens but reports.
func (w *world) window(ctx context.Context, t *term, pid int) error {
	etcd, server := w.cluster.Pids()
	pids := [...]int{pid, server, etcd}
	var before [len(pids)]use
	var err error
	for i, p := range pids {
		if before[i], err = usedBy(p); err != nil {
			return err
		}
	}
	begin, sent := time.Now(), w.reports.sent.Load()
	if err := wait(ctx, w.b.o.manager.window); err != nil {
		return err
	}
	t.length, t.reports = time.Since(begin), w.reports.sent.Load()-sent
	for i, into := range [...]*spent{&t.spent, &t.server, &t.etcd} {
		if *into, err = spentSince(pids[i], before[i], t.length); err != nil {
			return err
		}
	}
	t.asked, err = audited(w.audit, managerUsers[t.name], begin, begin.Add(t.length))
	return err
}

// spread waits until the NodeSLO of every node has a value, and returns how long after begun that was.
func (w *world) spread(ctx context.Context, p *process, begun time.Time, value int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	go func() {
		select {
		case <-p.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	have := map[string]bool{}
	var came sample
	err := io.EOF
	// A busy API server ends a watch whose reader lags behind; the next one begins with all objects.
	for errors.Is(err, io.EOF) && ctx.Err() == nil {
		err = w.cluster.Admin().Watch(ctx, sloPath+"/nodeslos", func(e cluster.Event) bool {
			if e.Type != "DELETED" && e.Object.Int("spec", "resourceUsedThresholdWithBE", "cpuSuppressThresholdPercent") == value {
				if name := e.Object.Str("metadata", "name"); !have[name] {
					have[name], came = true, append(came, time.Since(begun).Seconds())
				}
			}
			return len(have) < w.b.o.manager.nodes
		})
	}
	if err != nil {
		return 0, fmt.Errorf("%d of %d nodes have a NodeSLO with %d: %w; end of the log of %s:\n%s", len(have), w.b.o.manager.nodes, value, err, p.name, p.tail())
	}
	w.b.say("manager: NodeSLOs with the value: %s", came.sorted().line())
	return time.Since(begun), nil
}

// launch starts a manager with the part that is compared: ours with --roles=slo, upstream's with the flags of its chart, its controllers
// of the same names and without webhooks.
func (w *world) launch(ctx context.Context, name string) (*process, error) {
	if name == wayOurs {
		cmd, _, err := w.b.ourManager(w.cluster, "slo")
		if err != nil {
			return nil, err
		}
		return w.start(name, cmd)
	}
	at, err := cluster.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	program, err := w.parts.File(ctx, parts.UpstreamManager, "koord-manager")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := w.cluster.Kubeconfig(managerUsers[name], "system:masters")
	if err != nil {
		return nil, err
	}
	return w.start(name, exec.Command(program, "--kubeconfig="+kubeconfig, "--enable-leader-election", "--metrics-addr="+at[0], "--health-probe-addr="+at[1],
		"--enable-pprof=false", "--logtostderr=true", "--leader-election-namespace="+cluster.ManagerNamespace, "--config-namespace="+cluster.ManagerNamespace,
		"--v=4", "--sync-period=0", "--feature-gates=WebhookFramework=false", "--controllers=nodemetric,noderesource,nodeslo"))
}

// start starts a manager that close ends.
func (w *world) start(name string, cmd *exec.Cmd) (*process, error) {
	p, err := startManager(w.dir, name, cmd)
	if err != nil {
		return nil, err
	}
	w.managers = append(w.managers, p)
	return p, nil
}

// ourManager is our manager with one role beside a cluster that it is installed in; at are the addresses of its metrics, probes and webhooks.
func (b *bench) ourManager(c *cluster.Cluster, role string) (cmd *exec.Cmd, at []string, err error) {
	if at, err = cluster.FreeAddresses(3); err != nil {
		return nil, nil, err
	}
	flags, err := c.ManagerFlags(at[0], at[1], at[2])
	if err != nil {
		return nil, nil, err
	}
	return exec.Command(filepath.Join(b.o.bin, "koord-manager"), append(flags, "--roles="+role)...), at, nil
}

// startManager starts a manager, with its log in a folder of its own below dir.
func startManager(dir, name string, cmd *exec.Cmd) (*process, error) {
	own, err := os.MkdirTemp(dir, name)
	if err != nil {
		return nil, fmt.Errorf("create folder of the manager: %w", err)
	}
	p := &process{name: name, exited: make(chan struct{}), log: filepath.Join(own, "log"), cmd: cmd}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}
