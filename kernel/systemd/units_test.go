// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// fakeBus records calls. A broken one fails every call and is no longer connected after the first.
type fakeBus struct {
	calls  []string
	broken bool
	closed bool
	stuck  bool
	// old refuses what systemd 251 does, older what 241 does as well.
	old, older bool
	// settled is how many calls there had been when it was last waited for; deaf refuses that.
	settled int
	deaf    error
}

var errBus = errors.New("bus says no")

func (b *fakeBus) SetUnitPropertiesContext(ctx context.Context, name string, runtime bool, props ...dbus.Property) error {
	if b.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	if b.broken {
		b.closed = true
		return errBus
	}
	for _, p := range props {
		if b.old && p.Name == "CPUWeight" && p.Value.Value() == uint64(0) {
			return godbus.Error{Name: "org.freedesktop.DBus.Error.InvalidArgs"}
		}
		if b.older && p.Name == "CPUQuotaPeriodUSec" {
			return godbus.Error{Name: "org.freedesktop.DBus.Error.PropertyReadOnly"}
		}
	}
	for _, p := range props {
		b.calls = append(b.calls, name+" "+p.Name+" "+p.Value.String())
	}
	if !runtime {
		return errors.New("the setting would outlive a reboot")
	}
	return nil
}

// SystemStateContext is a reply after that to a change: then systemd has written.
func (b *fakeBus) SystemStateContext(context.Context) (*dbus.Property, error) {
	b.settled = len(b.calls)
	return &dbus.Property{}, b.deaf
}

func (b *fakeBus) GetUnitTypePropertiesContext(_ context.Context, name, kind string) (map[string]any, error) {
	if b.broken {
		b.closed = true
		return nil, errBus
	}
	b.calls = append(b.calls, name+" "+kind)
	return map[string]any{"MemoryMin": uint64(4096), "CPUWeight": uint64(39)}, nil
}

func (b *fakeBus) Connected() bool { return !b.closed }
func (b *fakeBus) Close()          { b.closed = true }

// dialer hands out buses in order and errBus when there is none left.
func dialer(buses ...*fakeBus) func(context.Context) (bus, error) {
	return func(context.Context) (bus, error) {
		if len(buses) == 0 {
			return nil, errBus
		}
		b := buses[0]
		buses = buses[1:]
		return b, nil
	}
}

var oneMemory = []plan.Setting{{Knob: plan.MemoryMin, Value: plan.Int(4096)}}

func TestUnitsKeepsItsConnection(t *testing.T) {
	t.Parallel()
	b := &fakeBus{}
	u := newUnits(false, dialer(b))
	for range 2 {
		if err := u.SetProperties(t.Context(), "a.slice", oneMemory, unit.Linear); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.calls) != 2 || b.calls[0] != "a.slice MemoryMin @t 4096" || b.settled != 2 {
		t.Errorf("calls %q, of which %d are written", b.calls, b.settled)
	}
	b.deaf = errBus
	if err := u.SetProperties(t.Context(), "a.slice", oneMemory, unit.Linear); !errors.Is(err, errBus) {
		t.Errorf("nobody knows whether it is written: %v", err)
	}
	u.Close()
	if !b.closed {
		t.Error("still open")
	}
}

func TestUnitsReconnects(t *testing.T) {
	t.Parallel()
	old, next := &fakeBus{}, &fakeBus{}
	u := newUnits(false, dialer(old, next))
	if err := u.SetProperties(t.Context(), "a.slice", oneMemory, unit.Linear); err != nil {
		t.Fatal(err)
	}
	old.broken = true
	if err := u.SetProperties(t.Context(), "a.slice", oneMemory, unit.Linear); err != nil || len(next.calls) != 1 {
		t.Errorf("after the bus restarted: %v, calls %q", err, next.calls)
	}
}

