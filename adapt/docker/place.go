// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Bounds that the daemon checks; what lies outside is left for the time after the start, so that the daemon does not
// refuse a container because of us.
const (
	minMemory = 6 << 20 // bytes; "Minimum memory limit allowed is 6MB" since 20.10
	minShares = 2
	minCFS    = 1000 // µs, period and quota
	maxPeriod = 1000000
)

// Apply puts a container's plan into the body. It returns the new body and the settings that Docker's API cannot carry
// (unified files, resctrl, scheduling policy, values outside the daemon's bounds): they are to be written once the
// container has started. body is Raw() when nothing is to be changed. by is for the label that marks what we changed. On an error (ErrAmbiguous) the body must be forwarded as it came.
func (c *Create) Apply(v *node.View, p plan.Plan, w *workload.Container, by mark.By) (body []byte, rest plan.Plan, err error) {
	e := editor{view: v, host: &c.host, current: &c.host}
	base := c.host.base()
	for i := range p {
		s := &p[i]
		if s.Observe || s.Target.Level != plan.LevelContainer || !holds(&base, s) && !c.put(&e, s) {
			rest = append(rest, *s)
		}
	}
	if e.envAt != nil {
		e.root = upsert(e.root, "Env", array(e.env))
	}
	if err := c.label(&e, Mark(p, w, by)); err != nil {
		return nil, nil, err
	}
	if len(e.fields) > 0 {
		text, err := c.hostObject.with(e.fields)
		if err != nil {
			return nil, nil, fmt.Errorf("edit HostConfig: %w", err)
		}
		e.root = upsert(e.root, "HostConfig", text)
	}
	if len(e.root) == 0 {
		return c.root.raw, rest, nil
	}
	body, err = c.root.with(e.root)
	if err != nil {
		return nil, nil, err
	}
	return body, rest, nil
}

// put sets one field of a new container. It is false for what the API cannot carry.
func (c *Create) put(e *editor, s *plan.Setting) bool {
	if s.Knob == plan.Env {
		return c.putEnv(e, s)
	}
	if c.hostObject.raw == nil {
		return false // a HostConfig of our own would hide the fields of the oldest API versions
	}
	n := s.Value.Int()
	switch s.Knob {
	case plan.MemoryLimit:
		if n == -1 {
			e.set("Memory", 0)
			if c.host.MemorySwap > 0 {
				e.set("MemorySwap", 0)
			}
			return true
		}
		return e.putMemory(n)
	case plan.OOMScoreAdj:
		if n < -1000 || n > 1000 {
			return false
		}
		e.set("OomScoreAdj", n)
		return true
	case plan.IOReadBPS:
		return e.putThrottle("BlkioDeviceReadBps", c.host.BlkioDeviceReadBps, s)
	case plan.IOWriteBPS:
		return e.putThrottle("BlkioDeviceWriteBps", c.host.BlkioDeviceWriteBps, s)
	case plan.IOReadIOPS:
		return e.putThrottle("BlkioDeviceReadIOps", c.host.BlkioDeviceReadIOps, s)
	case plan.IOWriteIOPS:
		return e.putThrottle("BlkioDeviceWriteIOps", c.host.BlkioDeviceWriteIOps, s)
	case plan.Device:
		return e.putDevice(s)
	case plan.CDIDevice:
		return e.putCDI(s)
	case plan.Mount:
		return e.putMount(s)
	}
	return e.putCPU(s)
}

// label adds our mark to the container's labels, an object that is added when there is none.
func (c *Create) label(e *editor, m *protocol.Applied) error {
	if m == nil {
		return nil
	}
	labels := object{raw: []byte("{}"), end: 1}
	v, err := c.root.get("Labels")
	if err == nil && v != nil {
		labels, err = parseObject(v)
	}
	if err != nil {
		return fmt.Errorf("edit Labels: %w", err)
	}
	labels.exact = true
	out, err := labels.with([]edit{{labelApplied, quote(protocol.FormatApplied(*m))}})
	if err != nil {
		return fmt.Errorf("edit Labels: %w", err)
	}
	e.root = upsert(e.root, "Labels", out)
	return nil
}

