// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Options of a Kubelet. The cgroup version is the machine's, mounted at /sys/fs/cgroup.
type Options struct {
	CRI            *cri.Client // required: a runtime, or a proxy before one
	LogDir         string      // required: folder of pod logs
	Driver         Driver      // optional: default Cgroupfs; the runtime must use the same
	Root           string      // optional: kubelet's --cgroup-root, one part without / or _; default none, so /kubepods
	Image          string      // optional: default parts.ImageRef
	MemoryCapacity int64       // optional: bytes, default the machine's MemTotal
	CPUs           int         // optional: cores, default the machine's
	PodNetwork     bool        // optional: pods have addresses of their own, by the runtime's CNI; default the machine's network
	CRIO           bool        // optional: the runtime is CRI-O, which names containers' cgroups otherwise; default containerd
}

// Kubelet makes pods; safe for concurrent use by several pods, not of one pod.
type Kubelet struct {
	options Options
	groups  groups
	root    groupName // kubepods
	swap    bool      // the kernel can limit swap

	mu   sync.Mutex
	pods []*Running // active, in order of creation
}

// Running is a pod with a sandbox.
type Running struct {
	Pod        Pod                          // with resources as last resized
	QoS        QoS                          // fixed at creation
	SandboxID  string                       // CRI id of the sandbox
	Containers map[string]string            // name -> CRI id of created containers
	Config     *runtimeapi.PodSandboxConfig // as sent
	Addresses  []string                     // of a pod with an address of its own
	group      groupName
}

// Through makes all further calls over another client: a proxy that was started before the runtime.
func (k *Kubelet) Through(c *cri.Client) { k.options.CRI = c }

// New makes the kubepods, burstable and besteffort cgroups with kubelet's values. After
// an error none of them is left.
func New(ctx context.Context, o Options) (*Kubelet, error) {
	if o.CRI == nil || o.LogDir == "" {
		return nil, errors.New("new kubelet: CRI and LogDir are required")
	}
	if strings.ContainsAny(o.Root, "/_") {
		return nil, fmt.Errorf("new kubelet: cgroup root %q holds / or _", o.Root)
	}
	if o.Driver == "" {
		o.Driver = Cgroupfs
	}
	if o.Image == "" {
		o.Image = parts.ImageRef
	}
	if o.CPUs == 0 {
		o.CPUs = runtime.NumCPU()
	}
	if o.MemoryCapacity == 0 {
		var err error
		if o.MemoryCapacity, err = memTotal(); err != nil {
			return nil, err
		}
	}
	g, err := newGroups(o.Driver)
	if err != nil {
		return nil, fmt.Errorf("new kubelet: %w", err)
	}
	k := &Kubelet{options: o, groups: g}
	if o.Root != "" {
		k.root = groupName{o.Root}
	}
	k.root = k.root.child("kubepods")
	if err := k.createRoots(); err != nil {
		return nil, errors.Join(fmt.Errorf("new kubelet: %w", err), k.Cleanup(ctx))
	}
	k.swap = swapLimited(g.tree, k.root.path(o.Driver))
	return k, nil
}

// createRoots writes the values of kubelet's node allocatable and QoS cgroups.
func (k *Kubelet) createRoots() error {
	if k.options.Root != "" { // kubelet expects --cgroup-root to exist
		if err := k.groups.create(k.root[:1], values{}); err != nil {
			return err
		}
	}
	all, best := cpuShares(int64(k.options.CPUs)*1000), int64(2)
	memory := k.options.MemoryCapacity
	if err := k.groups.create(k.root, values{shares: &all, memory: &memory}); err != nil {
		return err
	}
	if err := k.groups.create(k.root.child("burstable"), values{shares: &best}); err != nil {
		return err
	}
	return k.groups.create(k.root.child("besteffort"), values{shares: &best})
}

// updateQoS sets shares of the burstable cgroup to the sum of its pods' CPU requests,
// as kubelet does before it creates a pod's cgroup and once a minute. k.mu is held.
func (k *Kubelet) updateQoS(extra ...Pod) error {
	var sum int64
	for _, r := range k.pods {
		extra = append(extra, r.Pod)
	}
	for _, p := range extra {
		d, err := podDemandOf(p)
		if err != nil {
			return err
		}
		if d.qos() == Burstable {
			sum += d.sum.cpu.withOverhead(d.overhead.cpu).request
		}
	}
	shares, best := cpuShares(sum), int64(2)
	return errors.Join(
		k.groups.update(k.root.child("burstable"), values{shares: &shares}),
		k.groups.update(k.root.child("besteffort"), values{shares: &best}))
}

// UpdateQoS writes the QoS cgroups' values again, as kubelet does every minute and
// after its own restart.
func (k *Kubelet) UpdateQoS() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.updateQoS()
}

// Pods are those that have been made and not stopped.
func (k *Kubelet) Pods() []*Running {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.pods)
}

// PodCgroup is the path of the pod's cgroup below the mount, as in cgroup_parent.
func (k *Kubelet) PodCgroup(p Pod) (string, error) {
	class, err := QoSOf(p)
	return k.podGroup(p, class).path(k.groups.driver), err
}

func (k *Kubelet) podGroup(p Pod, class QoS) groupName {
	n := k.root
	if class != Guaranteed {
		n = n.child(strings.ToLower(string(class)))
	}
	return n.child("pod" + p.UID)
}

// PodDir is the directory of the pod's cgroup for one controller (cpu, memory ...;
// with cgroup v2 any).
func (k *Kubelet) PodDir(r *Running, controller string) string {
	return k.groups.dir(r.group, controller)
}

// ContainerDir is the directory of a container's cgroup for one controller, in
// the runtime's naming; "" if the container is not created.
func (k *Kubelet) ContainerDir(r *Running, name, controller string) string {
	id, dir := r.Containers[name], k.groups.dir(r.group, controller)
	if id == "" || dir == "" {
		return ""
	}
	switch systemd := k.groups.driver == Systemd; {
	case k.options.CRIO && systemd:
		id = "crio-" + id + ".scope"
	case k.options.CRIO:
		id = "crio-" + id
	case systemd:
		id = "cri-containerd-" + id + ".scope"
	}
	return filepath.Join(dir, id)
}

// Cleanup stops all pods and removes kubepods, and the cgroup root if one was asked for.
func (k *Kubelet) Cleanup(ctx context.Context) error {
	k.mu.Lock()
	pods := slices.Clone(k.pods)
	k.mu.Unlock()
	var errs []error
	for _, r := range pods {
		errs = append(errs, k.StopPod(ctx, r))
	}
	for _, n := range []groupName{k.root.child("burstable"), k.root.child("besteffort"), k.root} {
		errs = append(errs, k.groups.remove(ctx, n))
	}
	if k.options.Root != "" {
		errs = append(errs, k.groups.remove(ctx, k.root[:1]))
	}
	return errors.Join(errs...)
}

// memTotal reads MemTotal of /proc/meminfo in bytes.
func memTotal() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read memory capacity: %w", err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parse MemTotal: %w", err)
			}
			return kib * 1024, nil
		}
	}
	return 0, errors.New("read memory capacity: no MemTotal")
}

// swapLimited says whether the kernel can limit swap per cgroup. On v2 the root has no swap file; kubelet asks its own
// cgroup, which on a node is never the root, as this process's is in a bare guest: kubepods answers for it.
func swapLimited(t cgroups.Tree, kubepods string) bool {
	dir, file := t.Controllers["memory"], "memory.memsw.limit_in_bytes"
	if t.V2() {
		dir, file = filepath.Join(t.Unified, kubepods), "memory.swap.max"
	}
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}
