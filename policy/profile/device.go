// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// whole is one device in percent.
const whole = 100

// Devices writes the short forms of device requests out (upstream): koordinator.sh/gpu: N is gpu-core N and gpu-memory-ratio N,
// and gpu.shared, how many GPUs share the request, is N/100 where N is several whole ones, else 1. Requests and limits of
// devices are always equal.
func Devices(p *Pod) error {
	for i := range p.Main {
		c := &p.Main[i]
		changed, err := c.devices()
		if err != nil {
			return err
		}
		c.Changed = c.Changed || changed
		p.Resources = p.Resources || changed
	}
	return nil
}

func (c *Container) devices() (bool, error) {
	if !c.asks(protocol.ResourceGPU, protocol.ResourceGPUCore, protocol.ResourceGPUMemory, protocol.ResourceGPUMemoryRatio,
		protocol.ResourceGPUShared) {
		return false, nil
	}
	changed := false
	if gpu, ok := c.Requests[protocol.ResourceGPU]; ok {
		n, err := gpu.Value()
		if err != nil {
			return false, err
		}
		c.both(protocol.ResourceGPUCore, n)
		c.both(protocol.ResourceGPUMemoryRatio, n)
		delete(c.Requests, protocol.ResourceGPU)
		delete(c.Limits, protocol.ResourceGPU)
		changed = true
	}
	if _, ok := c.Requests[protocol.ResourceGPUShared]; ok {
		return changed, nil
	}
	share, ok := c.Requests[protocol.ResourceGPUMemoryRatio]
	if !ok {
		share, ok = c.Requests[protocol.ResourceGPUCore]
	}
	shared := int64(1)
	if ok {
		n, err := share.Value()
		if err != nil {
			return false, err
		}
		if n > whole && n%whole == 0 {
			shared = n / whole
		}
	}
	c.both(protocol.ResourceGPUShared, shared)
	return true, nil
}

// asks reports whether one of the resources is requested or limited.
func (c *Container) asks(names ...string) bool {
	for _, name := range names {
		if _, ok := c.Requests[name]; ok {
			return true
		}
		if _, ok := c.Limits[name]; ok {
			return true
		}
	}
	return false
}

// both sets request and limit.
func (r *Requirements) both(name string, n int64) {
	text := strategy.Quantity(strconv.FormatInt(n, 10))
	r.Requests.set(name, text)
	r.Limits.set(name, text)
}

// CheckDevices refuses device requests that mean nothing (upstream, gate ValidatePodDeviceResource).
func CheckDevices(p *Pod) []Problem {
	var out []Problem
	for i := range p.Main {
		if reason := p.Main[i].deviceProblem(); reason != "" {
			out = append(out, Problem{At: "container " + p.Main[i].Name, Reason: reason})
		}
	}
	return out
}

// deviceProblem is the first thing wrong with a container's devices.
func (c *Container) deviceProblem() string {
	_, gpu := c.Requests[protocol.ResourceGPU]
	_, shared := c.Requests[protocol.ResourceGPUShared]
	switch {
	case gpu && shared:
		return "asks for " + protocol.ResourceGPU + " and " + protocol.ResourceGPUShared + ": use one of them"
	case gpu:
		n := c.count(protocol.ResourceGPU)
		if n <= 0 || n > whole && n%whole != 0 {
			return protocol.ResourceGPU + " is " + strconv.FormatInt(n, 10) + ": want 1 to 100, or a multiple of 100"
		}
	case shared:
		return c.sharedProblem()
	}
	return ""
}

func (c *Container) sharedProblem() string {
	n := c.count(protocol.ResourceGPUShared)
	if n <= 0 {
		return protocol.ResourceGPUShared + " is " + strconv.FormatInt(n, 10) + ": want at least 1"
	}
	if c.count(protocol.ResourceHuaweiNPUCore) != 0 {
		return ""
	}
	memory, ratio := c.count(protocol.ResourceGPUMemory), c.count(protocol.ResourceGPUMemoryRatio)
	switch {
	case memory == 0 && ratio == 0:
		return "asks for no GPU memory: add " + protocol.ResourceGPUMemory + " or " + protocol.ResourceGPUMemoryRatio
	case memory != 0 && ratio != 0:
		return "asks for " + protocol.ResourceGPUMemory + " and " + protocol.ResourceGPUMemoryRatio + ": use one of them"
	case c.count(protocol.ResourceGPUCore)%n != 0:
		return protocol.ResourceGPUCore + " is no multiple of " + protocol.ResourceGPUShared
	case ratio%n != 0:
		return protocol.ResourceGPUMemoryRatio + " is no multiple of " + protocol.ResourceGPUShared
	}
	// koordinator.sh/gpu: 150 comes as this: [Devices] has written it out before anybody checks.
	for _, name := range [...]string{protocol.ResourceGPUCore, protocol.ResourceGPUMemoryRatio} {
		if v := c.count(name); v/n > whole {
			return name + " is " + strconv.FormatInt(v, 10) + " of " + strconv.FormatInt(n, 10) + " GPU: want at most 100 of each (as " +
				protocol.ResourceGPU + ": 1 to 100, or a multiple of 100)"
		}
	}
	return ""
}

// count is a requested amount, 0 when there is none; one that cannot be read is refused by the API server.
func (c *Container) count(name string) int64 {
	n, err := c.Requests[name].Value()
	if err != nil {
		return 0
	}
	return n
}