// Apply puts a container's plan into the body of an update, as Create.Apply. current is the container's inspect reply.
//
// A group with cpu.idle has its weight fixed by the kernel (writing it is EINVAL), so its update carries no CpuShares.
func (u *Update) Apply(v *node.View, p plan.Plan, current *Inspect) (body []byte, rest plan.Plan, err error) {
	e := editor{view: v, host: &hostConfig{resources: u.res}, current: &current.HostConfig, update: true}
	base, idle := u.res.base(), idles(p)
	for i := range p {
		s := &p[i]
		switch {
		case s.Observe || s.Target.Level != plan.LevelContainer:
		case s.Knob == plan.CPUShares && idle, holds(&base, s), s.Knob == plan.MemoryLimit && e.putMemory(s.Value.Int()), e.putCPU(s):
			continue
		}
		rest = append(rest, *s)
	}
	if idle && u.res.CPUShares != 0 {
		e.set("CpuShares", 0)
	}
	if len(e.fields) == 0 {
		return u.root.raw, rest, nil
	}
	if body, err = u.root.with(e.fields); err != nil {
		return nil, nil, err
	}
	return body, rest, nil
}

func idles(p plan.Plan) bool {
	for i := range p {
		if s := &p[i]; s.Knob == plan.CPUIdle && s.Target.Level == plan.LevelContainer && !s.Observe && s.Value.Int() == 1 {
			return true
		}
	}
	return false
}

// editor collects the edits of one body.
type editor struct {
	view    *node.View
	host    *hostConfig // what the request states
	current *hostConfig // what the container has; the request itself at creation
	update  bool
	fields  []edit // of HostConfig, or of an update
	root    []edit
	env     []json.RawMessage // Env of a new container with its edits
	envAt   map[string]int    // places of the names in env; nil until a variable is set
}

func (e *editor) set(key string, n int64) {
	e.fields = upsert(e.fields, key, strconv.AppendInt(nil, n, 10))
}

// upsert replaces the edit of that key or adds one.
func upsert(list []edit, key string, text []byte) []edit {
	for i := range list {
		if list[i].key == key {
			list[i].text = text
			return list
		}
	}
	return append(list, edit{key, text})
}

// putCPU sets what create and update carry alike. NanoCpus excludes period and quota.
func (e *editor) putCPU(s *plan.Setting) bool {
	n, list := s.Value.Int(), s.Value.String()
	nano := e.host.NanoCPUs > 0 || e.current.NanoCPUs > 0
	switch {
	case s.Knob == plan.CPUShares && n >= minShares:
		e.set("CpuShares", n)
	case s.Knob == plan.CPUQuota && !nano && (n == -1 || n >= minCFS):
		e.set("CpuQuota", n)
	case s.Knob == plan.CPUPeriod && !nano && n >= minCFS && n <= maxPeriod:
		e.set("CpuPeriod", n)
	case s.Knob == plan.CPUSetCPUs && list != "": // a cpuset cannot be cleared
		e.fields = upsert(e.fields, "CpusetCpus", quote(list))
	case s.Knob == plan.CPUSetMems && list != "":
		e.fields = upsert(e.fields, "CpusetMems", quote(list))
	default:
		return false
	}
	return true
}

// putMemory sets the memory limit and moves MemorySwap, which counts memory too, along with it: the swap that the
// container may use stays the same, and the daemon refuses a limit above MemorySwap.
func (e *editor) putMemory(n int64) bool {
	if n < minMemory {
		return false
	}
	swap, memory := e.host.MemorySwap, e.host.Memory
	if e.update && swap == 0 {
		swap, memory = e.current.MemorySwap, e.current.Memory
	}
	switch {
	case swap > 0 && memory > 0 && swap >= memory:
		e.set("MemorySwap", n+min(swap-memory, math.MaxInt64-n)) // a sum beyond int64 would be negative, which the daemon refuses
	case swap > 0 && n > swap:
		return false
	}
	e.set("Memory", n)
	return true
}

// quote writes a JSON string.
func quote(s string) []byte {
	out, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // not reachable: every string has a JSON form
	}
	return out
}
