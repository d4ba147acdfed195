// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package shape says how the bandwidth of a link is divided among classes of pods, in one form for what the policy wants and for
// what the kernel has.
//
// A Shape is a value; its text is the value of the knob net.shape, stands in ledgers and is read back from there, so it never
// changes its meaning. It imports model/unit and the standard library only; never os, net, log or time.
package shape

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/unit"
)

// Direction of traffic, as the node sees it.
type Direction uint8

// The directions.
const (
	Egress Direction = iota
	Ingress
	// NumDirections is their number.
	NumDirections
)

// String is "egress" or "ingress".
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// The classes. Whatever belongs to no other is System's: the node's own traffic, pods with its address, ARP.
const (
	System = "system"
	LSR    = "lsr"
	LS     = "ls"
	BE     = "be"
)

// Names are the classes in the order in which a Shape has them.
func Names() []string { return []string{System, LSR, LS, BE} }

// MaxPrio is the last priority; 0 borrows first.
const MaxPrio = 7

// Class is one class of a Shape. Rates are whole bytes ([unit.BitRate.Whole]).
type Class struct {
	Name string
	// Rate is guaranteed while others want more, Ceil is the most.
	Rate, Ceil unit.BitRate
	// Prio orders who gets what nobody is guaranteed; lower first.
	Prio int
}

// Shape is one direction of a link. Classes has System first and the others in the order of [Names], each once.
type Shape struct {
	Total   unit.BitRate
	Classes []Class
}

// Pod is one pod in one direction.
type Pod struct {
	// Name is for people.
	Name string
	// Class of the Shape; one that the Shape does not have is System.
	Class string
	// Limit is the most it may have, 0 without one.
	Limit     unit.BitRate
	Addresses []netip.Addr
}

// prefix begins the text of a Shape. Everything else is somebody else's.
const prefix = "htb "

// What stood there before, beside what kernel/tc tells of a queueing discipline.
const (
	// Default is the kernel's own choice for the link.
	Default = "default"
	// None: nothing looks at what comes in.
	None = "none"
	// Gone: the link does not exist.
	Gone = "gone"
	// Half is a Shape that a killed process has left incomplete: ours, and equal to none.
	Half = prefix + "incomplete"
)

// Before is what a direction has where nobody has set anything.
func Before(d Direction) string {
	if d == Ingress {
		return None
	}
	return Default
}

// Ours reports that a text is that of a Shape.
func Ours(text string) bool { return strings.HasPrefix(text, prefix) }

// String is "htb total=1000000000 system=…/…/0 be=100000000/500000000/3": rate, ceil and priority of each class.
func (s *Shape) String() string {
	var b strings.Builder
	b.WriteString(prefix + "total=" + strconv.FormatInt(int64(s.Total), 10))
	for _, c := range s.Classes {
		b.WriteString(" " + c.Name + "=" + strconv.FormatInt(int64(c.Rate), 10) + "/" + strconv.FormatInt(int64(c.Ceil), 10))
		b.WriteString("/" + strconv.Itoa(c.Prio))
	}
	return b.String()
}

// Find is the class with this name, nil without one.
func (s *Shape) Find(name string) *Class {
	for i := range s.Classes {
		if s.Classes[i].Name == name {
			return &s.Classes[i]
		}
	}
	return nil
}

// ErrShape is wrapped by every error of Parse and ParseKey.
var ErrShape = errors.New("not the shape of a link")

// Parse reads the text of a Shape and checks that a kernel could have it.
func Parse(text string) (Shape, error) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(text) > 1024 {
		return Shape{}, fmt.Errorf("%w: %.60q", ErrShape, text)
	}
	var s Shape
	for i, part := range strings.Split(rest, " ") {
		name, value, _ := strings.Cut(part, "=")
		if i == 0 {
			total, err := rate(value)
			if name != "total" || err != nil {
				return Shape{}, fmt.Errorf("%w: %.60q, want total=bits", ErrShape, part)
			}
			s.Total = total
			continue
		}
		c, err := parseClass(name, value)
		if err != nil {
			return Shape{}, err
		}
		s.Classes = append(s.Classes, c)
	}
	return s, s.Check()
}

func parseClass(name, value string) (Class, error) {
	c := Class{Name: name}
	f := strings.Split(value, "/")
	if len(f) != 3 {
		return c, fmt.Errorf("%w: class %.60q, want rate/ceil/priority", ErrShape, name)
	}
	var errs [3]error
	c.Rate, errs[0] = rate(f[0])
	c.Ceil, errs[1] = rate(f[1])
	c.Prio, errs[2] = strconv.Atoi(f[2])
	if err := errors.Join(errs[:]...); err != nil || strconv.Itoa(c.Prio) != f[2] {
		return c, fmt.Errorf("%w: class %.60q: %w", ErrShape, name, errors.Join(err, ErrShape))
	}
	return c, nil
}

// rate reads bit/s in the only spelling that String has.
func rate(s string) (unit.BitRate, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%w: rate %.30q", ErrShape, s)
	}
	return unit.BitRate(n), nil
}

// MaxRate is more than any link has; it keeps sums and bursts from overflowing.
const MaxRate = 10000 * unit.Gigabit

// Check reports what a kernel could not have.
func (s *Shape) Check() error {
	if s.Total < 8 || s.Total > MaxRate || s.Total != s.Total.Whole() {
		return fmt.Errorf("%w: total %d", ErrShape, s.Total)
	}
	names := Names()
	at := -1
	for i, c := range s.Classes {
		n := slices.Index(names, c.Name)
		if n <= at || i == 0 && n != 0 {
			return fmt.Errorf("%w: class %.60q is unknown, twice or out of order", ErrShape, c.Name)
		}
		at = n
		whole := c.Rate == c.Rate.Whole() && c.Ceil == c.Ceil.Whole()
		if !whole || c.Rate < 8 || c.Ceil < c.Rate || c.Ceil > s.Total || c.Prio < 0 || c.Prio > MaxPrio {
			return fmt.Errorf("%w: class %s: rate %d, ceil %d, priority %d", ErrShape, c.Name, c.Rate, c.Ceil, c.Prio)
		}
	}
	if at < 0 {
		return fmt.Errorf("%w: no class", ErrShape)
	}
	return nil
}

// Key is the key of the knob: "eth0/egress".
func Key(link string, d Direction) string { return link + "/" + d.String() }

// ParseKey is Key's way back. A link's name has at most 15 bytes, no slash and no space (net/core/dev.c, dev_valid_name).
func ParseKey(key string) (link string, d Direction, err error) {
	link, name, _ := strings.Cut(key, "/")
	odd := func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }
	bad := link == "" || len(link) > 15 || link == "." || link == ".." || strings.ContainsFunc(link, odd)
	switch {
	case bad:
	case name == Egress.String():
		return link, Egress, nil
	case name == Ingress.String():
		return link, Ingress, nil
	}
	return "", 0, fmt.Errorf("%w: key %.60q, want link/egress or link/ingress", ErrShape, key)
}
