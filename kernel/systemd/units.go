// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Units sets and reads runtime properties over the system bus. The connection is opened at the first call, kept, and opened anew
// after it has broken. The zero value is not usable. It is safe for concurrent use; calls are made one after another.
type Units struct {
	dial func(context.Context) (bus, error)

	// turn holds one token; a channel, so that waiting for it ends with the caller's context.
	turn  chan struct{}
	conn  bus
	close context.CancelFunc
}

// bus is the part of go-systemd's connection that is used.
type bus interface {
	SetUnitPropertiesContext(ctx context.Context, name string, runtime bool, properties ...dbus.Property) error
	GetUnitTypePropertiesContext(ctx context.Context, unit, unitType string) (map[string]any, error)
	Connected() bool
	Close()
}

// New returns units of the system's PID 1; nothing is opened yet.
func New() *Units {
	return newUnits(func(ctx context.Context) (bus, error) { return dbus.NewSystemConnectionContext(ctx) })
}

func newUnits(dial func(context.Context) (bus, error)) *Units {
	u := &Units{dial: dial, turn: make(chan struct{}, 1)}
	u.turn <- struct{}{}
	return u
}

// SetProperties sets the mapped settings (see Mapped) of one unit until the next reboot. weight is the shares formula of
// the level. It waits no longer than ctx does. Without a system bus the error matches errors.ErrUnsupported. A unit that
// does not exist any more is an error of the bus.
func (u *Units) SetProperties(ctx context.Context, name string, settings []plan.Setting, weight unit.WeightFormula) error {
	props, mapErr := Properties(settings, weight)
	if len(props) == 0 {
		return mapErr
	}
	variants := make([]dbus.Property, len(props))
	for i, p := range props {
		variants[i] = dbus.Property{Name: p.Name, Value: godbus.MakeVariant(p.Value)}
	}
	select {
	case <-u.turn:
	case <-ctx.Done():
		return errors.Join(mapErr, fmt.Errorf("set properties of unit %s: %w", name, ctx.Err()))
	}
	defer func() { u.turn <- struct{}{} }()
	set := func(b bus) error { return b.SetUnitPropertiesContext(ctx, name, true, variants...) }
	if err := u.call(ctx, set); err != nil {
		return errors.Join(mapErr, fmt.Errorf("set properties of unit %s: %w", name, err))
	}
	return mapErr
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
		u.conn, u.close = conn, end
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
