// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
)

// What must be done, without a koord-nri beside it: CreateContainer's answer, which is always the same, and the system calls in StartContainer and
// UpdateContainer themselves, on the container itself, whose group the runtime has just made.

// answer is as large as koord-nri's for a container of the class: the record of what was set on either, and a BE container's batch resources.
func answer(class string) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	if class != "LS" {
		a.SetLinuxCPUShares(512)
		a.SetLinuxCPUQuota(startQuota)
		a.SetLinuxMemoryLimit(64 << 20)
	}
	a.AddAnnotation("koord-rt.dev/stamp", strings.Repeat("x", stampLength))
	return a
}

// start puts an LS container's burst in force, and keeps its file open, or reads the limits of another that prove it.
func (b *bare) start(sb *api.PodSandbox, c *api.Container) error {
	class, cgroup := sb.GetLabels()[classLabel], nri.Cgroup(sb, c)
	return b.timed("StartContainer/"+class, func() error {
		if class == "LS" {
			f, err := open(b.burst(cgroup), true)
			if err != nil {
				return err
			}
			b.mu.Lock()
			b.kept[c.GetId()] = f
			b.mu.Unlock()
			return f.put(burst, b.intend)
		}
		for _, path := range b.limits(cgroup) {
			if err := b.writeAndRead(path, ""); err != nil {
				return err
			}
		}
		return nil
	})
}

// lower lowers an LS container's burst before its quota is lowered: the kernel takes no quota below the burst. koord-nri must do the same
// for the pod; this one does not.
func (b *bare) lower(sb *api.PodSandbox, c *api.Container, r *api.LinuxResources) error {
	class := sb.GetLabels()[classLabel]
	if class != "LS" || r.GetCpu().GetQuota().GetValue() != startQuota {
		return nil // the load's first resize is upwards
	}
	b.mu.Lock()
	f, ok := b.kept[c.GetId()]
	delete(b.kept, c.GetId()) // the load has no other resize downwards
	b.mu.Unlock()
	err := b.timed("UpdateContainer/"+class, func() error {
		if !ok {
			return fmt.Errorf("the burst of container %s is not open", c.GetId())
		}
		return f.put(lowered, b.intend)
	})
	if ok {
		err = errors.Join(err, f.close())
	}
	return err
}

// timed keeps what f takes. Calls of one runtime come one at a time, but two runtimes are not forbidden.
func (b *bare) timed(event string, f func() error) error {
	begin := time.Now()
	err := f()
	took := time.Since(begin)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.took = append(b.took, measurement{event, begin, took})
	return err
}
