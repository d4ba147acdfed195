// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// gpuView has two GPUs and one RDMA card with one virtual function, and no CDI registry.
func gpuView() *node.View {
	v := pt.View()
	v.Kernel.HAMiLib = "/usr/local/vgpu/libvgpu.so"
	v.Kernel.Devices = []node.DeviceNode{
		{Type: "gpu", Minor: 0, UUID: "GPU-a", Path: "/dev/nvidia0", Major: 195, MinorNumber: 0},
		{Type: "gpu", Minor: 1, UUID: "GPU-b", Path: "/dev/nvidia1", Major: 195, MinorNumber: 1},
		{Type: "gpu", Minor: -1, Path: "/dev/nvidiactl", Major: 195, MinorNumber: 255, Control: true},
		{Type: "rdma", Minor: 0, UUID: "mlx5_0", BusID: "0000:3b:00.0", Path: "/dev/infiniband/uverbs0", Major: 231, MinorNumber: 192},
		{Type: "rdma", Minor: 1, UUID: "mlx5_1", BusID: "0000:3b:00.1", Path: "/dev/infiniband/uverbs1", Major: 231, MinorNumber: 193},
		{Type: "rdma", Minor: -1, Path: "/dev/infiniband/rdma_cm", Major: 10, MinorNumber: 58, Control: true},
	}
	return v
}

func whole(minor int32, id string) protocol.DeviceAllocation {
	return protocol.DeviceAllocation{Minor: minor, ID: id, Resources: map[string]int64{
		protocol.ResourceGPUCore: 100, protocol.ResourceGPUMemoryRatio: 100, protocol.ResourceGPUMemory: 80 * pt.GiB,
	}}
}

func half(minor int32, id string) protocol.DeviceAllocation {
	return protocol.DeviceAllocation{Minor: minor, ID: id, Resources: map[string]int64{
		protocol.ResourceGPUCore: 50, protocol.ResourceGPUMemoryRatio: 20, protocol.ResourceGPUMemory: 16 * pt.GiB,
	}}
}

func asks(amounts map[string]int64) map[string]node.ContainerSpec {
	out := map[string]node.ContainerSpec{"sidecar": {}}
	for name, n := range amounts {
		out[name] = node.ContainerSpec{Devices: map[string]int64{protocol.ResourceGPUCore: n}}
	}
	return out
}

// before is an init container beside those of asks.
func before(name string, n int64, amounts map[string]int64) map[string]node.ContainerSpec {
	out := asks(amounts)
	out[name] = node.ContainerSpec{Devices: map[string]int64{protocol.ResourceGPUCore: n}, Init: true}
	return out
}

