// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	libcgroups "github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// Driver is kubelet's cgroupDriver.
type Driver string

// The cgroup drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// groupName is a cgroup as kubelet names it inside: kubepods, burstable, podUID.
type groupName []string

func (n groupName) child(part string) groupName { return append(slices.Clone(n), part) }

// path is the cgroup's path below the mount: /kubepods/burstable/podUID, or
// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice, where
// a dash inside a part becomes an underscore.
func (n groupName) path(d Driver) string {
	if d == Cgroupfs {
		return "/" + path.Join(n...)
	}
	out, unit := "/", ""
	for _, part := range n {
		unit = strings.TrimPrefix(unit+"-"+strings.ReplaceAll(part, "-", "_"), "-")
		out = path.Join(out, unit+".slice")
	}
	return out
}

// values is what kubelet writes to a cgroup; nil is left as it is.
type values struct {
	shares, quota, memory *int64 // shares in v1 units, quota in µs (-1 = none), memory in bytes
	period                int64  // of the quota in µs, quotaPeriod where it is 0
}

// groups makes, changes and removes cgroups with one driver.
type groups struct {
	driver Driver
	tree   cgroups.Tree
}

// newGroups checks that the driver can work here.
func newGroups(d Driver) (groups, error) {
	if d != Cgroupfs && d != Systemd {
		return groups{}, fmt.Errorf("cgroup driver %q is neither cgroupfs nor systemd", d)
	}
	if d == Systemd && !systemd.IsRunningSystemd() {
		return groups{}, errors.New("cgroup driver systemd: systemd does not run here")
	}
	tree, err := cgroups.Detect()
	return groups{driver: d, tree: tree}, err
}

// config is the library's form of a cgroup.
func (g groups) config(n groupName, v values) *libcgroups.Cgroup {
	r := &libcgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}
	if v.shares != nil {
		if g.tree.V2() {
			r.CpuWeight = uint64(cpuWeight(*v.shares))
		} else {
			r.CpuShares = uint64(*v.shares)
		}
	}
	if v.quota != nil {
		r.CpuQuota, r.CpuPeriod = *v.quota, uint64(cmp.Or(v.period, quotaPeriod))
	}
	if v.memory != nil {
		r.Memory = *v.memory
	}
	c := &libcgroups.Cgroup{Systemd: g.driver == Systemd, Resources: r}
	if g.driver == Cgroupfs {
		c.Path = n.path(Cgroupfs)
		return c
	}
	dir, base := path.Split(n.path(Systemd))
	c.Name, c.Parent = base, path.Base(dir)
	if dir == "/" {
		c.Parent = "-.slice"
	}
	return c
}

// create makes a cgroup in every controller and sets its values.
func (g groups) create(n groupName, v values) error {
	c := g.config(n, v)
	m, err := manager.New(c)
	if err != nil {
		return fmt.Errorf("create cgroup %s: %w", n.path(g.driver), err)
	}
	// -1 makes the directories without moving a process.
	if err := m.Apply(-1); err != nil {
		return fmt.Errorf("create cgroup %s: %w", n.path(g.driver), err)
	}
	if err := m.Set(c.Resources); err != nil {
		return fmt.Errorf("set cgroup %s: %w", n.path(g.driver), err)
	}
	return nil
}

// update sets values of a cgroup that exists.
func (g groups) update(n groupName, v values) error {
	c := g.config(n, v)
	m, err := manager.New(c)
	if err != nil {
		return fmt.Errorf("update cgroup %s: %w", n.path(g.driver), err)
	}
	if err := m.Set(c.Resources); err != nil {
		return fmt.Errorf("update cgroup %s: %w", n.path(g.driver), err)
	}
	return nil
}

// remove kills what is left in a cgroup and removes it from every hierarchy. With
// systemd the unit is stopped first.
func (g groups) remove(ctx context.Context, n groupName) error {
	var errs []error
	if g.driver == Systemd {
		m, err := manager.New(g.config(n, values{}))
		if err == nil {
			err = m.Destroy()
		}
		errs = append(errs, err)
	}
	for _, mount := range g.tree.Mounts() {
		errs = append(errs, cgroups.Remove(ctx, filepath.Join(mount, n.path(g.driver))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", n.path(g.driver), err)
	}
	return nil
}

// dir is the cgroup's directory of one controller: cpu, memory, cpuset ...; with
// cgroup v2 the controller does not matter. An unknown controller gives "".
func (g groups) dir(n groupName, controller string) string {
	mount := g.tree.Unified
	if !g.tree.V2() {
		mount = g.tree.Controllers[controller]
		if controller == "" {
			mount = g.tree.Hybrid
		}
	}
	if mount == "" {
		return ""
	}
	return filepath.Join(mount, n.path(g.driver))
}
