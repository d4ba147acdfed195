// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"errors"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/netqos"
)

// Links are the machine's network links.
type Links interface {
	// Uplink is the link of the default route, "" without one, and its speed, 0 where it does not tell.
	Uplink() (name string, speed unit.BitRate, err error)
	// Tunnels are devices that hide the addresses of pods.
	Tunnels() ([]string, error)
	// Shape is what "link/direction" has; Sync brings its pods to what is wanted, where it is ours.
	Shape(key string) (string, error)
	Sync(key string, pods []shape.Pod) (changes int, err error)
}

// retryLink is after how long it is tried again to shape a link that could not be.
const retryLink = unit.Minute

// uplink looks at the links for the loop, and knows what could not be done to them.
type uplink struct {
	do Links
	// seen and at are the last look.
	seen followed
	at   unit.Micros
	// failed are keys that could not be set, with the time until which that counts.
	failed map[string]failure
	// tunnels are looked up every retryLink.
	tunnels   []string
	tunnelsAt unit.Micros
	notes     []string
}

type failure struct {
	why   string
	until unit.Micros
}

// look reads the links where something has changed or slow has passed; nil while the last look counts.
func (u *uplink) look(now, slow unit.Micros, news followed, held []netqos.Held) *netqos.Link {
	if slow <= 0 {
		slow = decide.DefaultSlow
	}
	news.ticks = 0
	if u.do == nil || u.at != 0 && now-u.at < slow && news == u.seen {
		return nil
	}
	u.seen, u.at = news, now
	l := &netqos.Link{Now: map[string]string{}, Why: map[string]string{}, Notes: u.notes}
	var err error
	if l.Name, l.Speed, err = u.do.Uplink(); err != nil {
		l.Name, l.NoLink = "", err.Error()
	} else if l.Name == "" {
		l.NoLink = "this node has no default route"
	}
	for _, h := range held {
		u.read(l, h.Key, now)
	}
	if l.Name == "" {
		return l
	}
	for d := range shape.NumDirections {
		u.read(l, shape.Key(l.Name, d), now)
	}
	if u.tunnelsAt == 0 || now-u.tunnelsAt >= retryLink {
		u.tunnelsAt = now
		if u.tunnels, err = u.do.Tunnels(); err != nil {
			l.Notes = append(l.Notes, err.Error())
		}
	}
	l.Tunnels = u.tunnels
	return l
}

// read notes what one direction has, or why it cannot be shaped.
func (u *uplink) read(l *netqos.Link, key string, now unit.Micros) {
	if _, known := l.Now[key]; known {
		return
	}
	if f, ok := u.failed[key]; ok {
		if now < f.until {
			l.Why[key] = f.why
			return
		}
		delete(u.failed, key)
	}
	text, err := u.do.Shape(key)
	if err != nil {
		l.Why[key] = err.Error()
		return
	}
	l.Now[key] = text
}

// wrote takes in what became of a setting.
func (u *uplink) wrote(r *apply.Result, now unit.Micros) {
	if r.Setting.Knob != plan.NetShape || r.Err == nil {
		return
	}
	if u.failed == nil {
		u.failed = map[string]failure{}
	}
	u.failed[r.Setting.Key] = failure{r.Err.Error(), now + retryLink}
	u.at = 0 // told with the next tick
}

// settle brings the pods of what is ours to what the loop wants.
func (u *uplink) settle(o *netqos.Output) error {
	u.notes = nil
	var errs []error
	for i := range o.Directions {
		d := &o.Directions[i]
		if _, failed := u.failed[d.Key]; failed {
			continue
		}
		if _, err := u.do.Sync(d.Key, d.Pods); err != nil {
			errs = append(errs, err)
			u.notes = append(u.notes, "pods of "+d.Key+": "+err.Error())
		}
	}
	return errors.Join(errs...)
}