func TestGPU(t *testing.T) {
	t.Parallel()
	const visible, mem, sm, preload = "env[NVIDIA_VISIBLE_DEVICES]", "env[CUDA_DEVICE_MEMORY_LIMIT]", "env[CUDA_DEVICE_SM_LIMIT]", "env[LD_PRELOAD]"
	for name, tc := range map[string]struct {
		gpus     []protocol.DeviceAllocation
		cache    map[string]node.ContainerSpec
		cdi      bool
		provider string
		env, has []string
		who      string
		change   func(*node.View)
		want     want
		problem  string
	}{
		"nodes by UUID": {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100}), want: want{
			visible: "GPU-b", "device[/dev/nvidia1]": "c 195:1 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm",
		}},
		"nodes by minor": {gpus: []protocol.DeviceAllocation{whole(1, "")}, cache: asks(map[string]int64{"app": 100}), want: want{
			visible: "GPU-b", "device[/dev/nvidia1]": "c 195:1 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm",
		}},
		"CDI": {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100}), cdi: true, want: want{
			visible: "void", "cdi[nvidia.com/gpu=GPU-b]": "nvidia.com/gpu=GPU-b",
		}},
		"CDI already requested":   {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100}), cdi: true, has: []string{"nvidia.com/gpu=GPU-b"}, want: want{visible: "void"}},
		"CDI from another source": {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100}), cdi: true, has: []string{"nvidia.com/gpu=GPU-a"}, want: want{}, problem: "another source"},
		"CDI name not in the registry": {gpus: []protocol.DeviceAllocation{whole(0, "GPU-a")}, cache: asks(map[string]int64{"app": 100}), cdi: true, want: want{
			visible: "GPU-a", "device[/dev/nvidia0]": "c 195:0 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm",
		}},
		"void for a container that did not ask": {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100}), who: "sidecar", want: want{visible: "void"}},
		"void over the user's own":              {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100}), who: "sidecar", env: []string{"NVIDIA_VISIBLE_DEVICES"}, want: want{visible: "void"}},
		"whole devices are dealt out, first":    {gpus: []protocol.DeviceAllocation{whole(0, "GPU-a"), whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100, "web": 100}), want: want{visible: "GPU-a", "device[/dev/nvidia0]": "c 195:0 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm"}},
		"whole devices are dealt out, second":   {gpus: []protocol.DeviceAllocation{whole(0, "GPU-a"), whole(1, "GPU-b")}, cache: asks(map[string]int64{"app": 100, "web": 100}), who: "web", want: want{visible: "GPU-b", "device[/dev/nvidia1]": "c 195:1 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm"}},
		"whole device without limits":           {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, provider: "HAMi-core", cache: asks(map[string]int64{"app": 100}), want: want{visible: "GPU-b", mem: "-", preload: "-", "device[/dev/nvidia1]": "c 195:1 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm"}},
		"HAMi, documented example": {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: asks(map[string]int64{"app": 25, "web": 25}), cdi: false, want: want{
			visible: "GPU-a", mem: "8589934592", sm: "25", preload: "/usr/local/vgpu/libvgpu.so",
			"mount[/usr/local/vgpu/libvgpu.so]": "/usr/local/vgpu/libvgpu.so rbind,ro", "mount[/tmp/vgpulock]": "/tmp/vgpulock rbind,rw",
		}},
		"HAMi, only container":                             {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: map[string]node.ContainerSpec{"app": {}}, want: want{mem: "17179869184", sm: "50"}},
		"HAMi, nobody told apart":                          {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: map[string]node.ContainerSpec{"app": {}, "web": {}}, want: want{mem: "8589934592", sm: "25"}, problem: "equal part"},
		"HAMi, not in the cache":                           {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", want: want{mem: "17179869184", sm: "50"}, problem: "only one"},
		"HAMi, an init container asks for as much, itself": {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: before("setup", 50, map[string]int64{"app": 50}), who: "setup", want: want{mem: "17179869184", sm: "50"}},
		"HAMi, an init container asks for as much":         {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: before("setup", 50, map[string]int64{"app": 50}), want: want{mem: "17179869184", sm: "50"}},
		"HAMi, an init container asks for more":            {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: before("setup", 50, map[string]int64{"app": 25}), want: want{mem: "8589934592", sm: "25"}},
		"HAMi, nobody but an init container told apart":    {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: map[string]node.ContainerSpec{"app": {}, "setup": {Init: true}}, want: want{mem: "17179869184", sm: "50"}},
		"whole devices, all to an init container": {gpus: []protocol.DeviceAllocation{whole(0, "GPU-a"), whole(1, "GPU-b")}, cache: before("setup", 200, map[string]int64{"app": 100, "web": 100}), who: "setup",
			want: want{visible: "GPU-a,GPU-b", "device[/dev/nvidia0]": "c 195:0 rwm", "device[/dev/nvidia1]": "c 195:1 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm"}},
		"whole devices, after an init container": {gpus: []protocol.DeviceAllocation{whole(0, "GPU-a"), whole(1, "GPU-b")}, cache: before("setup", 200, map[string]int64{"app": 100, "web": 100}), who: "web",
			want: want{visible: "GPU-b", "device[/dev/nvidia1]": "c 195:1 rwm", "device[/dev/nvidiactl]": "c 195:255 rwm"}},
		"HAMi not installed":           {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: asks(map[string]int64{"app": 50}), change: func(v *node.View) { v.Kernel.HAMiLib = "" }, want: want{mem: "17179869184", preload: "-"}, problem: "not installed"},
		"HAMi with the user's preload": {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "HAMi-core", cache: asks(map[string]int64{"app": 50}), env: []string{"LD_PRELOAD"}, want: want{mem: "17179869184", preload: "-"}, problem: "LD_PRELOAD"},
		"MPS, documented example": {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, provider: "MPS", cache: asks(map[string]int64{"app": 25, "web": 25}), want: want{
			"env[CUDA_MPS_PINNED_DEVICE_MEM_LIMIT]": "0=8192M", "env[CUDA_MPS_ACTIVE_THREAD_PERCENTAGE]": "25", mem: "-",
		}},
		"shared without provider": {gpus: []protocol.DeviceAllocation{half(0, "GPU-a")}, cache: asks(map[string]int64{"app": 50}), want: want{visible: "GPU-a", mem: "-", sm: "-"}},
		"device not on the node":  {gpus: []protocol.DeviceAllocation{whole(7, "")}, cache: asks(map[string]int64{"app": 100}), want: want{visible: "7", "device[/dev/nvidiactl]": "-"}, problem: "no GPU with minor 7"},
		"limits forbid":           {gpus: []protocol.DeviceAllocation{whole(1, "GPU-b")}, change: func(v *node.View) { v.Limits.Devices = false }, want: want{visible: "-"}, problem: "switched off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := gpuView(), pt.Pod(protocol.QoSNone)
			if tc.cdi {
				v.Kernel.CDI = map[string]struct{}{"nvidia.com/gpu=GPU-b": {}}
			}
			if tc.change != nil {
				tc.change(v)
			}
			if tc.cache != nil {
				pt.Cache(v, p, tc.cache)
			}
			p.Ask.Devices = map[string][]protocol.DeviceAllocation{"gpu": tc.gpus}
			p.Ask.GPUIsolationProvider = tc.provider
			c := pt.Container(p)
			c.EnvNames, c.CDIDevices = tc.env, tc.has
			if tc.who != "" {
				c.Name = tc.who
			}
			pl, problems := container.Decide(v, p, c)
			pt.Want(t, pl, tc.want, tc.provider == "" && tc.problem == "" && len(tc.want) != 3 || len(tc.want) == 0)
			checkProblem(t, problems, tc.problem)
		})
	}
}

