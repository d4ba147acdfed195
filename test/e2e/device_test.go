// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/plan"
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
	both, byAnnotation := r.pod(asks), want(map[string]string{"read_bps_device": "1048576", "write_iops_device": "100", "read_iops_device": "200"}, "rbps=1048576 wbps=max riops=200 wiops=100")
	r.soon(3*time.Second, both, byAnnotation)
	class, byClass := r.pod(bePod("io-class")), want(map[string]string{"read_iops_device": "200"}, "rbps=max wbps=max riops=200 wiops=max")
	r.soon(3*time.Second, class, byClass)

	r.unlimited(both, number)
	r.soon(3*engine.DefaultDrift, both, byAnnotation)
	r.eventually(3*time.Second, func() error {
		if n := r.metric("koord_rt_nri_drift_total", `knob="`+plan.IOReadBPS.String()+`"`); n < 1 {
			return fmt.Errorf("%v drifts of %s are counted", n, plan.IOReadBPS)
		}
		return nil
	})

	shares := r.weightAndLatency(name, number)
	if r.driver == kubelet.Systemd {
		// No unit has a property of these: systemd must leave both the files and the controller alone.
		r.reload()
		r.standing(time.Second, func() error {
			return errors.Join(r.differs(both, byAnnotation), r.differs(class, byClass), shares())
		})
	}
	r.iocost(name, number)

	bad := bePod("io-unknown")
	bad.Annotations["koordinator.sh/blkioQOS"] = `{"blocks":[{"name":"/dev/nosuchdisk","type":"device","ioCfg":{"readBPS":1}}]}`
	r.now(r.pod(bad), []string{"main @oom=900"})
	r.named("io-unknown", "koordinator.sh/blkioQOS")
}

// unlimited takes a pod's limit of the bytes that it reads away by hand, while koord-nri stands still.
func (r *rig) unlimited(run *kubelet.Running, number string) {
	r.t.Helper()
	defer r.held()()
	dir, file, change, left := r.kube.PodDir(run, ""), "io.max", number+" rbps=max", "rbps=max"
	if !r.tree.V2() {
		dir, file, change, left = r.kube.ContainerDir(run, "main", "blkio"), "blkio.throttle.read_bps_device", number+" 0", ""
	}
	if err := cgroups.Write(dir, file, change); err != nil {
		r.t.Fatal(err)
	}
	if text, err := cgroups.Read(dir, file); err != nil || !strings.Contains(text, left) || left == "" && text != "" {
		r.t.Fatalf("%s is %q (%v) after %q was written by hand", file, text, err, change)
	}
}

