// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// gpuSpec stands for the vendor's.
const gpuSpec = `{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[{"name":"GPU-0","containerEdits":{"env":["A=b"]}}]}`

// gpuRig is an engine on a node that has been probed with a GPU and its specification.
type gpuRig struct {
	*rig
	views  *engine.Views
	static engine.Static
	// registry is the specification, asked how often the registry was looked at, stale how often a probe was asked for.
	registry     string
	asked, stale int
}

func newGPURig(t *testing.T) *gpuRig {
	t.Helper()
	dir := t.TempDir()
	r := &gpuRig{registry: filepath.Join(dir, "nvidia.json")}
	must(t, os.WriteFile(r.registry, []byte(gpuSpec), 0o600))
	names, err := sys.CDINames(dir)
	must(t, err)
	now := sys.NewCDIRegistry(dir).Names
	m := enginetest.New(t, "6.12", "/kubepods/burstable/podu")
	o := m.Options(t, config.Default().Node, paper(0), burst, plan.CPUBurst)
	o.Drift = time.Hour
	o.Live = &engine.Live{
		CDI:   func() map[string]struct{} { r.asked++; return now() },
		Stale: func() { r.stale++ },
	}
	s := m.Static(t, plan.CPUBurst)
	s.Kernel.CDI, s.Kernel.Devices = names, []node.DeviceNode{{Type: "gpu", Path: "/dev/nvidia0", Major: 195, UUID: "GPU-0"}}
	o.Views.SetStatic(s)
	o.Views.SetRuntime(node.Runtime{Fields: node.Fields{CDI: true}})
	r.rig, r.views, r.static = &rig{Engine: engine.New(o), tree: m.Tree, book: m.Journal}, o.Views, s
	enginetest.Run(t, r.Engine)
	return r
}

const halfAGPU = `{"gpu":[{"minor":0,"id":"GPU-0","resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"50"}}]}`

// create makes one container of a pod and returns what stands in its specification.
func (r *gpuRig) create(t *testing.T, id string, annotations map[string]string) (spec plan.Plan, inMemory bool) {
	t.Helper()
	ask, problems := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LS", protocol.LabelGPUIsolationProvider: "HAMi-core"}, annotations)
	pod := &workload.Pod{
		ID: "s" + id, UID: "u" + id, Namespace: "default", Name: "web" + id, KubeQoS: protocol.KubeBurstable, Cgroup: "/kubepods/burstable/podu",
		QoSCgroup: "/kubepods/burstable", Ask: ask, Problems: problems,
	}
	c := container()
	c.ID = id
	cr := r.Decide(engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}, c)
	inMemory = cr.InMemory()
	must(t, cr.Create(t.Context(), func(v *node.View, pl plan.Plan) plan.Plan { spec = pl; return nil }))
	return spec, inMemory
}

// told are the reasons of a container's problems in the status that contain a text.
func (r *gpuRig) told(container, text string) int {
	n := 0
	for _, p := range r.Status().Problems {
		if p.Where == container && strings.Contains(p.Reason, text) {
			n++
		}
	}
	return n
}

func find(spec plan.Plan, k plan.Knob, key string) *plan.Setting {
	i := slices.IndexFunc(spec, func(s plan.Setting) bool { return s.Knob == k && s.Key == key })
	if i < 0 {
		return nil
	}
	return &spec[i]
}

