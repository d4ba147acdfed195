// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package netqos

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

const (
	// least is what a class with request 0 is guaranteed: HTB has no class without a rate, and a class that gets nothing at all
	// cannot even close its connections.
	least = 64 * unit.Kilobit
	// smallest total that is acted upon: a slip in the unit must not cut the node off.
	smallest = unit.Megabit
	// keep is the part of the total in percent that requests leave to the system: kubelet, API server, DNS.
	keep = 1
)

// class is one enabled class of the strategy.
type class struct {
	// name is shape's, path the strategy's.
	name, path string
	qos        *strategy.NetworkQOS
	prio       int
}

// enabled are the classes whose networkQOS acts, in shape's order.
func enabled(s *strategy.Spec) []class {
	if s == nil || s.ResourceQOSStrategy == nil {
		return nil
	}
	q := s.ResourceQOSStrategy
	var out []class
	for i, c := range [...]struct {
		name, path string
		of         *strategy.ResourceQOS
	}{{shape.LSR, "lsrClass", q.LSRClass}, {shape.LS, "lsClass", q.LSClass}, {shape.BE, "beClass", q.BEClass}} {
		if c.of == nil || c.of.NetworkQOS == nil || c.of.NetworkQOS.Enable == nil || !*c.of.NetworkQOS.Enable {
			continue
		}
		out = append(out, class{name: c.name, path: "resourceQOSStrategy." + c.path + ".networkQOS.", qos: c.of.NetworkQOS, prio: i + 1})
	}
	return out
}

func (w *work) problem(field, why string) { w.out.Problems = append(w.out.Problems, field+": "+why) }

// total is the bandwidth that percentages are of; false where it is not known.
func (w *work) total() (unit.BitRate, bool) {
	const field = "systemStrategy.totalNetworkBandwidth"
	l := w.in.Link
	total, from := w.in.Bandwidth, "the node's annotation"
	if t := w.in.Strategy.SystemStrategy; total <= 0 && t != nil && t.TotalNetworkBandwidth != nil {
		n, err := t.TotalNetworkBandwidth.Value()
		if err != nil {
			w.problem(field, err.Error())
		}
		total, from = unit.BitRate(n), field
	}
	if total <= 0 {
		total, from = l.Speed, "the speed of "+l.Name
	}
	switch {
	case total <= 0:
		w.out.Missing = "the bandwidth of " + l.Name + " is not known: the link tells no speed, and " + field + " is not given"
		return 0, false
	case total < smallest:
		w.out.Missing = from + ": " + figure.BitRate(total) + " would cut the node off; the unit is bit/s"
		return 0, false
	case l.Speed >= smallest && total > l.Speed:
		w.problem(from, figure.BitRate(total)+" is more than "+l.Name+" has: held at "+figure.BitRate(l.Speed))
		total = l.Speed
	}
	return min(total, shape.MaxRate).Whole(), true
}

// shape is what one direction shall have; asked says that a class wants more than its place in the order.
func (w *work) shape(d shape.Direction, total unit.BitRate, classes []class) (s shape.Shape, asked bool) {
	s = shape.Shape{Total: total, Classes: []shape.Class{{Name: shape.System, Ceil: total}}}
	var sum unit.BitRate
	for i := range classes {
		c := &classes[i]
		request, limit := c.qos.EgressRequest, c.qos.EgressLimit
		if d == shape.Ingress {
			request, limit = c.qos.IngressRequest, c.qos.IngressLimit
		}
		r := w.rate(c.path+d.String()+"Request", request, total, 0)
		m := w.rate(c.path+d.String()+"Limit", limit, total, total)
		if m <= 0 {
			w.problem(c.path+d.String()+"Limit", "0 would stop the class: not limited")
			m = total
		}
		if r > m {
			w.problem(c.path+d.String()+"Request", figure.BitRate(r)+" is more than the limit: held at "+figure.BitRate(m))
			r = m
		}
		asked = asked || r > 0 || m < total
		sum += r
		s.Classes = append(s.Classes, shape.Class{Name: c.name, Rate: r, Ceil: m, Prio: c.prio})
	}
	if most := total - total.Percent(keep); sum > most {
		w.problem("resourceQOSStrategy", d.String()+" requests are "+figure.BitRate(sum)+" together: cut in proportion to "+figure.BitRate(most)+
			", which leaves the system 1%")
		cut := sum
		sum = 0
		for i := range s.Classes[1:] {
			c := &s.Classes[i+1]
			c.Rate = part(c.Rate, most, cut)
			sum += c.Rate
		}
	}
	s.Classes[0].Rate = max(total-sum, least).Whole()
	for i := range s.Classes[1:] {
		c := &s.Classes[i+1]
		c.Ceil = max(c.Ceil, least).Whole()
		c.Rate = min(max(c.Rate, least), c.Ceil).Whole()
	}
	return s, asked
}

// part is rate × most / all; rate is at most all.
func part(rate, most, all unit.BitRate) unit.BitRate {
	hi, lo := bits.Mul64(uint64(rate), uint64(most)) //nolint:gosec // none is negative
	out, _ := bits.Div64(hi, lo, uint64(all))        //nolint:gosec // as above
	return unit.BitRate(out)                         //nolint:gosec // at most most
}

// rate reads one field: a number is percent of total, a text bit/s, at most total.
func (w *work) rate(field string, v *strategy.IntOrString, total, without unit.BitRate) unit.BitRate {
	switch {
	case v == nil:
		return without
	case !v.IsString && (v.Int < 0 || v.Int > 100):
		w.problem(field, strconv.FormatInt(v.Int, 10)+" is no percentage, want 0..100 or a quantity in bit/s")
		return without
	case !v.IsString:
		return total.Percent(v.Int)
	}
	n, err := strategy.ParseQuantity(v.Str)
	if err != nil {
		w.problem(field, err.Error())
		return without
	}
	return min(unit.BitRate(n), total)
}

// namesOf lists the classes that the strategy enables.
func namesOf(s shape.Shape) string {
	var names []string
	for _, c := range s.Classes[1:] {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// describe is "system 5 Gbit/s to 10 Gbit/s, be …, 2 limited pods".
func describe(s shape.Shape, limited int) string {
	var b strings.Builder
	for i, c := range s.Classes {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.Name + " " + figure.BitRate(c.Rate) + " to " + figure.BitRate(c.Ceil))
	}
	if limited > 0 {
		b.WriteString(", " + figure.Count(limited, "limited pod"))
	}
	return b.String()
}
