// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kubeletopt"
	"github.com/koord-rt/koord-rt/koordlet/internal/predict"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// newTopology makes the report of the node's NodeResourceTopology; nothing where it is off or nobody would hear it.
func (d *Daemon) newTopology() ([]run.Component, error) {
	if !d.cfg.APIServer.Topology || d.cluster.client == nil {
		return nil, nil
	}
	w, err := report.NewTopology(report.TopologyOptions{API: d.cluster.client, Node: d.cluster.name, Build: d.topologyNow})
	if err != nil {
		return nil, err
	}
	d.topology = w
	out := []run.Component{{Name: "report of topology", Run: w.Run}}
	if k := &d.cfg.Kubelet; k.QueryConfig {
		client, err := d.cluster.kubelet(k)
		if err != nil {
			return nil, err
		}
		d.kubelet = kubeletopt.NewReader(k.Endpoint, client, k.ConfigFile)
		out = append(out, run.Component{Name: "kubelet's options", Run: d.kubelet.Run})
	}
	return out, nil
}

// topologyNow is what shall be told; false while it is not known, or cannot be, which [topologySource] says.
func (d *Daemon) topologyNow() (report.Topology, bool) {
	out, known, err := d.topologyAsItIs()
	d.unmade.Store(&err)
	return out, known && err == nil
}

// topologyAsItIs is not known before the pods are, because CPUs that they have would seem to be free, and before the kubelet has been asked.
func (d *Daemon) topologyAsItIs() (_ report.Topology, known bool, _ error) {
	pods, n, v := d.pods.Snapshot(), d.cluster.Node(), d.host.Engine.Views().Load()
	if d.host.Alone() != nil { // another koordlet may tell it
		return report.Topology{}, false, nil
	}
	if pods.Generation == 0 || n == nil || !v.Dynamic.Known || d.kubelet != nil && d.kubelet.State() == nil {
		return report.Topology{}, false, nil
	}
	m := d.machine.read(&d.cfg.Host, v, d.log)
	checkpoint, err := readCheckpoint(d.cfg.Host.KubeletCPUManagerState)
	if err != nil {
		return report.Topology{}, false, err // half of a write, which the next check finds whole, or a kubelet's that is not known here
	}
	huge, err := hugePages(sys.FS(d.cfg.Host.Sys), v.Topology.Nodes)
	if err != nil {
		return report.Topology{}, false, err // for example a memory node that goes: the next check finds it gone
	}
	in := report.TopologyInput{
		Machine: m, HugePages: huge, Kubelet: checkpoint, Reserved: v.Claims.Reserved, Pods: pods, Node: n.Annotations, Labels: n.Labels, Kept: kept(n),
		SharePools: v.Dynamic.SharePools, BESharePools: v.Dynamic.BESharePools,
	}
	if s := d.options(); s != nil && s.Known {
		in.Options = &s.Options
	}
	out, err := report.BuildTopology(&in)
	return out, true, err
}

// kept is what the kubelet keeps of the node for the system, for itself and from eviction; what the manager amplifies is not
// what it offers.
func kept(n *kube.Node) report.Figures {
	offered, ok := predict.Allocatable(n.Allocatable, n.Annotations[protocol.AnnotationRawAllocatable])
	if !ok {
		return report.Figures{}
	}
	return report.Figures{CPU: max(n.Capacity.CPU-offered.CPU, 0), Memory: max(n.Capacity.Memory-offered.Memory, 0)}
}

// machine is what is told of the machine beside what its pods change; the zero value has read nothing.
type machine struct {
	whole *report.Machine
	// told is why the last one was in part only.
	told string
}

// read reads it until that succeeds in full, since what fails at boot may be there at the next check, and again when the View has other CPUs
// or another cache mask.
func (k *machine) read(at *config.Host, v *node.View, log *slog.Logger) *report.Machine {
	if k.whole != nil && k.whole.Topology == v.Topology && k.whole.L3Mask == v.Kernel.RDT.L3CBM {
		return k.whole
	}
	m, err := readMachine(at, v)
	switch {
	case err == nil:
		k.whole = m
		if k.told != "" {
			k.told = ""
			log.Info("the machine is reported in full")
		}
	case err.Error() != k.told:
		k.told = err.Error()
		log.Warn("the machine is not reported in full", "err", err)
	}
	return m
}

