// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// foreignHandlers are runtime handlers that are named as sandboxed runtimes' are, and are runc: should the plugin touch their
// containers all the same, the kernel shows it.
var foreignHandlers = []string{"kata-lab", "gvisor", "runsc-lab"}

// present are the needs of scenarios that this machine has. Core scheduling may be missing only where the kernel's own
// configuration or the lack of SMT says so.
func present(t *testing.T) []string {
	t.Helper()
	var has []string
	if data, err := os.ReadFile(resctrl + "/schemata"); err == nil && strings.Contains(string(data), "L3:") {
		has = append(has, scenario.NeedResctrl)
	} else if emulated() {
		t.Errorf("the lab's VM has resctrl, this one not: %v", err)
	}
	_, err := cookie(os.Getpid())
	if err == nil {
		return append(has, scenario.NeedCookies)
	}
	why, proven := noCookies(err)
	if !proven {
		t.Errorf("core scheduling: %v, and this machine does not say why: %s", err, why)
	}
	t.Logf("core scheduling is not on this machine: %v: %s", err, why)
	return has
}

// TestHostCoreSched and TestGuestCoreSched answer whether core scheduling was shown here: it is skipped only with proof.
func TestHostCoreSched(t *testing.T)  { coreSched(t) }
func TestGuestCoreSched(t *testing.T) { coreSched(t) }

func coreSched(t *testing.T) {
	if _, err := cookie(os.Getpid()); err != nil {
		why, proven := noCookies(err)
		if !proven {
			t.Fatalf("core scheduling: %v, and this machine does not say why: %s", err, why)
		}
		t.Skipf("this kernel cannot: %v: %s", err, why)
	}
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name != "core-sched" {
			continue
		}
		r := newRig(t, rigOptions{memory: paperMemory})
		r.startWith(&s)
		r.settle(&s, r.create(s.Pods), s.Want[r.version])
		return
	}
	t.Error("there is no scenario core-sched")
}

// hostProves is what a guest says that has no copy of its kernel's configuration: proveNoCookies then looks at the one that
// came with the kernel.
const hostProves = "whether CONFIG_SCHED_CORE is off is for the VM's host to prove"

// proveNoCookies fails when a guest went without core scheduling on a kernel that was built with it.
func proveNoCookies(t *testing.T, out, config string) {
	t.Helper()
	if !strings.Contains(out, hostProves) {
		return
	}
	data, err := os.ReadFile(config)
	if err != nil {
		t.Errorf("read the guest kernel's configuration: %v", err)
		return
	}
	line := kerneltest.ConfigLine(string(data), "CONFIG_SCHED_CORE")
	if line != "# CONFIG_SCHED_CORE is not set" {
		t.Errorf("the guest had no core scheduling, but its kernel is built with %q", line)
	}
	t.Logf("core scheduling is not in this kernel: %s", line)
}

// noCookies explains why prctl(PR_SCHED_CORE) fails: EINVAL needs a kernel without CONFIG_SCHED_CORE, ENODEV a machine
// without SMT.
func noCookies(err error) (why string, proven bool) {
	switch {
	case errors.Is(err, unix.ENODEV):
		active, rerr := os.ReadFile("/sys/devices/system/cpu/smt/active")
		why = fmt.Sprintf("smt/active is %q (%v)", strings.TrimSpace(string(active)), rerr)
		return why, rerr == nil && strings.TrimSpace(string(active)) == "0"
	case errors.Is(err, unix.EINVAL) && emulated():
		return hostProves, true
	case errors.Is(err, unix.EINVAL):
		text, cerr := kerneltest.KernelConfig()
		line := kerneltest.ConfigLine(text, "CONFIG_SCHED_CORE")
		return fmt.Sprintf("kernel configuration: %q (%v)", line, cerr), line == "# CONFIG_SCHED_CORE is not set"
	}
	return "an errno that prctl(2) does not name", false
}

