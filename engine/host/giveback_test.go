// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// stubborn is a kernel that refuses every write while on.
type stubborn struct {
	apply.Writer
	on bool
}

func (w *stubborn) Write(path, value string, nonblock bool) error {
	if w.on {
		return unix.EINVAL
	}
	return w.Writer.Write(path, value, nonblock)
}

// What was ours of a host application becomes again what stood there before, and not what a new cgroup would have; what somebody has
// changed since stays; of what no ledger knows the caller is told.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	const dir = "/system.slice/backup.service"
	m := newMachine(t)
	for _, d := range []string{"/system.slice", dir} {
		m.tree.Mkdir(t, d)
	}
	m.tree.Set(t, dir, "cpuset.cpus", "0-3")
	h, err := New(t.Context(), Options{
		Config: m.cfg, Writer: "koordlet", Name: "koordlet", Program: "test", Edge: blank{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	fs, err := cgroup.Open(m.tree.Roots, m.tree.Version, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err != nil {
		t.Fatal(err)
	}
	kernel := &stubborn{Writer: m.tree}
	a, err := apply.New(apply.Options{FS: fs, Roots: m.tree.Roots, Journal: h.run, Writer: kernel})
	if err != nil {
		t.Fatal(err)
	}
	h.writer.now.Store(a)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, func(ctx context.Context) { <-ctx.Done() }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	setting := func(cgroup string, k plan.Knob, v plan.Value) plan.Setting {
		return plan.Setting{
			Target: plan.Target{Level: plan.LevelQoS, Cgroup: cgroup, Name: "hostapp/backup"}, Knob: k, Value: v, Owner: protocol.FeatureCPUSet, Reason: "test",
		}
	}
	write := func(cpus string) {
		t.Helper()
		for _, r := range h.Apply(ctx, plan.Plan{setting(dir, plan.CPUSetCPUs, plan.Text(cpus)), setting(dir, plan.CPUIdle, plan.Int(1))}) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	giveBack := func(want string) {
		t.Helper()
		done, rest, err := h.GiveBack(ctx, plan.Plan{
			setting(dir, plan.CPUSetCPUs, plan.Text("0-7")), setting(dir, plan.CPUIdle, plan.Int(0)), setting("/elsewhere", plan.CPUIdle, plan.Int(0)),
		})
		if err != nil || len(rest) != 1 || rest[0].Target.Cgroup != "/elsewhere" {
			t.Errorf("rest %v, %v", rest, err)
		}
		for i := range done {
			if done[i].Err != nil {
				t.Error(done[i].Err)
			}
		}
		if got := m.tree.Get(t, dir, "cpuset.cpus"); got != want {
			t.Errorf("cpuset.cpus is %q, want %q", got, want)
		}
		if got := m.tree.Get(t, dir, "cpu.idle"); got != "0" {
			t.Errorf("cpu.idle is %q", got)
		}
	}
	write("2-3")
	write("2") // what stood there before is the first of several
	kernel.on = true
	for range 2 { // by the ledger it can be tried again
		done, rest, err := h.GiveBack(ctx, plan.Plan{setting(dir, plan.CPUSetCPUs, plan.Text("0-7"))})
		if err != nil || len(rest) > 0 || len(done) != 1 || done[0].Outcome != apply.Failed || !errors.Is(done[0].Err, unix.EINVAL) {
			t.Errorf("refused: %+v, rest %v, %v", done, rest, err)
		}
	}
	kernel.on = false
	giveBack("0-3")
	write("2-3")
	m.tree.Set(t, dir, "cpuset.cpus", "1")
	giveBack("1")
	write("2-3")
	m.tree.Rmdir(t, dir)
	for range 2 { // nobody owes anything to a cgroup that has gone
		done, rest, err := h.GiveBack(ctx, plan.Plan{setting(dir, plan.CPUSetCPUs, plan.Text("0-7"))})
		for _, r := range append(done, h.Apply(ctx, rest)...) {
			if r.Outcome != apply.Gone {
				t.Errorf("gone: %s, %v", r.Outcome, r.Err)
			}
		}
		if err != nil || len(done)+len(rest) != 1 {
			t.Errorf("gone: %v, rest %v, %v", done, rest, err)
		}
	}
}