// readMachine reads all of it. What cannot be read is left out and named.
func readMachine(at *config.Host, v *node.View) (*report.Machine, error) {
	m := &report.Machine{
		Topology: v.Topology, Memory: map[int]unit.Bytes{}, HyperThreads: sys.FS(at.Sys).HyperThreads(), Turbo: sys.FS(at.Sys).Turbo(), L3Mask: v.Kernel.RDT.L3CBM,
	}
	cpu, err := proc.FS(at.Proc).CPUInfo()
	errs := []error{err}
	m.Model, m.Vendor = cpu.Model, cpu.Vendor
	for _, id := range v.Topology.Nodes.List() {
		total, err := nodeMemory(sys.FS(at.Sys), id)
		if err != nil {
			errs = append(errs, fmt.Errorf("memory of node %d: %w", id, err))
			continue
		}
		m.Memory[id] = total
	}
	return m, errors.Join(errs...)
}

func nodeMemory(s sys.FS, id int) (unit.Bytes, error) {
	f, err := s.NodeMemoryFile(id)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := root.Get()
	defer b.Put()
	var m sys.NodeMemory
	err = f.Read(b, &m)
	return m.Total, err
}

// hugePages are those of each memory node; unlike its memory, they change while it runs.
func hugePages(s sys.FS, nodes topo.CPUSet) (map[int][]report.HugePages, error) {
	out := map[int][]report.HugePages{}
	for _, id := range nodes.List() {
		found, err := s.HugePages(id)
		if err != nil {
			return nil, fmt.Errorf("huge pages of node %d: %w", id, err)
		}
		for _, h := range found {
			out[id] = append(out[id], report.HugePages(h))
		}
	}
	return out, nil
}

// readCheckpoint is the kubelet's CPU manager; nothing without a kubelet.
func readCheckpoint(path string) (report.Checkpoint, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return report.Checkpoint{}, nil
	}
	if err != nil {
		return report.Checkpoint{}, fmt.Errorf("read %s: %w", path, err)
	}
	c, err := report.ParseCheckpoint(b)
	if err != nil {
		return report.Checkpoint{}, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// kubeletCPUs follows the checkpoint for one goroutine, which asks at each step: it is parsed when the kubelet has written it anew.
type kubeletCPUs struct {
	path    string
	seen    fs.FileInfo
	entries map[string]topo.CPUSet
}

// load is who has CPUs alone, as the kubelet said last; an error says why that may be old. It holds all the same: forgotten, CPUs of pods that
// still have them alone would be shared.
func (k *kubeletCPUs) load() (map[string]topo.CPUSet, error) {
	now, err := os.Stat(k.path)
	if err != nil {
		now = nil
	}
	if k.seen != nil && now != nil && os.SameFile(k.seen, now) && k.seen.ModTime().Equal(now.ModTime()) && k.seen.Size() == now.Size() {
		return k.entries, nil
	}
	c, err := readCheckpoint(k.path)
	if err == nil {
		k.seen, k.entries = now, c.Entries
	}
	return k.entries, err
}

// optionsSource says how the kubelet's options are known; nothing where nobody would be told of them.
func optionsSource(reported, asked bool, s *kubeletopt.State) []status.Source {
	const name = "kubelet-options"
	switch {
	case !reported:
		return nil
	case !asked:
		return []status.Source{{Name: name, State: status.StateOff, Reason: "kubelet.queryConfig is false"}}
	case s == nil:
		return []status.Source{{Name: name, State: status.StateDegraded, Reason: status.NotAskedYet}}
	}
	return []status.Source{source(name, s.Err, s.Since)}
}

// options is what the reader knows, nil before its first look or without one.
func (d *Daemon) options() *kubeletopt.State {
	if d.kubelet == nil {
		return nil
	}
	return d.kubelet.State()
}

// topologySource says how that report goes; unmade is why there is nothing to report.
func topologySource(on bool, w *report.TopologyWriter, unmade error) []status.Source {
	const name = "noderesourcetopology"
	switch {
	case w == nil && on:
		return nil // no API server, which is said already
	case w == nil:
		return []status.Source{{Name: name, State: status.StateOff, Reason: "apiServer.topology is false"}}
	}
	s := w.State()
	return []status.Source{source(name, cmp.Or(unmade, s.Err), s.Written)}
}

// whyUnmade is the newest word of [Daemon.topologyNow].
func (d *Daemon) whyUnmade() error {
	if err := d.unmade.Load(); err != nil {
		return *err
	}
	return nil
}