// cookie of a process's main thread, asked of the kernel directly.
func cookie(pid int) (uint64, error) {
	var value uint64
	_, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(pid),
		unix.PR_SCHED_CORE_SCOPE_THREAD, uintptr(unsafe.Pointer(&value)), 0)
	if errno != 0 {
		return 0, errno
	}
	return value, nil
}

// readOf is read, and the attributes that only compare containers of a scenario.
func (r *rig) readOf(s *scenario.Scenario, pods map[string]*kubelet.Running, w scenario.Want) (string, error) {
	if w.File != "@cookie" {
		return r.read(pods, w)
	}
	return s.Holder(w, func(pod, container string) (uint64, error) {
		pid, err := r.pid(pods[pod], container)
		if err != nil {
			return 0, err
		}
		return cookie(pid)
	})
}

// prepare plays the node agent and makes the device nodes, where the scenario has them.
func (r *rig) prepare(s *scenario.Scenario) {
	r.t.Helper()
	r.makeDevices(s.Devices)
	r.makeVerbs(s.Devices)
	if !s.Dynamic.Known && s.Cache == nil {
		return
	}
	w, err := handoff.NewWriter(r.run, r.state)
	if err != nil {
		r.t.Fatal(err)
	}
	if s.Dynamic.Known {
		d := s.Dynamic
		d.Expires = time.Now().Add(time.Hour)
		if err := w.Dynamic(1, d, time.Now()); err != nil {
			r.t.Fatal(err)
		}
	}
	if s.Cache != nil {
		if err := w.Pods(1, s.Cache, time.Now()); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) makeDevices(devices []scenario.Device) {
	r.t.Helper()
	if len(devices) == 0 {
		return
	}
	r.dev = filepath.Join(filepath.Dir(r.config), "dev")
	if err := os.MkdirAll(r.dev, 0o700); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range devices {
		path := filepath.Join(r.dev, filepath.Base(d.Path))
		if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(d.Major, d.Minor))); err != nil {
			r.t.Fatalf("make device node %s: %v", path, err)
		}
	}
}

// makeVerbs stands for a machine with RDMA devices: a tree of links to this machine's sysfs, but for the class of verbs devices, and
// rdma_cm among the miscellaneous ones, as the kernel would have them. Debian's cloud kernels have no software RDMA (rdma_rxe).
func (r *rig) makeVerbs(devices []scenario.Device) {
	r.t.Helper()
	if !slices.ContainsFunc(devices, func(d scenario.Device) bool { return d.Type == protocol.DeviceRDMA }) {
		return
	}
	r.sys = filepath.Join(filepath.Dir(r.config), "sys")
	err := errors.Join(linkAll("/sys", r.sys, "class"), linkAll("/sys/class", r.sys+"/class", "infiniband_verbs", "misc"),
		linkAll("/sys/class/misc", r.sys+"/class/misc", "rdma_cm"))
	for _, d := range devices {
		if d.Type != protocol.DeviceRDMA {
			continue
		}
		dir := filepath.Join(r.sys, "class/infiniband_verbs", filepath.Base(d.Path))
		if d.Control {
			dir = filepath.Join(r.sys, "class/misc", filepath.Base(d.Path))
		}
		err = errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/dev", fmt.Appendf(nil, "%d:%d\n", d.Major, d.Minor), 0o600))
		if !d.Control {
			err = errors.Join(err, os.WriteFile(dir+"/ibdev", []byte(d.UUID+"\n"), 0o600), os.Symlink("../../../"+d.BusID, dir+"/device"))
		}
	}
	if err != nil {
		r.t.Fatalf("make a sysfs with RDMA devices: %v", err)
	}
}

