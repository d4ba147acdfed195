// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Shaper reads and sets shapes, in the network namespace of the thread that calls. Concurrent use for one link is the caller's to
// prevent.
type Shaper struct {
	// Sys is where sysfs is, for the speed of links; needed for Uplink only. Proc, where given, is procfs: then the machine's network
	// namespace is asked for.
	Sys, Proc string
}

// minorOf is the number of a class; one that there is not is System's.
func minorOf(name string) uint16 {
	return uint16(minorSystem + max(slices.Index(shape.Names(), name), 0)) //nolint:gosec // one of four names
}

// Shape is what a direction of a link has, by "eth0/egress": the text of a shape where it is ours, else the text from which Set
// makes it again, or shape.Gone. What we could not put back is a *ForeignError.
func (Shaper) Shape(key string) (out string, err error) {
	name, d, err := shape.ParseKey(key)
	if err != nil {
		return "", err
	}
	err = with(func(c *conn) error {
		l, err := c.link(name)
		if is(err, unix.ENODEV) {
			out = shape.Gone
			return nil
		}
		if err == nil {
			out, err = c.shape(l.index, d)
		}
		return err
	})
	return out, err
}

// shape reads one direction.
func (c *conn) shape(index int, d shape.Direction) (string, error) {
	all, err := c.qdiscs(index)
	if err != nil {
		return "", err
	}
	if d == shape.Egress {
		if !at(all, parentRoot).isOurs() {
			return rootText(all)
		}
		return c.classText(index)
	}
	in := at(all, parentIngress)
	if in == nil {
		return shape.None, nil
	}
	place, err := inboundPlace(in)
	if err != nil {
		return "", err
	}
	to, others, err := c.inbound(index, place)
	switch {
	case err != nil:
		return "", fmt.Errorf("list the filters of what comes in: %w", err)
	case to == 0 && others != "":
		return "", &ForeignError{others + " on what comes in; traffic that we redirect would pass it by"}
	case to == 0:
		return in.kind, nil
	}
	l, err := c.link(ifbName(index))
	if is(err, unix.ENODEV) || err == nil && l.index != to {
		return shape.Half, nil
	}
	if err != nil {
		return "", err
	}
	return c.classText(l.index)
}

// inboundPlace is where the filters of an ingress qdisc stand.
func inboundPlace(q *qdisc) (uint32, error) {
	switch q.kind {
	case "clsact":
		return onIngress, nil
	case "ingress":
		return handleIngress, nil
	}
	return 0, &ForeignError{"the ingress qdisc " + q.name()}
}

// classText is the shape that our classes make up.
func (c *conn) classText(index int) (string, error) {
	classes, err := c.classes(index)
	if err != nil {
		return "", err
	}
	s := shape.Shape{Total: unit.BitsOf(classes[minorAll].rate)}
	for _, name := range shape.Names() {
		m := minorOf(name)
		k, ok := classes[m]
		if !ok {
			continue
		}
		leaf := k
		if name != shape.System {
			if leaf, ok = classes[m|minorLeaf]; !ok || leaf.parent != m || leaf.ceil != k.ceil {
				return shape.Half, nil
			}
		}
		if k.parent != minorAll {
			return shape.Half, nil
		}
		s.Classes = append(s.Classes, shape.Class{Name: name, Rate: unit.BitsOf(k.rate), Ceil: unit.BitsOf(k.ceil), Prio: int(leaf.prio)})
	}
	if all := classes[minorAll]; s.Check() != nil || all.ceil != all.rate {
		return shape.Half, nil
	}
	return s.String(), nil
}

// SetShape brings a direction of a link to a text that Shape has told or a Shape has made. It may be killed at any point: the next
// call goes on from there.
func (Shaper) SetShape(key, value string) error {
	name, d, err := shape.ParseKey(key)
	if err != nil {
		return err
	}
	return with(func(c *conn) error {
		l, err := c.link(name)
		if err != nil {
			return err
		}
		if !shape.Ours(value) {
			return c.restore(l.index, d, value)
		}
		s, err := shape.Parse(value)
		if err != nil {
			return err
		}
		if d == shape.Ingress {
			return c.shapeIngress(l.index, &s)
		}
		return c.shapeRoot(l.index, &s)
	})
}

// shapeRoot makes our HTB and its classes on a link. Until the classes are there, HTB lets everything pass.
func (c *conn) shapeRoot(index int, s *shape.Shape) error {
	all, err := c.qdiscs(index)
	if err != nil {
		return err
	}
	if !at(all, parentRoot).isOurs() {
		if _, err = rootText(all); err != nil {
			return err
		}
		if err = c.add(htb(index), unix.NLM_F_REPLACE); err != nil {
			return err
		}
	}
	have, err := c.classes(index)
	if err != nil {
		return err
	}
	want := wanted(s)
	if err = c.dropClasses(index, have, want); err != nil {
		return err
	}
	for i := range want {
		w := &want[i]
		leaf := w.minor == minorSystem || w.minor&minorLeaf != 0
		if k, ok := have[w.minor]; ok && k.same(w, leaf) {
			continue
		}
		if err = c.setClass(index, w); err != nil {
			return err
		}
		if leaf {
			if err = c.fair(index, w.minor); err != nil {
				return err
			}
		}
	}
	return nil
}