func checkProblem(t *testing.T, problems []protocol.Problem, want string) {
	t.Helper()
	text := ""
	for _, p := range problems {
		text += p.String() + "\n"
	}
	if want == "" && text != "" || !strings.Contains(text, want) {
		t.Errorf("problems %q, want %q", text, want)
	}
}

func TestRDMA(t *testing.T) {
	t.Parallel()
	vf := func(bus string) protocol.DeviceAllocation {
		return protocol.DeviceAllocation{VFs: []protocol.VirtualFunction{{BusID: bus}}}
	}
	const cm, uverbs0, uverbs1 = "device[/dev/infiniband/rdma_cm]", "device[/dev/infiniband/uverbs0]", "device[/dev/infiniband/uverbs1]"
	spec := func(n int64) map[string]node.ContainerSpec {
		return map[string]node.ContainerSpec{"app": {Devices: map[string]int64{protocol.ResourceRDMA: n}}, "web": {Devices: map[string]int64{protocol.ResourceRDMA: 100 - n}}}
	}
	for name, tc := range map[string]struct {
		a       protocol.DeviceAllocation
		cache   map[string]node.ContainerSpec
		want    want
		problem string
	}{
		"function by address": {a: vf("0000:3B:00.1"), cache: spec(100), want: want{cm: "c 10:58 rwm", uverbs1: "c 231:193 rwm"}},
		"card by minor":       {a: protocol.DeviceAllocation{Minor: 0}, cache: spec(100), want: want{cm: "c 10:58 rwm", uverbs0: "c 231:192 rwm"}},
		"card by address":     {a: protocol.DeviceAllocation{Minor: 9, ID: "0000:3b:00.0"}, cache: spec(100), want: want{cm: "c 10:58 rwm", uverbs0: "c 231:192 rwm"}},
		"did not ask":         {a: vf("0000:3b:00.1"), cache: spec(0), want: want{}},
		"not on the node":     {a: vf("0000:00:00.0"), cache: spec(100), want: want{}, problem: "no RDMA device at 0000:00:00.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := gpuView(), pt.Pod(protocol.QoSNone)
			pt.Cache(v, p, tc.cache)
			p.Ask.Devices = map[string][]protocol.DeviceAllocation{"rdma": {tc.a}}
			pl, problems := container.Decide(v, p, pt.Container(p))
			pt.Want(t, pl, tc.want, true)
			checkProblem(t, problems, tc.problem)
		})
	}
}

// The parts of the containers of one pod never add up to more than the pod's allocation.
func TestGPUPartsAddUp(t *testing.T) {
	t.Parallel()
	v, p := gpuView(), pt.Pod(protocol.QoSNone)
	pt.Cache(v, p, asks(map[string]int64{"a": 7, "b": 13, "c": 31, "d": 1}))
	p.Ask.Devices = map[string][]protocol.DeviceAllocation{"gpu": {half(0, "GPU-a")}}
	p.Ask.GPUIsolationProvider = "HAMi-core"
	var sum int64
	for _, name := range []string{"a", "b", "c", "d", "sidecar"} {
		pl, _ := container.Decide(v, p, &workload.Container{Name: name})
		n, _ := parse(pt.Set(pl)["env[CUDA_DEVICE_MEMORY_LIMIT]"])
		sum += n
	}
	if sum > 16*pt.GiB || sum < 16*pt.GiB-8 {
		t.Errorf("parts add up to %d, the pod has %d", sum, int64(16*pt.GiB))
	}
}