// A name that has left the registry since the probe does not go into the specification, which would fail there: the container gets the
// device as a node, the pod's problem says why, and the node is probed again.
func TestCDINameGone(t *testing.T) {
	t.Parallel()
	r := newGPURig(t)
	allocated := map[string]string{protocol.AnnotationDeviceAllocated: halfAGPU}
	const name = "nvidia.com/gpu=GPU-0"
	spec, inMemory := r.create(t, "a", allocated)
	if find(spec, plan.CDIDevice, name) == nil || find(spec, plan.Device, "/dev/nvidia0") != nil || inMemory || r.asked != 1 || r.stale != 0 {
		t.Fatalf("while it is there: %v, in memory %t, asked %d, stale %d", spec, inMemory, r.asked, r.stale)
	}
	must(t, os.Remove(r.registry))
	spec, _ = r.create(t, "b", allocated)
	if find(spec, plan.CDIDevice, name) != nil || find(spec, plan.Device, "/dev/nvidia0") == nil {
		t.Errorf("plan = %v", spec)
	}
	if s := find(spec, plan.Env, "NVIDIA_VISIBLE_DEVICES"); s == nil || s.Value.String() != "GPU-0" {
		t.Errorf("NVIDIA_VISIBLE_DEVICES: %v", s)
	}
	if find(spec, plan.CPUBurst, "") == nil {
		t.Errorf("the rest of the plan is missing: %v", spec)
	}
	if r.stale != 1 {
		t.Errorf("probed again %d times", r.stale)
	}
	enginetest.Eventually(t, "the problem", func() bool { return r.told("default/webb/app", name+" has left the registry") == 1 })
	if r.told("default/weba/app", "has left") != 0 {
		t.Error("a problem of the container that had it")
	}
	must(t, os.WriteFile(r.registry, []byte(gpuSpec), 0o600))
	if spec, _ = r.create(t, "c", allocated); find(spec, plan.CDIDevice, name) == nil || r.stale != 1 {
		t.Errorf("back again: %v", spec)
	}
}

// A container without devices asks nobody for the registry.
func TestRegistryIsNotAskedInVain(t *testing.T) {
	t.Parallel()
	r := newGPURig(t)
	must(t, os.Remove(r.registry))
	if spec, inMemory := r.create(t, "a", nil); !inMemory || r.asked != 0 || r.stale != 0 || find(spec, plan.CPUBurst, "") == nil {
		t.Errorf("plan %v, in memory %t, asked %d", spec, inMemory, r.asked)
	}
}

// A registry that cannot be read says nothing: what the probe has found holds.
func TestRegistryUnknown(t *testing.T) {
	t.Parallel()
	r := newGPURig(t)
	must(t, os.RemoveAll(filepath.Dir(r.registry)))
	must(t, os.WriteFile(filepath.Dir(r.registry), nil, 0o600))
	spec, _ := r.create(t, "a", map[string]string{protocol.AnnotationDeviceAllocated: halfAGPU})
	if find(spec, plan.CDIDevice, "nvidia.com/gpu=GPU-0") == nil || r.asked != 1 || r.stale != 0 {
		t.Errorf("plan %v, asked %d, stale %d", spec, r.asked, r.stale)
	}
}

// HAMi-core that is not whole any more is not loaded at all: neither of its mounts, which runc could not make, nor the preload, which would
// find nothing. The container starts with its device and its limits' variables, and its problem says what is missing.
func TestHAMiCoreGone(t *testing.T) {
	t.Parallel()
	r := newGPURig(t)
	lib := filepath.Join(t.TempDir(), "libvgpu.so") // whose mount stands beside that of /tmp/vgpulock
	s := r.static
	s.Kernel.HAMiLib = lib
	r.views.SetStatic(s)
	spec, inMemory := r.create(t, "a", map[string]string{protocol.AnnotationDeviceAllocated: halfAGPU})
	if find(spec, plan.Env, "LD_PRELOAD") != nil || spec.Get(plan.Mount) != nil || inMemory {
		t.Errorf("in memory %t, plan = %v", inMemory, spec)
	}
	if find(spec, plan.Env, "CUDA_DEVICE_SM_LIMIT") == nil || find(spec, plan.CDIDevice, "nvidia.com/gpu=GPU-0") == nil || find(spec, plan.CPUBurst, "") == nil {
		t.Errorf("the rest is missing: %v", spec)
	}
	if r.stale != 1 {
		t.Errorf("probed again %d times", r.stale)
	}
	enginetest.Eventually(t, "the problem", func() bool { return r.told("default/weba/app", "has gone since the node was probed") == 1 })
}
