// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/engine/feed"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

const appCgroup = "/kubepods/podu/c1"

// oneContainer is a runtime with one container that was created with half a CPU.
type oneContainer struct{}

func (oneContainer) Sandboxes(context.Context) ([]workload.ListedPod, error) {
	return []workload.ListedPod{{Pod: &workload.Pod{ID: "s"}, Ready: true}}, nil
}

func (oneContainer) Containers(context.Context) ([]workload.ListedContainer, error) {
	return []workload.ListedContainer{{Sandbox: "s", Container: &workload.Container{ID: "c1", State: workload.StateRunning}}}, nil
}

func (oneContainer) Sandbox(context.Context, string) (*workload.Pod, error) {
	return &workload.Pod{
		ID: "s", UID: "u", Namespace: "default", Name: "web", KubeQoS: protocol.KubeGuaranteed, Cgroup: "/kubepods/podu", QoSCgroup: "/kubepods",
		Ask: protocol.Ask{QoS: protocol.QoSLS},
	}, nil
}

func (oneContainer) Record(context.Context, string) (feed.Record, error) {
	return func(known ...*protocol.Applied) *workload.Container {
		c := &workload.Container{ID: "c1", Name: "app", Cgroup: appCgroup, State: workload.StateRunning, Base: workload.Resources{
			Quota: unit.Some(50000), Period: unit.Some(100000),
		}}
		if len(known) > 0 && known[0].Base["cpu.quota"] == "80000" {
			c.Base.Quota = unit.Some(80000) // as the record of a runtime is read with a mark
		}
		return c
	}, nil
}

func (oneContainer) IsGone(error) bool { return false }

// living is koord-nri as others see it, until it is ended.
func living(t *testing.T, runDir string) (end func()) {
	t.Helper()
	held, err := lock.Acquire(lock.Path(runDir, "nri"))
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	beat := func() {
		if err := status.Write(runDir, "nri", status.Status{Written: time.Now(), ConnectedSince: since}); err != nil {
			t.Error(err)
		}
	}
	beat()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				beat()
			}
		}
	}()
	return func() {
		cancel()
		<-done
		if err := held.Release(); err != nil {
			t.Error(err)
		}
	}
}

// Who goes before has twice the time that it takes by default to check, also where koordlet itself checks more often; and what
// koordlet's engine wants is not forgotten before it says so again.
func TestLooksAtWhatIsLeft(t *testing.T) {
	t.Parallel()
	for own, want := range map[time.Duration]time.Duration{time.Second: 10 * time.Second, 10 * time.Second: 10 * time.Second, time.Minute: time.Minute} {
		cfg := config.DefaultKoordlet()
		cfg.DriftInterval = config.Duration(own)
		if got := (&Daemon{cfg: cfg}).lookEvery(); got != want {
			t.Errorf("checks every %s: looks every %s, want %s", own, got, want)
		}
	}
}

// on is the configuration of an agent on a fake machine that reaches no server.
func on(t *testing.T, m *enginetest.Machine) config.Koordlet {
	t.Helper()
	cfg, r := off(), m.Tree.Roots
	cfg.RunDir, cfg.StateDir, cfg.StrategyFile, cfg.Metrics.Address = t.TempDir(), t.TempDir(), "", ""
	cfg.Host.CgroupRoot, cfg.Host.Proc, cfg.Host.Sys, cfg.Host.Resctrl, cfg.Host.Dev = r.Cgroup, r.Proc, r.Sys, r.Resctrl, r.Dev
	mounts := filepath.Join(r.Proc, "self", "mountinfo")
	if err := errors.Join(os.MkdirAll(filepath.Dir(mounts), 0o755), os.WriteFile(mounts, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// While koord-nri lives the agent's engine writes nothing of a container. When it dies, the agent goes on from what koord-nri
// knew: the update of the container that came by way of it, and not what the container was created with.
func TestSuccession(t *testing.T) {
	t.Parallel()
	m := enginetest.New(t, "6.12", appCgroup)
	for _, d := range []string{"/kubepods/podu", appCgroup} {
		m.Tree.Set(t, d, "cpu.max", "80000 100000")
	}
	cfg, own := on(t, m), fmt.Sprint(os.Getpid())
	err := os.Symlink("/proc/"+own, filepath.Join(cfg.Host.Proc, own)) // koord-nri's process
	if err != nil {
		t.Fatal(err)
	}
	end := living(t, cfg.RunDir)
	spec, err := strategy.Parse([]byte("cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 50}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{cfg: cfg, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if d.count, err = metrics.NewAgent(prometheus.NewRegistry(), metrics.AgentNames{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	o := host.Options{Config: cfg.Node, Writer: Writer, Name: Program, Program: "test", Strategy: &spec, Edge: edge{}, Log: d.log, ExitsUntold: true, UpdatesUntold: true}
	d.besideOthers(&o)
	ward := o.Kernel
	o.Kernel = func(engine.Kernel) engine.Kernel { return ward(m.Writer(t, nil)) }
	if d.host, err = host.New(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	d.lister = &feed.Lister{Engine: d.host.Engine, Runtime: oneContainer{}}
	d.keeper = feed.New(feed.Options{
		Pace: cfg.Reconnect, Engine: d.host.Engine, Hello: func(context.Context) error { return nil }, List: d.takeIn, Ping: d.ping,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.host.Run(ctx, d.keeper.Run, run.Component{Name: "other writers", Run: d.ward.Run}) }()
	<-d.keeper.Synced()
	book, err := ledger.Open(cfg.RunDir, "nri", ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(book.Append(journal.Record{
		Target: plan.Target{Level: plan.LevelContainer, Container: "c1", Cgroup: appCgroup}, Knob: plan.CPUQuota.String(), Want: "80000", Base: "80000",
		Owner: "batch", Via: journal.ViaRuntime,
	}), book.Close())
	if err != nil {
		t.Fatal(err)
	}
	d.host.Engine.Repair()
	if !d.ward.Holding() {
		t.Error("not held back")
	}
	end()
	enginetest.Eventually(t, "the container's burst", func() bool { return m.Tree.Get(t, appCgroup, "cpu.max.burst") == "40000" })
	if d.ward.Holding() {
		t.Error("still held back")
	}
	if log := m.Tree.Log(); slices.ContainsFunc(log, func(w string) bool { return strings.HasPrefix(w, appCgroup) && !strings.HasSuffix(w, "=40000") }) {
		t.Errorf("written: %q", log)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
