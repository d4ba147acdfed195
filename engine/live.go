// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Live asks the kernel whether a value would be accepted now. A View is some moments old; a value that has become wrong
// since would make runc fail, so it is kept out of the spec and written at start, where failing harms nobody. The reads
// are few and of files that answer from memory. A nil Live checks nothing.
type Live struct {
	// Resctrl is the mount point of resctrl.
	Resctrl string
	// CPUDir, CPUSetDir and MemoryDir are the cgroup v1 hierarchies of the controllers; empty on v2.
	CPUDir, CPUSetDir, MemoryDir string
	// swap: a cgroup of this kernel has been seen with swap accounting. It is switched at boot.
	swap atomic.Bool
	// CDI are the qualified names in the registry as it is now, nil where that cannot be told; it is cheap while nothing has changed, and
	// several may ask at once. Nil trusts the View.
	CDI func() map[string]struct{}
	// Stale is told when the View names what is not there any more; it does not wait. May be nil.
	Stale func()
	// parents are the quotas of pods that have been written.
	parents parents
}

// holds reports whether hold does anything: only on cgroup v1 must a quota fit into the parent's.
func (l *Live) holds() bool { return l != nil && l.CPUDir != "" }

// quotaDir is the directory of a cgroup's quota on v1, "" on v2.
func (l *Live) quotaDir(cgroup string) string {
	if !l.holds() {
		return ""
	}
	return l.CPUDir + cgroup
}

// hold keeps a pod's quota at hand for the containers that will be made in it.
func (l *Live) hold(cgroup string) {
	if l.holds() && cgroup != "" {
		l.parents.hold(l.CPUDir + cgroup)
	}
}

// drop forgets a pod.
func (l *Live) drop(cgroup string) {
	if l != nil && l.CPUDir != "" {
		l.parents.drop(l.CPUDir + cgroup)
	}
}

// looksUp reports whether check would have to look files up for a plan: the kernel may make that wait.
func (l *Live) looksUp(v *node.View, c *workload.Container, pl plan.Plan) bool {
	if l == nil {
		return false
	}
	v1 := v.Kernel.Cgroup == node.CgroupV1 && c.Cgroup != ""
	for i := range pl {
		s := &pl[i]
		if s.Observe || s.Target.Level != plan.LevelContainer {
			continue
		}
		switch s.Knob {
		case plan.RDTClass:
			return true
		case plan.CDIDevice:
			if l.CDI != nil {
				return true
			}
		case plan.Mount:
			if s.Hook == "" {
				return true
			}
		case plan.CPUQuota:
			if v1 && s.Value.Int() >= 0 && l.CPUDir != "" && !l.parents.has(l.CPUDir+path.Dir(c.Cgroup)) {
				return true
			}
		case plan.CPUSetCPUs, plan.CPUSetMems:
			if v1 && l.CPUSetDir != "" {
				return true
			}
		case plan.MemoryLimit:
			if v1 && l.MemoryDir != "" && !l.swap.Load() {
				return true
			}
		}
	}
	return false
}

// check splits a container's plan into what may stand in the spec and what must wait for the start.
func (l *Live) check(v *node.View, c *workload.Container, pl plan.Plan) (spec, held plan.Plan) {
	if l == nil {
		return pl, nil
	}
	for i := range pl {
		if s := &pl[i]; s.Observe || s.Target.Level != plan.LevelContainer || l.ok(v, c, pl, s) {
			continue
		}
		held = append(held, pl[i])
	}
	if held == nil {
		return pl, nil
	}
	return remaining(pl, held), held
}

func remaining(pl, held plan.Plan) plan.Plan {
	out := make(plan.Plan, 0, len(pl))
	for i := range pl {
		if held.Find(pl[i].Target, pl[i].Knob, pl[i].Key) == nil {
			out = append(out, pl[i])
		}
	}
	return out
}

func (l *Live) ok(v *node.View, c *workload.Container, pl plan.Plan, s *plan.Setting) bool {
	switch s.Knob {
	case plan.RDTClass:
		return l.groupExists(s.Value.String())
	case plan.CPUBurst:
		quota := quotaOf(pl, &c.Base)
		return !quota.Set || quota.V < 0 || s.Value.Int() <= quota.V
	}
	if v.Kernel.Cgroup != node.CgroupV1 || c.Cgroup == "" {
		return true
	}
	switch s.Knob {
	case plan.CPUQuota:
		return l.quotaFits(c, pl, s.Value.Int())
	case plan.CPUSetCPUs:
		return l.listFits(c, "cpuset.cpus", s.Value.String())
	case plan.CPUSetMems:
		return l.listFits(c, "cpuset.mems", s.Value.String())
	case plan.MemoryLimit:
		return l.swapAccounted(c)
	}
	return true
}

// groupExists looks for the resctrl group: runc fails a container whose class has none.
func (l *Live) groupExists(name string) bool {
	if l == nil {
		return true
	}
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return false
	}
	return exists(l.Resctrl + "/" + name + "/schemata")
}

// quotaFits holds a quota against the parent's: cgroup v1 refuses a child that may use more CPU than its parent. Without a
// quota of its own a child takes its parent's (tg_cfs_schedulable_down of kernel/sched/core.c).
func (l *Live) quotaFits(c *workload.Container, pl plan.Plan, quota int64) bool {
	if quota < 0 {
		return true
	}
	parent, period, ok := l.parentQuota(l.CPUDir + path.Dir(c.Cgroup))
	if !ok || parent < 0 || period <= 0 {
		return true
	}
	own := c.Base.Period.Or(100000)
	if s := pl.Get(plan.CPUPeriod); s != nil && !s.Observe {
		own = s.Value.Int()
	}
	return float64(quota)*float64(period) <= float64(parent)*float64(own)
}

// parentQuota is the quota of a cgroup and its period; ok is false where they cannot be read.
func (l *Live) parentQuota(dir string) (quota, period int64, ok bool) {
	if l.CPUDir == "" {
		return 0, 0, false
	}
	if quota, period, ok := l.parents.get(dir); ok {
		return quota, period, true
	}
	quota, ok = readInt(dir + "/cpu.cfs_quota_us")
	if !ok || quota < 0 {
		return quota, 0, ok
	}
	period, ok = readInt(dir + "/cpu.cfs_period_us")
	return quota, period, ok
}

// listFits holds a CPU or node list against the parent's: a member that the parent lacks is refused.
func (l *Live) listFits(c *workload.Container, file, list string) bool {
	if l.CPUSetDir == "" {
		return true
	}
	b := root.Get()
	defer b.Put()
	raw, err := b.Read(l.CPUSetDir, path.Dir(c.Cgroup), "/", file)
	if err != nil {
		return true
	}
	parent, err := topo.ParseCPUSet(string(raw))
	if err != nil || parent.Empty() {
		return true
	}
	want, err := topo.ParseCPUSet(list)
	return err == nil && want.SubsetOf(parent)
}

// swapAccounted: NRI sets the swap limit along with the memory limit; without swap accounting (v1) runc cannot write it
// and fails.
func (l *Live) swapAccounted(c *workload.Container) bool {
	if l.MemoryDir == "" || l.swap.Load() {
		return true
	}
	dir := l.MemoryDir + path.Dir(c.Cgroup)
	if exists(dir + "/memory.memsw.limit_in_bytes") {
		l.swap.Store(true)
		return true
	}
	return !exists(dir)
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

func readInt(file string) (int64, bool) {
	b := root.Get()
	defer b.Put()
	raw, err := b.Read(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}
