// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestUnitsOfThisHost sets properties of a slice of its own where systemd is PID 1, and reads the kernel after a
// daemon-reload; elsewhere it sees the typed refusal.
func TestUnitsOfThisHost(t *testing.T) {
	t.Parallel()
	u := New(false)
	t.Cleanup(u.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := u.SetProperties(ctx, "koord-rt-no-such-unit.scope", oneMemory, unit.Linear)
	if _, serr := os.Stat("/run/systemd/system"); serr != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("without systemd: %v", err)
		}
		return
	}
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a unit that does not exist: %v", err)
	}
	slice := "koordrttest" + strconv.Itoa(os.Getpid()) + ".slice"
	conn := startSlice(ctx, t, slice)
	settings := []plan.Setting{
		set(plan.CPUShares, plan.Int(1024)), set(plan.CPUQuota, plan.Int(33333)), set(plan.CPUSetCPUs, plan.Text("0")),
		set(plan.CPUSetMems, plan.Text("0")), set(plan.MemoryMin, plan.Int(1<<20)), set(plan.MemoryLow, plan.Int(2<<20)), set(plan.MemoryHigh, plan.Int(64<<20)), set(plan.MemoryLimit, plan.Int(-1)),
	}
	if err := u.SetProperties(ctx, slice, settings, unit.Quadratic); err != nil {
		t.Fatal(err)
	}
	if err := conn.ReloadContext(ctx); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu.weight": "100", "cpu.max": "34000 100000", "cpuset.cpus": "0", "cpuset.mems": "0",
		"memory.min": "1048576", "memory.low": "2097152", "memory.high": "67108864", "memory.max": "max",
	} {
		got, err := os.ReadFile("/sys/fs/cgroup/" + slice + "/" + file)
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s is %q, %v; want %s", file, got, err, want)
		}
	}
}

// startSlice starts a transient slice that is stopped at the end.
func startSlice(ctx context.Context, t *testing.T, name string) *dbus.Conn {
	t.Helper()
	// The test's own context ends before its cleanups run, and the connection with it.
	conn, err := dbus.NewSystemConnectionContext(context.WithoutCancel(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	done := make(chan string, 1)
	props := []dbus.Property{{Name: "CPUAccounting", Value: godbus.MakeVariant(true)}, {Name: "MemoryAccounting", Value: godbus.MakeVariant(true)}}
	if _, err := conn.StartTransientUnitContext(ctx, name, "replace", props, done); err != nil {
		t.Fatal(err)
	}
	select {
	case state := <-done:
		if state != "done" {
			t.Fatalf("start %s: %s", name, state)
		}
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	t.Cleanup(func() {
		if _, err := conn.StopUnitContext(context.WithoutCancel(ctx), name, "replace", nil); err != nil {
			t.Error(err)
		}
	})
	return conn
}
