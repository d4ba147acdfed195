// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/probe"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// probeEvery is how often the node is probed again: CDI specifications, devices and resctrl may come after us.
const probeEvery = 5 * time.Minute

// kubeletEvery is how often it is looked whether the kubelet's managers are static now: one that starts with another policy gives CPUs
// to containers at once, and our sets would take them away again until the next probe.
const kubeletEvery = 10 * time.Second

// prober asks the kernel, at start and now and then.
type prober struct {
	roots root.Roots
	cfg   config.Node
	log   *slog.Logger
	last  engine.Static
	// every is the interval of run.
	every time.Duration
	// own reports whether memory.min of a cgroup is ours.
	own func(cgroup string) bool
	// problem tells what the last probe could not find out, told: nil before there is an engine.
	problem func(reason string)
	told    string
	// again has a token when the node is known to be another than it was; nil asks at every interval only.
	again chan struct{}
}

// first fails only when there is nothing to go on: without the CPUs no cpuset can be decided.
func (p *prober) first(ctx context.Context) (engine.Static, error) {
	s, err := p.ask(ctx)
	if s.Topology == nil {
		return s, fmt.Errorf("probe this node: %w", err)
	}
	p.tell(err)
	p.last = s
	return s, nil
}

// tell reports what could not be found out when that is news: most of it lasts until somebody mends it.
func (p *prober) tell(err error) {
	text := ""
	if err != nil {
		text = oneLine(err.Error())
	}
	if text == p.told {
		return
	}
	p.told = text
	switch {
	case text == "":
		p.log.Info("probe is complete again")
	case p.problem == nil:
		p.log.Warn("probe is incomplete", "err", text)
	default:
		p.problem(text)
	}
}

// oneLine is the text of joined errors for a log and a table, which a registry full of bad files would make endless.
func oneLine(text string) string {
	const most = 1000
	text = strings.ReplaceAll(text, "\n", "; ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}

// follow has the engine told of problems from now on, and of what the first probe has left.
func (p *prober) follow(problem func(reason string)) {
	if p.problem = problem; p.told != "" {
		problem(p.told)
	}
}

func (p *prober) ask(ctx context.Context) (engine.Static, error) {
	h := p.cfg.Host
	kernel, topology, memory, err := probe.Probe(ctx, p.roots, probe.Options{
		KubeletCPUState: h.KubeletCPUManagerState, KubeletMemoryState: h.KubeletMemoryManagerState, CDIDirs: h.CDIDirs,
		KubepodsRoot: h.KubepodsRoot, KubeletMemoryQoS: memoryQoS(h.KubeletMemoryQoS), OwnMemoryMin: p.own,
	})
	kernel.HAMiLib = hamiLibrary(h.HAMiLibrary, hamiLock)
	name, _ := os.Hostname()
	s := engine.Static{
		Name: name, Kernel: kernel, Topology: topology, MemCapacity: memory, MemAllocatable: memory,
		// What current runtimes and kubelets do, until a container tells otherwise.
		Weight: unit.Quadratic, PodWeight: unit.Linear,
	}
	if topology != nil {
		s.CPUAllocatable = unit.MilliCPU(topology.All().Len() * 1000)
	}
	if fs, err := cgroup.Open(p.roots, kernel.Cgroup, cgroup.Options{}); err == nil {
		if n := probe.PodsMemory(fs, h.KubepodsRoot); n > 0 {
			s.MemAllocatable = min(n, memory)
		}
	}
	return s, err
}

// hamiLock is where HAMi-core's processes meet; without it the mount would fail the container.
const hamiLock = "/tmp/vgpulock"

// hamiLibrary is the library's path when it and the lock directory exist, else "".
func hamiLibrary(library, lock string) string {
	lib, err := os.Stat(library)
	if err != nil || !lib.Mode().IsRegular() {
		return ""
	}
	if dir, err := os.Stat(lock); err != nil || !dir.IsDir() {
		return ""
	}
	return library
}

func memoryQoS(answer string) probe.Answer {
	switch answer {
	case config.MemoryQoSYes:
		return probe.Yes
	case config.MemoryQoSNo:
		return probe.No
	}
	return probe.Detect
}

func (p *prober) run(ctx context.Context, set func(engine.Static)) error {
	tick, look := time.NewTicker(p.every), time.NewTicker(kubeletEvery)
	defer tick.Stop()
	defer look.Stop()
	var asked time.Time
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if p.managers() {
				set(p.last)
			}
			continue
		case <-tick.C:
		case <-later:
		case <-p.again:
			// An answer that is not kept leaves the view as stale as it was, and each creation would ask again.
			if wait := kubeletEvery - time.Since(asked); wait > 0 {
				later = time.After(wait)
				continue
			}
		}
		asked, later = time.Now(), nil
		if p.renew(ctx) {
			s := p.last
			p.log.Info("node has changed", "kernel", s.Kernel.Release, "cdi", len(s.Kernel.CDI), "resctrl", s.Kernel.RDT.Mounted)
			set(s)
		}
	}
}

