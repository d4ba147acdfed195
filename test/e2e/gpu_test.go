// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// lifecycleHAMi has HAMi-core's library on the node: the container that shares a card finds it preloaded, mounted read-only from the
// node, with the lock directory beside it; a whole card comes without.
func lifecycleHAMi(r *rig) {
	hamiCore(r, r.up)
	r.problemOf("default/hami-gone/main", "libvgpu.so has gone since the node was probed")
}

func hamiCore(r *rig, up func(spec string, more map[string]any)) {
	const content = "no ELF file: nobody loads it\n"
	lib := filepath.Join(r.host.Dir, "libvgpu.so")
	if err := os.WriteFile(lib, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
	const lock = "/tmp/vgpulock"
	switch err := os.Mkdir(lock, 0o777); {
	case err == nil:
		r.t.Cleanup(func() {
			if err := os.RemoveAll(lock); err != nil {
				r.t.Error(err)
			}
		})
	case !errors.Is(err, os.ErrExist):
		r.t.Fatal(err)
	}
	r.makeDevices([]scenario.Device{{Path: "/dev/nvidia0", Major: 195}})
	paths := r.base()["host"].(map[string]any)
	paths["hamiLibrary"] = lib
	up(standard, map[string]any{"host": paths})
	gpu := func(name, share string) *kubelet.Running {
		p := lsPod(name)
		p.Labels["koordinator.sh/gpu-isolation-provider"] = "HAMi-core"
		p.Annotations = map[string]string{"scheduling.koordinator.sh/device-allocated": `{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"` + share +
			`","koordinator.sh/gpu-memory-ratio":"` + share + `","koordinator.sh/gpu-memory":"8Gi"}}]}`}
		return r.pod(p)
	}
	shared, whole := gpu("hami-half", "50"), gpu("hami-whole", "100")
	r.soon(2*time.Second, shared, []string{
		"main @env LD_PRELOAD=" + lib, "main @env CUDA_DEVICE_MEMORY_LIMIT=8589934592", "main @env CUDA_DEVICE_SM_LIMIT=50",
		"main @device /dev/nvidia0=c 195:0", "main @access 195:0=allowed",
	})
	r.soon(2*time.Second, whole, []string{"main @env LD_PRELOAD=", "main @device /dev/nvidia0=c 195:0"})
	for _, c := range []struct {
		run       *kubelet.Running
		path, has string
	}{{shared, lib, "ro"}, {shared, lock, "rw"}, {whole, lib, ""}, {whole, lock, ""}} {
		if got := r.mount(c.run, c.path); got != c.has {
			r.t.Errorf("%s has %s mounted %q, want %q", c.run.Pod.Name, c.path, got, c.has)
		}
	}
	got, err := r.host.CRI().ExecSync(r.t.Context(), shared.Containers["main"], "sh", "-c", "cat "+lib+" && echo x >"+lock+"/mark && ! echo x >"+lib)
	if err != nil || got.Code != 0 || got.Stdout != content {
		r.t.Errorf("the container reads and writes its mounts: %+v, %v", got, err)
	}
	if _, err := os.Stat(lock + "/mark"); err != nil {
		r.t.Errorf("the lock directory is not the node's: %v", err)
	}
	// Without its library, of which the node's last probe knows nothing yet, runc could not make the mount: the container starts without HAMi-core.
	if err := os.Remove(lib); err != nil {
		r.t.Fatal(err)
	}
	gone := gpu("hami-gone", "50")
	r.soon(2*time.Second, gone, []string{
		"main @env LD_PRELOAD=", "main @env CUDA_DEVICE_SM_LIMIT=50", "main @device /dev/nvidia0=c 195:0", "main @access 195:0=allowed",
	})
	for _, path := range []string{lib, lock} {
		if got := r.mount(gone, path); got != "" {
			r.t.Errorf("hami-gone has %s mounted %q", path, got)
		}
	}
}

// problemOf waits for a problem of a container with this in its reason.
func (r *rig) problemOf(container, reason string) {
	r.t.Helper()
	r.eventually(5*time.Second, func() error {
		for _, p := range r.status().Problems {
			if p.Where == container && strings.Contains(p.Reason, reason) {
				return nil
			}
		}
		return fmt.Errorf("no problem of %s says %q", container, reason)
	})
}

// mount is "ro" or "rw" as a container's process sees the mount at a path, "" without one.
func (r *rig) mount(run *kubelet.Running, path string) string {
	r.t.Helper()
	pid, err := r.pid(run, "main")
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		// proc_pid_mountinfo(5): ID, parent, device, root, mount point, options.
		if f := strings.Fields(line); len(f) > 5 && f[4] == path {
			mode, _, _ := strings.Cut(f[5], ",")
			return mode
		}
	}
	return ""
}