// linkAll makes a directory with links to everything in another one, but for some names.
func linkAll(from, to string, without ...string) error {
	entries, err := os.ReadDir(from)
	err = errors.Join(err, os.MkdirAll(to, 0o700))
	for _, e := range entries {
		if !slices.Contains(without, e.Name()) {
			err = errors.Join(err, os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
		}
	}
	return err
}

// orderKnob depends on who was there at creation, but for containers with CPUs of their own, which have ownKnob as well; heldKnob may stand
// in the request already: the annotation need not name them.
const orderKnob, ownKnob, heldKnob = "cpuset.cpus", "cpuset.mems", "memory.oom.group"

// annotated compares the applied annotation in every container's runtime spec with the wanted plan: what was rewritten
// says so, with what and by which generation; nothing is on a container that was left alone.
func (r *rig) annotated(s *scenario.Scenario, pods map[string]*kubelet.Running, under map[string]generations) {
	r.t.Helper()
	plan := s.Applied(r.version)
	for _, p := range s.Pods {
		namespace := p.Namespace
		if namespace == "" {
			namespace = "default"
		}
		for _, c := range p.Containers {
			name := namespace + "/" + p.Name + "/" + c.Name
			text, err := r.annotation(pods[p.Name], c.Name)
			if err != nil {
				r.t.Errorf("%s: %v", name, err)
				continue
			}
			r.compareApplied(name, text, plan[name], under[p.Name], p.QuotaPeriod)
		}
	}
}

// stepped rounds "333334 owner" up to systemd's step, as the policy does where the cgroups are its units: the plans of the
// scenarios are for cgroupfs. The step is a hundredth of the kubelet's period, 0 for 100 ms.
func stepped(value string, period int64) string {
	number, owner, _ := strings.Cut(value, " ")
	n, err := strconv.Atoi(number)
	if err != nil || n <= 0 {
		return value
	}
	step := int(cmp.Or(period, int64(unit.CFSPeriod)) / 100)
	return strconv.Itoa((n+step-1)/step*step) + " " + owner
}

func (r *rig) compareApplied(name, text string, want map[string]string, under generations, period int64) {
	r.t.Helper()
	if len(want) == 0 {
		if text != "" {
			r.t.Errorf("%s is left alone by the plan, but carries %s", name, text)
		}
		return
	}
	if _, late := want[orderKnob]; late && text == "" && len(want) == 1 {
		return // it made room for a later one
	}
	if text == "" && r.unmarked(path.Dir(name)) { // the container's pod
		return
	}
	got, err := protocol.ParseApplied(text)
	if err != nil || !strings.HasPrefix(got.By, "koord-nri/") {
		r.t.Errorf("%s: annotation %q is not ours: %+v (%v)", name, text, got, err)
		return
	}
	if got.Generation < max(under.first, 1) || got.Generation > under.last {
		r.t.Errorf("%s: annotation says generation %d, the View had %d to %d while the pod came", name, got.Generation, under.first, under.last)
	}
	_, owns := want[ownKnob]
	for knob, value := range want {
		have, ok := got.Set[knob]
		if r.driver == kubelet.Systemd && (knob == "cpu.quota" || knob == "cpu.burst") {
			value = stepped(value, period)
		}
		if have != value && (knob != orderKnob || owns) && (ok || knob != heldKnob) {
			r.t.Errorf("%s: annotation has %s = %q, the plan %q", name, knob, have, value)
		}
	}
	for knob, value := range got.Set {
		if _, ok := want[knob]; !ok {
			r.t.Errorf("%s: annotation has %s = %q, the plan nothing", name, knob, value)
		}
	}
}

// annotation is the applied annotation in the runtime spec of a container, "" without one.
func (r *rig) annotation(run *kubelet.Running, container string) (string, error) {
	_, info, err := r.host.CRI().ContainerStatus(r.t.Context(), run.Containers[container])
	if err != nil {
		return "", err
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(info.RuntimeSpec, &spec); err != nil {
		return "", fmt.Errorf("read runtime spec of %s: %w", container, err)
	}
	return spec.Annotations[protocol.AnnotationApplied], nil
}

// noPodGroups waits until no resctrl group of a pod is left: there are only a few CLOSIDs.
func (r *rig) noPodGroups() {
	r.t.Helper()
	r.eventually(5*time.Second, func() error {
		left, err := filepath.Glob(resctrl + "/koordlet-*")
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left behind: %v", left)
		}
		return err
	})
}
