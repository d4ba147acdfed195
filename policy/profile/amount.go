// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"errors"
	"math"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
)

// milli is an amount in thousandths, so that cpu and memory compare alike; what does not fit is as much as does.
func milli(q strategy.Quantity) (int64, error) {
	v, err := strategy.ParseMilli(string(q))
	if err == nil {
		return v, nil
	}
	if whole, wholeErr := strategy.ParseQuantity(string(q)); wholeErr == nil && whole > math.MaxInt64/1000 {
		return math.MaxInt64, nil
	}
	return 0, err
}

// containers is the amount that the containers take together, in thousandths: sidecars run beside the main ones, an init
// container runs alone with the sidecars before it (KEP 753). With every, a container without an amount makes it -1: unlimited.
func (p *Pod) containers(name string, list func(*Requirements) Resources, every bool) (int64, error) {
	var sidecars, highest, sum int64
	for i := range p.Init {
		c := &p.Init[i]
		v, ok, err := list(&c.Requirements).milli(name)
		if err != nil || every && !ok {
			return -1, err
		}
		if c.Sidecar {
			sidecars = unit.Add(sidecars, v)
			highest = max(highest, sidecars)
		} else {
			highest = max(highest, unit.Add(sidecars, v))
		}
	}
	for i := range p.Main {
		v, ok, err := list(&p.Main[i].Requirements).milli(name)
		if err != nil || every && !ok {
			return -1, err
		}
		sum = unit.Add(sum, v)
	}
	return max(highest, unit.Add(sum, sidecars)), nil
}

// milli is one amount in thousandths, and whether it is there.
func (r Resources) milli(name string) (int64, bool, error) {
	q, ok := r[name]
	if !ok {
		return 0, false, nil
	}
	v, err := milli(q)
	if err != nil {
		return 0, true, errors.New(name + ": " + err.Error())
	}
	return v, true, nil
}

// request is what the pod asks for in thousandths, overhead included; pod-level resources, where there are some, are it.
func (p *Pod) request(name string) (int64, error) {
	sum, ok, err := p.Whole.Requests.milli(name)
	if err != nil {
		return 0, err
	}
	if !ok {
		if sum, err = p.containers(name, func(r *Requirements) Resources { return r.Requests }, false); err != nil {
			return 0, err
		}
	}
	over, _, err := p.Overhead.milli(name)
	return unit.Add(sum, over), err
}
