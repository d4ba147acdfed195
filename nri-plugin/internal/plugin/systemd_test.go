// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"path"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	kernelwire "github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/plan"
)

// fakeUnits keeps the properties of units as systemd does.
type fakeUnits struct {
	mu    sync.Mutex
	props map[string]string // "unit knob"
	calls int
}

func (*fakeUnits) Has(dir string, k plan.Knob) bool { return kernelwire.Units{}.Has(dir, k) }

func (*fakeUnits) Held(context.Context, string) (map[plan.Knob]string, error) { return nil, nil }

func (u *fakeUnits) Set(_ context.Context, dir string, settings []plan.Setting) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls++
	for i := range settings {
		u.props[path.Base(dir)+" "+settings[i].Knob.String()] = settings[i].Value.String()
	}
	return nil
}

func (u *fakeUnits) get(dir string, k plan.Knob) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.props[path.Base(dir)+" "+k.String()]
}

func (u *fakeUnits) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls
}

func systemdHost(t *testing.T, change ...func(*host, *engine.Options)) (*host, *fakeUnits) {
	t.Helper()
	units := &fakeUnits{props: map[string]string{}}
	h := newHostWith(t, "6.12", nil, append(change, func(h *host, o *engine.Options) {
		o.Kernel = h.machine.Writer(t, func(a *apply.Options) { a.Units = units })
		s := h.machine.Static(t, hostKnobs()...)
		s.Kernel.Systemd = true
		h.views.SetStatic(s)
	})...)
	return h, units
}

// slicePod is a pod with the kubelet's systemd driver.
func (h *host) slicePod(t *testing.T, name, qos string, annotations map[string]string) (*api.PodSandbox, *api.Container) {
	t.Helper()
	parent := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + name + ".slice"
	switch qos {
	case "LSR":
		parent = "/kubepods.slice/kubepods-pod" + name + ".slice"
	case "BE":
		parent = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + name + ".slice"
	}
	for _, dir := range []string{path.Dir(path.Dir(parent)), path.Dir(parent), parent} {
		if dir != "/" && !h.tree.Exists(dir) {
			h.tree.Mkdir(t, dir)
		}
	}
	sb := &api.PodSandbox{
		Id: "sandbox-" + name, Name: name, Uid: name, Namespace: "default", Annotations: annotations,
		Labels: map[string]string{protocol.LabelQoSClass: qos},
		Linux:  &api.LinuxPodSandbox{CgroupParent: parent, PodResources: resources(1024, 200000, 1<<30)},
	}
	must(t, h.rt.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sb}))
	ctr := ctrOf(sb, "app")
	ctr.Linux.CgroupsPath = parent + "/cri-containerd-" + ctr.Id + ".scope"
	h.create(t, sb, ctr)
	must(t, h.start(t, sb, ctr))
	return sb, ctr
}

// Whatever we write to a unit becomes its property, so that a daemon-reload writes our value and not an older one: pods,
// their ancestors, neighbours that are displaced, a strategy that changes, what a repair writes, and the end.
func TestUnitProperties(t *testing.T) {
	t.Parallel()
	h, units := systemdHost(t)
	h.run(t)
	want := func(dir string, k plan.Knob, value string) {
		t.Helper()
		enginetest.Eventually(t, k.String()+" = "+value+" as a property of "+path.Base(dir), func() bool { return units.get(dir, k) == value })
	}
	be, neighbour := h.slicePod(t, "be", "BE", map[string]string{protocol.AnnotationExtendedResource: batch})
	want(be.Linux.CgroupParent, plan.CPUQuota, "50000")

	lsr, ctr := h.slicePod(t, "lsr", "LSR", map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"0-3"}`})
	want(ctr.Linux.CgroupsPath, plan.CPUSetCPUs, "0-3")
	want(neighbour.Linux.CgroupsPath, plan.CPUSetCPUs, "4-7")
	min := h.tree.Get(t, lsr.Linux.CgroupParent, "memory.min")
	if min == "0" {
		t.Fatal("the pod protects nothing")
	}
	want(lsr.Linux.CgroupParent, plan.MemoryMin, min)
	want("/kubepods.slice", plan.MemoryMin, min)

	h.views.SetFile(nil, "")
	want(lsr.Linux.CgroupParent, plan.MemoryMin, "0")
	want("/kubepods.slice", plan.MemoryMin, "0")
	// A repair says it again: the unit's own value may be what was written over ours. TestUnitPropertiesQuiet has the drift check.
	calls := units.count()
	h.tree.Set(t, ctr.Linux.CgroupsPath, "cpuset.cpus", "0-7")
	h.engine.Repair()
	enginetest.Eventually(t, "repair", func() bool { return h.tree.Get(t, ctr.Linux.CgroupsPath, "cpuset.cpus") == "0-3" })
	enginetest.Eventually(t, "property after repair", func() bool { return units.count() > calls })

	_, err := h.rt.StopContainer(t.Context(), &api.StopContainerRequest{Pod: lsr, Container: ctr})
	must(t, err)
	want(neighbour.Linux.CgroupsPath, plan.CPUSetCPUs, "0-7")
}

// A pass that finds everything in place talks to nobody, and the end gives the kubelet's units back.
func TestUnitPropertiesQuiet(t *testing.T) {
	t.Parallel()
	h, units := systemdHost(t, checked)
	h.run(t)
	lsr, ctr := h.slicePod(t, "lsr", "LSR", nil)
	min := h.tree.Get(t, lsr.Linux.CgroupParent, "memory.min")
	enginetest.Eventually(t, "protection of the slice", func() bool { return min != "0" && units.get("/kubepods.slice", plan.MemoryMin) == min })
	for _, dir := range []string{lsr.Linux.CgroupParent, ctr.Linux.CgroupsPath} {
		enginetest.Eventually(t, "property of "+dir, func() bool { return units.get(dir, plan.MemoryMin) == h.tree.Get(t, dir, "memory.min") })
	}
	const passes = 3
	before := units.count()
	for range passes {
		h.tree.Set(t, ctr.Linux.CgroupsPath, "memory.min", "1")
		enginetest.Eventually(t, "a drift check", func() bool { return h.tree.Get(t, ctr.Linux.CgroupsPath, "memory.min") != "1" })
	}
	if n := units.count() - before; n > passes {
		t.Errorf("%d calls for %d values that had drifted", n, passes)
	}
	h.stop()
	if got := units.get("/kubepods.slice", plan.MemoryMin); got != "0" {
		t.Errorf("MemoryMin of kubepods.slice is %s after the end", got)
	}
}