// weightAndLatency asks for what only some kernels have: a knob that features does not name as missing must be read back
// from the pod, and one that cannot be read back must be named there with a reason. It returns the check of what stands.
func (r *rig) weightAndLatency(name, number string) (held func() error) {
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
	var checks []func() error
	for file, line := range map[string]string{"io.latency": number + " target=3000", "io.weight": number + " 60"} {
		if strings.Contains(detail, "no "+file) {
			if text, err := r.value(run, "pod "+file); err == nil {
				r.t.Errorf("features: %s; but the pod's cgroup has %s: %q", detail, file, text)
			}
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
			if err == nil {
				checks = append(checks, stands)
			}
			return err
		})
	}
	return func() error {
		var errs []error
		for _, c := range checks {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
}

// iocost switches on what makes weights act, where the kernel has it: from then on every kernel takes a weight, and features says
// nothing against it.
func (r *rig) iocost(name, number string) {
	r.t.Helper()
	qos := filepath.Join(r.tree.Unified, "io.cost.qos")
	if _, err := os.Stat(qos); err != nil {
		if !errors.Is(err, os.ErrNotExist) || emulated() && r.tree.V2() {
			r.t.Errorf("the kernels of the lab's VMs have iocost: %v", err)
		}
		return
	}
	turn := func(enable string) {
		r.t.Helper()
		if err := cgroups.Write(r.tree.Unified, "io.cost.qos", number+" enable="+enable); err != nil {
			r.t.Fatal(err)
		}
	}
	turn("1")
	defer turn("0")
	r.stop(syscall.SIGTERM)
	r.again() // it looks at the kernel when it starts
	for _, f := range r.status().Features {
		if f.Feature == protocol.FeatureBlkIO.String() && strings.Contains(f.Detail, "io.weight") {
			r.t.Errorf("%s has iocost on, features: %s", name, f.Detail)
		}
	}
	asks := bePod("io-weight")
	asks.Annotations["koordinator.sh/blkioQOS"] = `{"blocks":[{"name":"/dev/` + name + `","type":"device","ioCfg":{"ioWeightPercent":70}}]}`
	run := r.pod(asks)
	stands := func() error {
		text, err := r.value(run, "pod io.weight")
		if err == nil && !slices.Contains(strings.Split(text, "\n"), number+" 70") {
			err = fmt.Errorf("io.weight is %q, want the line %s 70", text, number)
		}
		return err
	}
	r.eventually(3*time.Second, stands)
	if r.driver == kubelet.Systemd {
		r.reload()
		r.standing(time.Second, stands)
	}
}

// refused reports a problem that koord-nri tells of a write to a pod's file which the kernel does not support.
func (r *rig) refused(pod, file string) bool {
	return slices.ContainsFunc(r.status().Problems, func(p status.Problem) bool {
		return p.Key == file && strings.HasSuffix(p.Where, "/"+pod) && strings.Contains(p.Reason, "operation not supported")
	})
}

// lifecycleCaps is what the node's caps (D13) make of annotations where this machine's disk and memory are in the figures; the
// scenarios caps* have the others.
func lifecycleCaps(r *rig) {
	name, number := r.disk()
	class := "resourceQOSStrategy:\n  beClass:\n    blkioQOS: {enable: true, blocks: [{name: /dev/" + name + ", type: device, ioCfg: {readIOPS: 200}}]}\n"
	greedy := func(name, disk string) kubelet.Pod {
		p := bePod(name)
		p.Annotations["koordinator.sh/blkioQOS"] = `{"blocks":[{"name":"/dev/` + disk + `","type":"device","ioCfg":{"readIOPS":5000,"writeIOPS":100}}]}`
		return p
	}
	limits := func(limits map[string]any) { r.up(class, map[string]any{"limits": limits}) }
	// Reads and writes a second, "" without a limit.
	want := func(reads, writes string) []string {
		if r.tree.V2() {
			return []string{"pod io.max=" + number + " rbps=max wbps=max riops=" + cmp.Or(reads, "max") + " wiops=" + cmp.Or(writes, "max")}
		}
		line := func(n string) string {
			if n == "" {
				return ""
			}
			return number + " " + n
		}
		return []string{"main blkio.throttle.read_iops_device=" + line(reads), "main blkio.throttle.write_iops_device=" + line(writes)}
	}

	limits(map[string]any{"memoryNodePercentMax": 1})
	r.soon(3*time.Second, r.pod(greedy("caps-class", name)), want("200", "100"))
	if r.tree.V2() {
		r.now(r.pod(keeper("caps-memory")), []string{"main memory.min=" + strconv.FormatInt(percentOfMemory(r), 10)})
	}
	r.stop(syscall.SIGTERM)

	limits(map[string]any{"beyondClass": true})
	r.soon(3*time.Second, r.pod(greedy("caps-beyond", name)), want("5000", "100"))
	r.stop(syscall.SIGTERM)

	limits(map[string]any{"blkIO": false})
	r.soon(3*time.Second, r.pod(greedy("caps-off", name)), want("200", ""))
	r.named("caps-off", "koordinator.sh/blkioQOS")
}

// keeper is a pod of 512 MiB that asks to keep all of it.
func keeper(name string) kubelet.Pod {
	res := map[string]kubelet.Quantity{"cpu": "200m", "memory": "512Mi"}
	return kubelet.Pod{
		Name: name, UID: uid(name), Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Annotations: map[string]string{"koordinator.sh/memoryQOS": `{"policy":"auto","minLimitPercent":100}`},
		Containers:  []kubelet.Container{{Name: "main", Resources: kubelet.Resources{Requests: res, Limits: res}}},
	}
}

// percentOfMemory is one percent of this machine's memory, in whole pages: the lab sets no limit on kubepods.
func percentOfMemory(r *rig) int64 {
	r.t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		r.t.Fatal(err)
	}
	var kib int64
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err != nil {
		r.t.Fatalf("read MemTotal: %v", err)
	}
	return kib * 1024 / 100 / 4096 * 4096
}