// wanted are the classes of a shape, parents first. A leaf is guaranteed next to nothing by itself: it borrows its class's share,
// in turns with the pods that have a limit.
func wanted(s *shape.Shape) []class {
	total := s.Total.BytesPerSecond()
	out := []class{{minor: minorAll, rate: total, ceil: total, quantum: quantum}}
	for _, c := range s.Classes {
		k := class{
			minor: minorOf(c.Name), parent: minorAll, rate: c.Rate.BytesPerSecond(), ceil: c.Ceil.BytesPerSecond(),
			prio: uint32(c.Prio), quantum: quantum, //nolint:gosec // 0..7
		}
		if c.Name == shape.System {
			k.quantum = mostTurns * quantum
		}
		out = append(out, k)
		if c.Name != shape.System {
			leaf := k
			leaf.minor, leaf.parent, leaf.rate = k.minor|minorLeaf, k.minor, min(k.rate, leafRate)
			out = append(out, leaf)
		}
	}
	return out
}

// leafRate is what a leaf below a class is guaranteed by itself, in bytes per second: 64 kbit/s.
const leafRate = 8000

// dropClasses removes classes that the shape no longer has, with all that leads to them, leaves first.
func (c *conn) dropClasses(index int, have map[uint16]class, want []class) error {
	gone := map[uint16]bool{}
	for _, m := range slices.Sorted(maps.Keys(have)) {
		k := have[m]
		keep := m >= minorPod && !gone[k.parent] || slices.ContainsFunc(want, func(w class) bool { return w.minor == m && w.parent == k.parent })
		gone[m] = !keep
	}
	minors := slices.Sorted(maps.Keys(have))
	slices.Reverse(minors)
	if !slices.ContainsFunc(minors, func(m uint16) bool { return gone[m] }) {
		return nil
	}
	for d := range shape.NumDirections { // the addresses of a link are one direction's: the other finds none
		filters, _, err := c.filters(index, d)
		if err != nil {
			return err
		}
		for i := range filters {
			if gone[filters[i].minor] {
				if err = c.removeFilter(index, &filters[i]); err != nil {
					return err
				}
			}
		}
	}
	for _, m := range minors {
		if gone[m] {
			if err := c.removeClass(index, m); err != nil {
				return err
			}
			delete(have, m)
		}
	}
	return nil
}

// fair gives a leaf a queue that is fair among connections; a kernel without one keeps HTB's own.
func (c *conn) fair(index int, minor uint16) error {
	q := qdisc{tcmsg{index: index, parent: major | uint32(minor)}, "fq_codel", nil}
	if err := c.add(q, 0); err != nil && !is(err, unix.ENOENT, unix.EEXIST, unix.EOPNOTSUPP) {
		return err
	}
	return nil
}

// shapeIngress makes our HTB on the IFB device of a link and then sends there what comes in.
func (c *conn) shapeIngress(index int, s *shape.Shape) error {
	if now, err := c.shape(index, shape.Ingress); err != nil {
		return err
	} else if now == s.String() {
		return nil
	}
	l, err := c.ifb(index)
	if err == nil {
		err = c.shapeRoot(l.index, s)
	}
	if err != nil {
		return err
	}
	all, err := c.qdiscs(index)
	if err != nil {
		return err
	}
	in := at(all, parentIngress)
	if in == nil {
		in = &qdisc{tcmsg{index: index, parent: parentIngress, handle: handleIngress}, "clsact", nil}
		if err = c.add(*in, unix.NLM_F_EXCL); err != nil {
			return err
		}
	}
	place, err := inboundPlace(in)
	if err != nil {
		return err
	}
	to, _, err := c.inbound(index, place)
	switch {
	case err != nil:
		return err
	case to == l.index:
		return nil
	case to != 0: // to a device that is gone
		if err = c.unredirect(index, place); err != nil {
			return err
		}
	}
	return c.redirect(index, place, l.index)
}

// restore brings a direction back and checks that it is.
func (c *conn) restore(index int, d shape.Direction, value string) error {
	var err error
	if d == shape.Egress {
		err = c.restoreRoot(index, value)
	} else {
		err = c.restoreIngress(index, value)
	}
	if err != nil {
		return err
	}
	if now, err := c.shape(index, d); err != nil {
		return err
	} else if now != value {
		return fmt.Errorf("the kernel has made %.200q of %.200q", now, value)
	}
	return nil
}

// restoreIngress ends the redirection first, so that nothing is lost on its way.
func (c *conn) restoreIngress(index int, value string) error {
	if !slices.Contains([]string{shape.None, "clsact", "ingress"}, value) {
		return fmt.Errorf("%.60q is nothing that ingress can have had", value)
	}
	all, err := c.qdiscs(index)
	if err != nil {
		return err
	}
	in := at(all, parentIngress)
	if in == nil {
		return c.removeIFB(index)
	}
	place, err := inboundPlace(in)
	if err == nil {
		err = c.unredirect(index, place)
	}
	if err == nil {
		err = c.removeIFB(index)
	}
	if err != nil || value != shape.None {
		return err
	}
	for _, p := range [...]uint32{place, onEgress} {
		if _, others, err := c.inbound(index, p); err == nil && others != "" {
			return errors.New("the ingress qdisc stays: meanwhile it has " + others)
		}
	}
	return c.remove(*in)
}