// A systemd that does not know idle never writes to cpu.idle: the other properties are set, and it is nobody that claims a 0 there.
func TestUnitsOfAnOldSystemd(t *testing.T) {
	t.Parallel()
	old, next := &fakeBus{old: true}, &fakeBus{}
	u := newUnits(false, dialer(old, next))
	idle := plan.Setting{Knob: plan.CPUIdle, Value: plan.Int(1)}
	both := []plan.Setting{idle, oneMemory[0]}
	for range 2 {
		if err := u.SetProperties(t.Context(), "a.slice", both, unit.Linear); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.SetProperties(t.Context(), "a.slice", both[:1], unit.Linear); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a.slice MemoryMin @t 4096", "a.slice MemoryMin @t 4096"}; !slices.Equal(old.calls, want) {
		t.Errorf("calls %q", old.calls)
	}
	if held, err := u.Held(t.Context(), "a.slice"); err != nil || held[plan.CPUShares] != "39" || held[plan.CPUIdle] != "" {
		t.Errorf("an old systemd holds %v, %v", held, err)
	}
	old.closed = true // replaced by a newer one
	if err := u.SetProperties(t.Context(), "a.slice", both, unit.Linear); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a.slice CPUWeight @t 0", "a.slice MemoryMin @t 4096"}; !slices.Equal(next.calls, want) {
		t.Errorf("calls %q", next.calls)
	}
	if held, err := u.Held(t.Context(), "a.slice"); err != nil || held[plan.CPUIdle] != "0" {
		t.Errorf("a new systemd holds %v, %v", held, err)
	}
}

// One that knows no period either: a property that is unknown has the whole call refused, and the others are set without it. Another refusal is told.
func TestUnitsOfAnOlderSystemd(t *testing.T) {
	t.Parallel()
	older := &fakeBus{old: true, older: true}
	u := newUnits(true, dialer(older))
	settings := []plan.Setting{{Knob: plan.CPUQuota, Value: plan.Int(50000)}, {Knob: plan.CPUPeriod, Value: plan.Int(100000)}, {Knob: plan.CPUShares, Value: plan.Int(512)}}
	for range 2 {
		if err := u.SetProperties(t.Context(), "a.slice", settings, unit.Linear); err != nil {
			t.Fatal(err)
		}
	}
	if want := slices.Repeat([]string{"a.slice CPUQuotaPerSecUSec @t 500000", "a.slice CPUShares @t 512"}, 2); !slices.Equal(older.calls, want) {
		t.Errorf("calls %q", older.calls)
	}
	v2 := newUnits(false, dialer(&fakeBus{old: true, older: true}))
	both := append([]plan.Setting{{Knob: plan.CPUIdle, Value: plan.Int(1)}}, settings[:2]...)
	if err := v2.SetProperties(t.Context(), "a.slice", both, unit.Linear); err != nil || !v2.plain || !v2.noPeriod {
		t.Errorf("neither is known: %v", err)
	}
}

func TestUnitsWithoutBus(t *testing.T) {
	t.Parallel()
	err := newUnits(false, dialer()).SetProperties(t.Context(), "a.slice", oneMemory, unit.Linear)
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, errBus) {
		t.Errorf("got %v", err)
	}
	if err := newUnits(false, dialer()).SetProperties(t.Context(), "a.slice", []plan.Setting{{Knob: plan.CPUBurst}}, unit.Linear); err != nil {
		t.Errorf("nothing to set needs no bus: %v", err)
	}
}

func TestUnitsObeysTheContext(t *testing.T) {
	t.Parallel()
	u := newUnits(false, dialer(&fakeBus{stuck: true}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := u.SetProperties(ctx, "a.slice", oneMemory, unit.Linear); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stuck call: %v", err)
	}
	<-u.turn // as if another call were in progress
	if err := u.SetProperties(ctx, "a.slice", oneMemory, unit.Linear); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stuck predecessor: %v", err)
	}
}

// The connection outlives the context of the call that opened it.
func TestUnitsConnectionOutlivesTheCall(t *testing.T) {
	t.Parallel()
	var life context.Context
	u := newUnits(false, func(ctx context.Context) (bus, error) {
		life = ctx
		return &fakeBus{}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := u.SetProperties(ctx, "a.slice", oneMemory, unit.Linear); err != nil {
		t.Fatal(err)
	}
	cancel()
	if life.Err() != nil {
		t.Error("the connection ends with the call")
	}
	u.Close()
	if life.Err() == nil {
		t.Error("the connection outlives Close")
	}
}