// soon has the node probed without waiting for the interval, ten seconds after the last time at the earliest.
func (p *prober) soon() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// renew probes again and reports whether the answer is news. Only an inconclusive one is not kept: what else goes wrong, a bad CDI
// specification or a plain file in /dev, is a state of the node that may last, and the rest of the answer is right.
func (p *prober) renew(ctx context.Context) bool {
	s, err := p.ask(ctx)
	if ctx.Err() != nil {
		return false
	}
	p.tell(err)
	if s.Topology == nil || errors.Is(err, probe.ErrInconclusive) {
		return false
	}
	// Those are looked at by managers, to which half of a checkpoint says nothing; here it would say static.
	s.Kernel.KubeletStaticCPU, s.Kernel.KubeletStaticMemory = p.last.Kernel.KubeletStaticCPU, p.last.Kernel.KubeletStaticMemory
	if reflect.DeepEqual(s, p.last) {
		return false
	}
	p.last = s
	return true
}

// managers takes in what the kubelet's managers are now, and reports whether that is news. Half of a checkpoint says nothing.
func (p *prober) managers() bool {
	cpu, memory, err := probe.KubeletManagers(p.cfg.Host.KubeletCPUManagerState, p.cfg.Host.KubeletMemoryManagerState)
	k := &p.last.Kernel
	if err != nil || cpu == k.KubeletStaticCPU && memory == k.KubeletStaticMemory {
		return false
	}
	k.KubeletStaticCPU, k.KubeletStaticMemory = cpu, memory
	p.log.Info("the kubelet's managers have changed", "staticCPU", cpu, "staticMemory", memory)
	return true
}

// live names the hierarchies and registries that live checks read; stale is told when one has lost something.
func live(roots root.Roots, k *node.Kernel, cdiDirs []string, stale func()) *engine.Live {
	l := &engine.Live{Resctrl: roots.Resctrl, CDI: sys.NewCDIRegistry(cdiDirs...).Names, Stale: stale}
	if k.Cgroup != node.CgroupV1 {
		return l
	}
	fs, err := cgroup.Open(roots, k.Cgroup, cgroup.Options{})
	if err != nil {
		return l
	}
	l.CPUDir, l.CPUSetDir, l.MemoryDir = controller(fs, plan.CPUQuota), controller(fs, plan.CPUSetCPUs), controller(fs, plan.MemoryLimit)
	return l
}

// controller is the hierarchy of a knob, "" when it is not mounted.
func controller(fs cgroup.FS, k plan.Knob) string {
	dir, err := fs.Dir(plan.Target{Level: plan.LevelContainer, Cgroup: "/"}, k)
	if err != nil {
		return ""
	}
	return filepath.Clean(dir)
}

// searchRoot is a hierarchy in which every container has a directory.
func searchRoot(roots root.Roots, k *node.Kernel) string {
	if k.Cgroup == node.CgroupV2 {
		return roots.Cgroup
	}
	fs, err := cgroup.Open(roots, k.Cgroup, cgroup.Options{})
	if err != nil {
		return ""
	}
	return controller(fs, plan.CPUShares)
}
