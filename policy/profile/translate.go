// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"errors"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// Kubernetes' own resources.
const (
	resourceCPU    = "cpu"
	resourceMemory = "memory"
)

// overcommitted are the resources that stand for cpu and memory in a priority class; Koordinator has them for batch and mid.
func overcommitted(class protocol.PriorityClass) (cpu, memory string, ok bool) {
	switch class {
	case protocol.PriorityBatch:
		return protocol.ResourceBatchCPU, protocol.ResourceBatchMemory, true
	case protocol.PriorityMid:
		return protocol.ResourceMidCPU, protocol.ResourceMidMemory, true
	default:
		return "", "", false
	}
}

// Translate turns the cpu and memory of a batch or mid pod into the overcommitted resources of its class: of containers, init
// containers and sidecars. A pod without a class has that of its QoS label.
//
// Overhead stays: the API server's admission plugin RuntimeClass refuses a pod whose overhead is not exactly that of its
// RuntimeClass (upstream translates it, and such pods cannot be created). A RuntimeClass for batch pods can say batch-cpu itself.
//
// Pod-level resources have no overcommitted counterpart: Kubernetes takes cpu, memory and huge pages there. They are moved to
// the container where there is only one, and dropped where the containers ask for all of it themselves. Where neither is so,
// nothing of the pod is translated and the error says so: half of it would count twice.
func Translate(p *Pod) error {
	class := p.class()
	if class == protocol.PriorityNone {
		class = p.qos().DefaultPriorityClass()
	}
	cpu, memory, ok := overcommitted(class)
	if !ok {
		return nil
	}
	if err := p.translatable(); err != nil { // before anything is written: half a pod must not be left
		return err
	}
	p.settle(resourceCPU)
	p.settle(resourceMemory)
	for _, containers := range [][]Container{p.Init, p.Main} {
		for i := range containers {
			r := &containers[i].Requirements
			r.Changed = r.Requests.move(cpu, memory) || r.Changed
			r.Changed = r.Limits.move(cpu, memory) || r.Changed
			r.Changed = r.requestLimits(cpu, memory) || r.Changed
			p.Resources = p.Resources || r.Changed
		}
	}
	return nil
}

// move gives cpu and memory their other names; cpu is counted in milli-cores there.
func (r Resources) move(cpu, memory string) bool {
	moved := false
	if amount, ok := r[resourceCPU]; ok {
		thousandths, _ := milli(amount) // translatable has read it
		r[cpu] = strategy.Quantity(strconv.FormatInt(thousandths, 10))
		delete(r, resourceCPU)
		moved = true
	}
	if amount, ok := r[resourceMemory]; ok {
		r[memory] = amount
		delete(r, resourceMemory)
		moved = true
	}
	return moved
}

// requestLimits makes a limit without a request a request as well.
func (r *Requirements) requestLimits(names ...string) bool {
	changed := false
	for _, name := range names {
		limit, limited := r.Limits[name]
		if _, asked := r.Requests[name]; limited && !asked {
			r.Requests.set(name, limit)
			changed = true
		}
	}
	return changed
}

// translatable says why a pod cannot be translated.
func (p *Pod) translatable() error {
	lists := []Resources{p.Whole.Requests, p.Whole.Limits}
	for _, containers := range [][]Container{p.Init, p.Main} {
		for i := range containers {
			lists = append(lists, containers[i].Requests, containers[i].Limits)
		}
	}
	for _, list := range lists {
		if _, _, err := list.milli(resourceCPU); err != nil {
			return err
		}
	}
	for _, name := range [...]string{resourceCPU, resourceMemory} {
		if ok, err := p.wholeFits(name); err != nil {
			return err
		} else if !ok {
			return errors.New("pod-level " + name + " of a pod with several containers cannot become an overcommitted resource; " +
				"nothing was translated: give every container its own requests and limits")
		}
	}
	return nil
}

// wholeFits reports whether a pod-level amount can be done away with: there is none, one container can take it, or the
// containers have it already.
func (p *Pod) wholeFits(name string) (bool, error) {
	request, asked, err := p.Whole.Requests.milli(name)
	if err != nil {
		return false, err
	}
	limit, limited, err := p.Whole.Limits.milli(name)
	if err != nil || !asked && !limited || p.single() {
		return err == nil, err
	}
	if asked {
		own, err := p.containers(name, func(r *Requirements) Resources { return r.Requests }, false)
		if err != nil || own < request {
			return false, err
		}
	}
	if limited {
		own, err := p.containers(name, func(r *Requirements) Resources { return r.Limits }, true)
		if err != nil || own < 0 || own > limit {
			return false, err
		}
	}
	return true, nil
}

// single: one container and no other that runs beside it or before it.
func (p *Pod) single() bool { return len(p.Main) == 1 && len(p.Init) == 0 }

// settle drops a pod-level amount, and gives it to the container that is alone. Pod-level and container's own amounts bind
// both, so the larger request and the smaller limit count.
func (p *Pod) settle(name string) {
	request, asked := p.Whole.Requests[name]
	limit, limited := p.Whole.Limits[name]
	if p.single() {
		c := &p.Main[0].Requirements
		if own, ok := c.Requests[name]; asked && (!ok || less(own, request)) {
			c.Requests.set(name, request)
			c.Changed = true
		}
		if own, ok := c.Limits[name]; limited && (!ok || less(limit, own)) {
			c.Limits.set(name, limit)
			c.Changed = true
		}
	}
	if asked || limited {
		delete(p.Whole.Requests, name)
		delete(p.Whole.Limits, name)
		p.Whole.Changed, p.Resources = true, true
	}
}

// less compares two amounts; one that cannot be read is not less.
func less(a, b strategy.Quantity) bool {
	x, errX := milli(a)
	y, errY := milli(b)
	return errX == nil && errY == nil && x < y
}
