// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Units sets and reads runtime properties over the system bus. The connection is opened at the first call, kept, and opened anew
// after it has broken. The zero value is not usable. It is safe for concurrent use; calls are made one after another.
type Units struct {
	v1   bool
	dial func(context.Context) (bus, error)

	// turn holds one token; a channel, so that waiting for it ends with the caller's context.
	turn  chan struct{}
	conn  bus
	close context.CancelFunc
	// plain: the systemd behind conn has refused CPUWeight=idle, so it is older than version 252 and never writes to cpu.idle.
	plain bool
	// noPeriod: it has refused CPUQuotaPeriodUSec, so it is older than version 242 and has every quota of 100 ms.
	noPeriod bool
}

// bus is the part of go-systemd's connection that is used.
type bus interface {
	SetUnitPropertiesContext(ctx context.Context, name string, runtime bool, properties ...dbus.Property) error
	SystemStateContext(ctx context.Context) (*dbus.Property, error)
	GetUnitTypePropertiesContext(ctx context.Context, unit, unitType string) (map[string]any, error)
	Connected() bool
	Close()
}

// New returns units of the system's PID 1, with the controllers on cgroup v1 or v2; nothing is opened yet.
func New(v1 bool) *Units {
	return newUnits(v1, func(ctx context.Context) (bus, error) { return dbus.NewSystemConnectionContext(ctx) })
}

func newUnits(v1 bool, dial func(context.Context) (bus, error)) *Units {
	u := &Units{v1: v1, dial: dial, turn: make(chan struct{}, 1)}
	u.turn <- struct{}{}
	return u
}

// SetProperties sets the mapped settings (see Mapped) of one unit until the next reboot, and returns when systemd has written the unit's
// attributes to its cgroup. weight is the shares formula of the level. It waits no longer than ctx does. Without a system bus the error matches errors.ErrUnsupported. A unit that
// does not exist any more is an error of the bus.
func (u *Units) SetProperties(ctx context.Context, name string, settings []plan.Setting, weight unit.WeightFormula) error {
	props, mapErr := Properties(settings, weight, u.v1)
	if len(props) == 0 {
		return mapErr
	}
	select {
	case <-u.turn:
	case <-ctx.Done():
		return errors.Join(mapErr, fmt.Errorf("set properties of unit %s: %w", name, ctx.Err()))
	}
	defer func() { u.turn <- struct{}{} }()
	set := func(b bus) error {
		if err := u.set(ctx, b, name, props); err != nil {
			return err
		}
		return settle(ctx, b)
	}
	if err := u.call(ctx, set); err != nil {
		return errors.Join(mapErr, fmt.Errorf("set properties of unit %s: %w", name, err))
	}
	return mapErr
}

// settle waits until systemd has written. It replies first and writes afterwards, but before it looks at another message: its loop works
// off the queue of cgroups at each turn (manager_loop in src/core/manager.c). So any further reply will do.
func settle(ctx context.Context, b bus) error {
	if _, err := b.SystemStateContext(ctx); err != nil {
		return fmt.Errorf("wait until they are written: %w", err)
	}
	return nil
}

// How systemd refuses a value, and a property that it does not know; the call it came in has changed nothing then.
const (
	invalidArgs = "org.freedesktop.DBus.Error.InvalidArgs"
	readOnly    = "org.freedesktop.DBus.Error.PropertyReadOnly"
)

func isIdle(p Property) bool { return p.Name == "CPUWeight" && p.Value == any(weightIdle) }

func isPeriod(p Property) bool { return p.Name == "CPUQuotaPeriodUSec" }

// set makes the call, without what this systemd is too old for. The turn is held.
func (u *Units) set(ctx context.Context, b bus, name string, props []Property) error {
	props = slices.DeleteFunc(slices.Clone(props), func(p Property) bool { return u.plain && isIdle(p) || u.noPeriod && isPeriod(p) })
	if len(props) == 0 {
		return nil
	}
	err := b.SetUnitPropertiesContext(ctx, name, true, variants(props)...)
	var refused godbus.Error
	if err == nil || !errors.As(err, &refused) {
		return err
	}
	var without func(Property) bool
	var note *bool
	switch {
	case refused.Name == invalidArgs && slices.ContainsFunc(props, isIdle):
		without, note = isIdle, &u.plain
	case refused.Name == readOnly && slices.ContainsFunc(props, isPeriod):
		without, note = isPeriod, &u.noPeriod
	default:
		return err
	}
	if err := u.set(ctx, b, name, slices.DeleteFunc(props, without)); err != nil {
		return err
	}
	*note = true
	return nil
}

func variants(props []Property) []dbus.Property {
	out := make([]dbus.Property, len(props))
	for i, p := range props {
		out[i] = dbus.Property{Name: p.Name, Value: godbus.MakeVariant(p.Value)}
	}
	return out
}

// call tries once more on a new connection when the old one turns out to be closed, as after a restart of the bus. The turn
// is held.
func (u *Units) call(ctx context.Context, do func(bus) error) error {
	for {
		fresh, err := u.open(ctx)
		if err != nil {
			return err
		}
		err = do(u.conn)
		if err == nil || fresh || ctx.Err() != nil || u.conn.Connected() {
			return err
		}
		u.drop()
	}
}

// open makes sure that there is a connection and reports whether it is new. go-systemd ties a connection's life to the
// context it was dialled with, so the caller's context may end the dialling but not the connection.
func (u *Units) open(ctx context.Context) (fresh bool, err error) {
	if u.conn != nil && u.conn.Connected() {
		return false, nil
	}
	u.drop()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, end)
	conn, err := u.dial(life)
	switch dialed := release(); {
	case err == nil && dialed:
		u.conn, u.close, u.plain, u.noPeriod = conn, end, false, false
		return true, nil
	case err == nil:
		conn.Close()
	}
	end()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return false, fmt.Errorf("open the system bus: %w: %w", errors.ErrUnsupported, err)
}

func (u *Units) drop() {
	if u.conn != nil {
		u.conn.Close()
		u.close()
		u.conn = nil
	}
}

// Close gives the connection back, after the call in progress. A later call opens a new one.
func (u *Units) Close() {
	<-u.turn
	u.drop()
	u.turn <- struct{}{}
}
