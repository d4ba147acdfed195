// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
)

// Links are the queues of network links, by "eth0/egress".
type Links interface {
	// Shape is what a direction has, as a text from which SetShape makes it again.
	Shape(key string) (string, error)
	SetShape(key, value string) error
}

// isLinkKnob reports knobs of network links. Like parameters of the node they belong to no directory.
func isLinkKnob(k plan.Knob) bool { return k == plan.NetShape }

// hasNoInode reports knobs of the whole node, of which there is one.
func hasNoInode(k plan.Knob) bool { return cgroup.OfNode(k) || isLinkKnob(k) }

// linkFile stands for a file in records: the key of the knob, below no directory.
func linkFile(key string) string { return "tc:" + key }

func (a *Applier) changeLink(s plan.Setting) (cgroup.Change, error) {
	if err := a.hook(s.Knob); err != nil {
		return cgroup.Change{}, err
	}
	now, err := a.o.Links.Shape(s.Key)
	if err != nil {
		return cgroup.Change{}, err
	}
	c := cgroup.Change{Current: plan.Text(now), Same: now == s.Value.String()}
	if !c.Same {
		c.Writes = []cgroup.Write{{File: linkFile(s.Key), Data: s.Value.String()}}
		c.Original = []string{now}
	}
	return c, nil
}

// planLink returns a link to what it had before, while it still has what we made of it, whole or half. A shape of ours with other
// figures is somebody's own word.
func (a *Applier) planLink(u undo, out *RestoreStep) (undo, bool) {
	h := u.history
	original, ok := h.original(nil, linkFile(h.id.Key))
	if !ok || h.ours == nil {
		out.Reason = "no original was recorded"
		return u, false
	}
	now, err := a.o.Links.Shape(h.id.Key)
	if err != nil {
		out.Reason, out.Err = "cannot be read", a.explain(u.setting, err)
		return u, false
	}
	out.From = now
	switch {
	case now == original:
		out.Reason = "original already there"
		return u, false
	case now != shape.Half && !a.mayBeOurs(&h, plan.Text(now)):
		out.Reason = "no longer our value"
		return u, false
	}
	u.setting.Value = plan.Text(original)
	u.writes = []cgroup.Write{{File: linkFile(h.id.Key), Data: original}}
	return finish(u, "original", out)
}

// theirLink reports whether what a link has is somebody else's since our last write: neither a shape of ours, whole or half, nor what
// we gave back.
func theirLink(t *target, s plan.Setting, now string) bool {
	if shape.Ours(now) || now == shape.Gone {
		return false
	}
	i := t.ownAt(s)
	return i >= 0 && t.own[i].value.String() != now
}

// explainLink says what an error of a link means; nil for one that means nothing more.
func explainLink(s plan.Setting, err error) error {
	cause := error(nil)
	switch {
	case !isLinkKnob(s.Knob):
	case errors.Is(err, unix.ENODEV):
		cause = ErrGone
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		cause = ErrUnsupported // no such qdisc, classifier or kind of device in this kernel
	}
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%s of %s: %w: %w", s.Knob, s.Key, cause, err)
}
