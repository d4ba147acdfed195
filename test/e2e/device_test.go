// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// disk is this machine's first real disk and its number, else its first block device: the throttle is per device and
// does not care.
func (r *rig) disk() (name, number string) {
	r.t.Helper()
	dirs, err := filepath.Glob("/sys/block/*")
	if err != nil || len(dirs) == 0 {
		r.t.Fatalf("no block device in /sys/block: %v", err)
	}
	for _, d := range dirs {
		text, err := cgroups.Read(d, "dev")
		if err != nil {
			r.t.Fatal(err)
		}
		name, number = filepath.Base(d), text
		if _, err := os.Stat(filepath.Join(d, "device")); err == nil {
			return name, number
		}
	}
	return name, number
}

// lifecycleBlockIO limits a pod's traffic to this machine's disk by annotation, and by class, whose limits hold beside the
// annotation's.
func lifecycleBlockIO(r *rig) {
	name, number := r.disk()
	r.up("resourceQOSStrategy:\n  beClass:\n    blkioQOS: {enable: true, blocks: [{name: /dev/"+name+", type: device, ioCfg: {readIOPS: 200}}]}\n", nil)
	asks := bePod("io-annotation")
	asks.Annotations["koordinator.sh/blkioQOS"] = `{"blocks":[{"name":"/dev/` + name + `","type":"device","ioCfg":{"readBPS":1048576,"writeIOPS":100}}]}`
	want := func(v1 map[string]string, v2 string) []string {
		if r.tree.V2() {
			return []string{"pod io.max=" + number + " " + v2}
		}
		var out []string
		for file, n := range v1 {
			out = append(out, "main blkio.throttle."+file+"="+number+" "+n)
		}
		return out
	}
	r.soon(3*time.Second, r.pod(asks), want(map[string]string{"read_bps_device": "1048576", "write_iops_device": "100", "read_iops_device": "200"}, "rbps=1048576 wbps=max riops=200 wiops=100"))
	class := r.pod(bePod("io-class"))
	r.soon(3*time.Second, class, want(map[string]string{"read_iops_device": "200"}, "rbps=max wbps=max riops=200 wiops=max"))

	r.weightAndLatency(name, number)

	bad := bePod("io-unknown")
	bad.Annotations["koordinator.sh/blkioQOS"] = `{"blocks":[{"name":"/dev/nosuchdisk","type":"device","ioCfg":{"readBPS":1}}]}`
	r.now(r.pod(bad), []string{"main @oom=900"})
	r.named("io-unknown", "koordinator.sh/blkioQOS")
}

// weightAndLatency asks for what only some kernels have: a knob that features does not name as missing must be read back
// from the pod, and one that cannot be read back must be named there with a reason.
func (r *rig) weightAndLatency(name, number string) {
	r.t.Helper()
	asks := bePod("io-shares")
	asks.Annotations["koordinator.sh/blkioQOS"] = `{"blocks":[{"name":"/dev/` + name + `","type":"device","ioCfg":{"readLatency":3000,"ioWeightPercent":60}}]}`
	run := r.pod(asks)
	detail := ""
	for _, f := range r.status().Features {
		if f.Feature == protocol.FeatureBlkIO.String() {
			detail = f.Detail
		}
	}
	for file, line := range map[string]string{"io.latency": number + " target=3000", "io.weight": number + " 60"} {
		if strings.Contains(detail, "no "+file) {
			r.t.Logf("%s: features: %s", file, detail)
			continue
		}
		stands := func() error {
			text, err := r.value(run, "pod "+file)
			if err == nil && !slices.Contains(strings.Split(text, "\n"), line) {
				err = fmt.Errorf("want line %q, the kernel has %q; features say nothing of it: %q", line, text, detail)
			}
			return err
		}
		// Named as without effect here: older kernels keep the value all the same, 7.2 refuses it without iocost. A refusal
		// must be told of this pod.
		named := strings.Contains(detail, file+": ")
		r.eventually(3*time.Second, func() error {
			err := stands()
			if err != nil && named && r.refused("io-shares", file) {
				r.t.Logf("%s: features: %s", file, detail)
				return nil
			}
			return err
		})
	}
}

// refused reports a problem that koord-nri tells of a write to a pod's file which the kernel does not support.
func (r *rig) refused(pod, file string) bool {
	return slices.ContainsFunc(r.status().Problems, func(p status.Problem) bool {
		return p.Key == file && strings.HasSuffix(p.Where, "/"+pod) && strings.Contains(p.Reason, "operation not supported")
	})
}

// lifecycleCDI gives a container the device that the scheduler allocated, by a CDI specification that stands for the
// vendor's: its edits are a variable and a harmless character device under a GPU's name. There is no GPU here; what is
// shown is the way from the annotation to the container.
func lifecycleCDI(r *rig) {
	spec := `{"cdiVersion":"0.6.0","kind":"nvidia.com/gpu","devices":[
		{"name":"GPU-lab-0","containerEdits":{"env":["LAB_GPU=zero"],"deviceNodes":[{"path":"/dev/nvidia0","hostPath":"/dev/null","type":"c","major":1,"minor":3}]}},
		{"name":"GPU-lab-1","containerEdits":{"env":["LAB_GPU=one"],"deviceNodes":[{"path":"/dev/nvidia1","hostPath":"/dev/zero","type":"c","major":1,"minor":5}]}}]}`
	file := filepath.Join(r.host.CDI, "nvidia.json")
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := os.Remove(file); err != nil {
			r.t.Error(err)
		}
	})
	r.up(standard, nil)
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
	// A name that is not in the registry would make the runtime fail the container: it gets no CDI device, and starts.
	lost := gpu("cdi-lost", `{"gpu":[{"minor":7,"id":"GPU-gone",`+whole+`}]}`)
	r.soon(2*time.Second, lost, []string{"main @env LAB_GPU=", "main @env NVIDIA_VISIBLE_DEVICES=GPU-gone"})
	r.named("cdi-lost", "scheduling.koordinator.sh/device-allocated")
	r.now(r.pod(lsPod("cdi-none")), []string{"main @env LAB_GPU=", "main @env NVIDIA_VISIBLE_DEVICES="})
	out, err := r.ctl("explain", "default/cdi-one/main")
	if err != nil || !strings.Contains(out, "nvidia.com/gpu=GPU-lab-1") {
		r.t.Errorf("explain does not name the CDI device: %v\n%s", err, fmt.Sprint(out))
	}
	if strings.Contains(out, "LAB_GPU") {
		r.t.Error("explain shows a variable that is not ours")
	}
}