// registry puts a vendor's specification into the runtime's CDI registry until the test ends, and returns its file.
func registry(r *rig, spec string) (file string) {
	r.t.Helper()
	file = filepath.Join(r.host.CDI, "nvidia.json")
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.t.Error(err)
		}
	})
	return file
}

// lifecycleCDI gives a container the device that the scheduler allocated, by a CDI specification that stands for the
// vendor's: its edits are a variable and a harmless character device under a GPU's name. There is no GPU here; what is
// shown is the way from the annotation to the container.
func lifecycleCDI(r *rig) {
	cdiDevices(r, r.up)
	r.named("cdi-lost", "scheduling.koordinator.sh/device-allocated")
	r.named("cdi-gone", "scheduling.koordinator.sh/device-allocated")
	r.problemOf("default/cdi-gone/main", "nvidia.com/gpu=GPU-lab-7 has left the registry")
}

func cdiDevices(r *rig, up func(spec string, more map[string]any)) {
	spec := `{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[
		{"name":"GPU-lab-0","containerEdits":{"env":["LAB_GPU=zero"],"deviceNodes":[{"path":"/dev/nvidia0","hostPath":"/dev/null","type":"c","major":1,"minor":3}]}},
		{"name":"GPU-lab-1","containerEdits":{"env":["LAB_GPU=one"],"deviceNodes":[{"path":"/dev/nvidia1","hostPath":"/dev/zero","type":"c","major":1,"minor":5}]}},
		{"name":"GPU-lab-7","containerEdits":{"env":["LAB_GPU=seven"]}}]}`
	file := registry(r, spec)
	// A card that is there, and that the registry does not have by the name of GPU-gone, and later by none.
	r.makeDevices([]scenario.Device{{Path: "/dev/nvidia7", Major: 195, Minor: 7}})
	up(standard, nil)
	gpu := func(name, allocated string) *kubelet.Running {
		p := lsPod(name)
		p.Annotations = map[string]string{"scheduling.koordinator.sh/device-allocated": allocated}
		return r.pod(p)
	}
	const whole = `"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}`
	// The environment is the new program's only after its exec, a moment after the start has been answered.
	r.soon(2*time.Second, gpu("cdi-one", `{"gpu":[{"minor":1,"id":"GPU-lab-1",`+whole+`}]}`), []string{
		"main @env LAB_GPU=one", "main @env NVIDIA_VISIBLE_DEVICES=void", "main @device /dev/nvidia1=c 1:5",
	})
	run := gpu("cdi-other", `{"gpu":[{"minor":0,"id":"GPU-lab-0",`+whole+`}]}`)
	r.soon(2*time.Second, run, []string{"main @env LAB_GPU=zero", "main @device /dev/nvidia0=c 1:3"})
	if got, err := r.value(run, "main @device /dev/nvidia1"); err != nil || got != "none" {
		r.t.Errorf("the container has the other GPU's device too: %s (%v)", got, err)
	}
	// A name that is not in the registry would make the runtime fail the container: it gets the node instead, and starts.
	lost := gpu("cdi-lost", `{"gpu":[{"minor":7,"id":"GPU-gone",`+whole+`}]}`)
	r.soon(2*time.Second, lost, []string{
		"main @env LAB_GPU=", "main @env NVIDIA_VISIBLE_DEVICES=GPU-gone", "main @device /dev/nvidia7=c 195:7", "main @access 195:7=allowed",
	})
	r.now(r.pod(lsPod("cdi-none")), []string{"main @env LAB_GPU=", "main @env NVIDIA_VISIBLE_DEVICES="})
	out, err := r.ctl("explain", "default/cdi-one/main")
	if err != nil || !strings.Contains(out, "nvidia.com/gpu=GPU-lab-1") {
		r.t.Errorf("explain does not name the CDI device: %v\n%s", err, fmt.Sprint(out))
	}
	if strings.Contains(out, "LAB_GPU") {
		r.t.Error("explain shows a variable that is not ours")
	}
	// So does one that leaves the registry while the node's last probe still has it.
	if err := os.Remove(file); err != nil {
		r.t.Fatal(err)
	}
	r.soon(2*time.Second, gpu("cdi-gone", `{"gpu":[{"minor":7,"id":"GPU-lab-7",`+whole+`}]}`), []string{
		"main @env LAB_GPU=", "main @env NVIDIA_VISIBLE_DEVICES=GPU-lab-7", "main @device /dev/nvidia7=c 195:7", "main @access 195:7=allowed",
	})
}
