// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package probe finds out what this node's kernel can do: cgroup version, which knobs exist and take a value, resctrl,
// disks, devices, and who else manages the node's cgroups.
//
// Inputs are the roots and options; the output is a node.Kernel, the topology and the memory capacity. Nothing is
// inferred from a distribution's name. It writes to a cgroup of its own, which it removes, and nowhere else, except that
// controllers which nobody has enabled on the cgroup2 root are enabled for the moment. It imports model and the other
// kernel packages.
package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Answer is a fact that the administrator may state; the zero value leaves it to the probe.
type Answer uint8

// Answers.
const (
	Detect Answer = iota
	Yes
	No
)

// Options of Probe. The zero value probes everything at the usual places.
type Options struct {
	// KubeletCPUState and KubeletMemoryState are the checkpoints of the kubelet's managers; those of /var/lib/kubelet when
	// empty.
	KubeletCPUState, KubeletMemoryState string
	// KubepodsRoot is the cgroup above kubepods, the kubelet's --cgroup-root: "/x" or "/x.slice"; empty for the root.
	KubepodsRoot string
	// CDIDirs, lowest priority first; sys.CDIDirs when nil.
	CDIDirs []string
	// KubeletMemoryQoS overrides the hint that memory.min of the kubepods cgroup is above 0.
	KubeletMemoryQoS Answer
	// OwnMemoryMin reports whether we are the writer of a cgroup's memory.min, as the ledger shows, so that it is no hint;
	// nil is never.
	OwnMemoryMin func(cgroup string) bool
}

// ErrInconclusive is wrapped when something could not be found out now: the answer must not be kept, ask again.
var ErrInconclusive = errors.New("probe inconclusive")

// Probe asks the kernel. The Kernel is usable beside an error: what could not be read is absent, and a knob that could
// not be probed is unsupported until the next probe. Only a nil topology leaves nothing to go on. At most one Probe of
// a process runs at a time: the probe cgroup is named by the process.
func Probe(ctx context.Context, roots root.Roots, o Options) (node.Kernel, *topo.Topology, unit.Bytes, error) {
	if o.CDIDirs == nil {
		o.CDIDirs = sys.CDIDirs()
	}
	var k node.Kernel
	procFS := proc.FS(roots.Proc)
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	k.Release, k.Major, k.Minor, err = Release()
	keep(err)
	mounts, err := procFS.Mounts()
	keep(noAnswer(err))
	k.RDT, err = resctrl.FS(roots.Resctrl).Info(mounts.ResctrlOptions)
	keep(err)
	keep(hardware(&k, roots, o))
	keep(cgroups(ctx, &k, roots, o, mounts))
	k.KubeletStaticCPU, k.KubeletStaticMemory, err = KubeletManagers(o.KubeletCPUState, o.KubeletMemoryState)
	keep(err)
	memory, err := procFS.MemTotal()
	keep(noAnswer(err))
	topology, err := sys.FS(roots.Sys).Topology()
	keep(err)
	if err := errors.Join(errs...); err != nil {
		if root.Exhausted(err) { // any list may be short of something
			err = noAnswer(err)
		}
		return k, topology, memory, fmt.Errorf("probe kernel: %w", err)
	}
	return k, topology, memory, nil
}

// noAnswer marks an error of what every kernel tells: it is no state of the node that lasts.
func noAnswer(err error) error {
	if err == nil || errors.Is(err, ErrInconclusive) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInconclusive, err)
}

// cgroups fills in all that depends on the cgroup filesystem.
func cgroups(ctx context.Context, k *node.Kernel, roots root.Roots, o Options, mounts proc.Mounts) error {
	var err error
	if k.Cgroup, err = cgroupVersion(roots.Cgroup); err != nil {
		return noAnswer(err)
	}
	k.RecursiveProt = k.Cgroup == node.CgroupV2 && mounts.RecursiveProt
	fs, err := cgroup.Open(roots, k.Cgroup, cgroup.Options{})
	if err != nil {
		return noAnswer(err)
	}
	k.Systemd = systemdDriver(fs, proc.FS(roots.Proc), o)
	k.KubeletMemoryQoS = kubeletMemoryQoS(fs, k.Systemd, o)
	return knobs(ctx, k, fs, roots, o.KubepodsRoot)
}

// hardware lists disks, device nodes and the CDI registry.
func hardware(k *node.Kernel, roots root.Roots, o Options) error {
	var errs [4]error
	fs := sys.FS(roots.Sys)
	k.Disks, errs[0] = fs.Disks()
	rdma, err := fs.RDMA()
	errs[1] = err
	gpus, err := sys.GPUs(roots.Proc, roots.Dev)
	errs[2] = err
	k.Devices = append(gpus, rdma...)
	k.CDI, errs[3] = sys.CDINames(o.CDIDirs...)
	return errors.Join(errs[:]...)
}

// systemdDriver decides by the kubelet's own top directory, and where both or none exist by whether PID 1 is systemd.
func systemdDriver(fs cgroup.FS, procFS proc.FS, o Options) bool {
	inSlice, inPlain := cgrouppath.Kubepods(o.KubepodsRoot)
	slice, plain := exists(fs, inSlice), exists(fs, inPlain)
	if slice != plain {
		return slice
	}
	return strings.HasPrefix(procFS.Comm(1), "systemd")
}
