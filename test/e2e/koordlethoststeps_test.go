// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// app makes the cgroup of a program outside of Kubernetes; it goes with the rig. The first directory is the CPU controller's.
func (h *alone) app(name string) (dirs []string) {
	h.t.Helper()
	mounts := []string{h.tree.Unified}
	if !h.tree.V2() {
		mounts = []string{h.tree.Controllers["cpu"], h.tree.Controllers["cpuacct"], h.tree.Controllers["memory"]}
	}
	for _, m := range mounts {
		dir := filepath.Join(m, h.root(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			h.t.Fatal(err)
		}
		if len(dirs) == 0 || dir != dirs[len(dirs)-1] {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// appsTakePart: half of the CPUs are busy with a program outside of Kubernetes. Declared as best effort it is idle among its
// neighbours and shares what the tier has; not declared it counts as the system's and the tier yields by as much. One that is
// declared LS keeps what it has. At 100 % there is room for whatever else the machine does.
func appsTakePart(h *alone) {
	node := 1000 * runtime.NumCPU()
	batch, web := h.app("app-batch"), h.app("app-web")
	stop := h.spinIn(batch, runtime.NumCPU()/2)
	base := everywhere + strings.Replace(suppressing("cfsQuota"), ": 65", ": 100", 1)
	declared := base + fmt.Sprintf(`
hostApplications:
- {name: batch, qos: BE, priority: koord-batch, cgroupPath: {relativePath: %[1]s/app-batch}}
- {name: web, qos: LS, cgroupPath: {base: CgroupRoot, parentDir: %[1]s, relativePath: app-web}}
`, strings.TrimPrefix(h.root(), "/"))
	h.a.strategy(declared)
	idle := func(dir, want string) {
		h.t.Helper()
		h.eventually(20*time.Second, func() error {
			got, err := cgroups.Read(dir, "cpu.idle")
			if err == nil && got != want {
				err = fmt.Errorf("cpu.idle of %s is %s, want %s", dir, got, want)
			}
			return err
		})
	}
	idle(batch[0], "1")
	idle(web[0], "0")
	var used float64
	h.eventually(20*time.Second, func() error {
		used = h.a.figure("koordlet_host_application_resource_usage", `host_application_name="batch"`, `resource="cpu"`, `qos="BE"`)
		if used < float64(runtime.NumCPU())/8 {
			return fmt.Errorf("the application uses %.2f CPUs by the metric", used)
		}
		return nil
	})
	h.a.strategy(base)
	idle(batch[0], "0")
	h.a.ticks(3, quietly)
	no := h.within(20*time.Second, "quota of the tier beside a program that nobody knows", 20, node, h.tier)
	h.a.strategy(declared)
	yes := h.within(40*time.Second, "quota of the tier beside a best-effort application", no+int(used*500), node, h.tier)
	h.t.Logf("an application uses %.2f CPUs: quota of the tier %d where it is declared BE, %d where it is not declared", used, yes, no)
	stop()
	h.a.strategy(everywhere)
	h.within(30*time.Second, "quota of the tier without suppression", -1, -1, h.tier)
	idle(batch[0], "0")
}

// vmFiles are the kernel parameters that systemStrategy sets.
var vmFiles = [...]string{"/proc/sys/vm/min_free_kbytes", "/proc/sys/vm/watermark_scale_factor"}

// keepParameters notes them, and puts them back should the test fail before koordlet does.
func (h *alone) keepParameters() {
	h.t.Helper()
	for _, path := range vmFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			h.t.Fatal(err)
		}
		h.parameters[path] = string(text)
	}
	h.t.Cleanup(func() {
		for path, text := range h.parameters {
			if now, err := os.ReadFile(path); err == nil && string(now) == text {
				continue
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				h.t.Error(err)
			}
		}
	})
}

// parametersAre waits for these values, in the order of vmFiles.
func (h *alone) parametersAre(want ...int) {
	h.t.Helper()
	for i, path := range vmFiles {
		h.eventually(20*time.Second, func() error {
			text, err := os.ReadFile(path)
			if got := strings.TrimSpace(string(text)); err == nil && got != strconv.Itoa(want[i]) {
				err = fmt.Errorf("%s is %s, want %d", path, got, want[i])
			}
			return err
		})
	}
}

// parametersAreLent moves both by the smallest step that the strategy knows: a hundredth of a percent of the memory.
func parametersAreLent(h *alone) {
	was := make([]int, len(vmFiles))
	for i, path := range vmFiles {
		n, err := strconv.Atoi(strings.TrimSpace(h.parameters[path]))
		if err != nil {
			h.t.Fatal(err)
		}
		was[i] = n
	}
	total := h.memTotal() / 1024
	factor := was[0]*10000/total + 1
	ours := []int{total * factor / 10000, was[1] + 1}
	strategy := everywhere + fmt.Sprintf("systemStrategy: {minFreeKbytesFactor: %d, watermarkScaleFactor: %d}\n", factor, ours[1])
	h.a.strategy(strategy)
	h.parametersAre(ours...)
	h.a.strategy(everywhere)
	h.parametersAre(was...)
	h.a.strategy(strategy)
	h.parametersAre(ours...)
	h.t.Logf("min_free_kbytes %d → %d, watermark_scale_factor %d → %d", was[0], ours[0], was[1], ours[1])
}

// diskFull fills the run directory. What cannot be recorded is not written, also by the next life, and nothing else stops: not even a start.
// With room again everything is in force.
func diskFull(h *alone) {
	h.a.strategy("resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: -1}}}\n")
	h.burstOf(30*time.Second, "0")
	ballast := h.fill()
	h.a.strategy(everywhere)
	h.eventually(30*time.Second, func() error {
		if !strings.Contains(h.a.log.String(), "no space left on device") {
			return fmt.Errorf("koordlet does not say that its disk is full")
		}
		return nil
	})
	h.a.lives()
	h.a.ticks(5, quietly) // it looks for a new configuration every other second
	h.unwritten("before it was killed")
	h.a.end(syscall.SIGKILL)
	h.a.launch()
	h.eventually(30*time.Second, func() error {
		h.a.lives()
		_, err := h.a.figures()
		return err
	})
	h.a.ticks(5, quietly)
	h.a.lives()
	h.unwritten("after it was started again")
	if err := os.Remove(ballast); err != nil {
		h.t.Fatal(err)
	}
	h.settled()
	h.a.connected()
}

// unwritten: bursts that are wanted are still 0, but for those of a few containers, whose records may have fitted into what was left of the ledger's
// last page: that is less than 4096 bytes, and a record, which has id, cgroup and file of its container, more than 300.
func (h *alone) unwritten(when string) {
	h.t.Helper()
	all, written := 0, 0
	for _, run := range h.ls {
		for name := range run.Containers {
			burst, err := h.value(run, name+" "+h.burstFile())
			if err != nil {
				h.t.Fatal(err)
			}
			all++
			if burst != "0" {
				written++
			}
		}
	}
	h.t.Logf("disk full, %s: %d of %d bursts are set", when, written, all)
	if most := 4096 / 300; written > most || written == all {
		h.t.Errorf("disk full, %s: %d of %d bursts are set, and there was no room for so many records", when, written, all)
	}
}

// fill leaves no room in the run directory, nor what a file gives back that was about to be replaced.
func (h *alone) fill() (path string) {
	h.t.Helper()
	path = filepath.Join(h.run, "ballast")
	f, err := os.Create(path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for range 20 {
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			h.t.Fatal(err)
		}
		err = nil
		time.Sleep(50 * time.Millisecond)
	}
	return path
}

// nothingIsLeftAlone ends koordlet and restores: every file is as before it, kernel parameters too.
func nothingIsLeftAlone(h *alone) {
	h.a.end(syscall.SIGTERM)
	out, err := h.ctl("restore")
	if err != nil {
		h.t.Fatalf("restore: %v\n%s", err, out)
	}
	for _, d := range differences(h.before, h.treesOf(h.pods())) {
		if !h.tree.V2() || !widest.MatchString(d) {
			h.t.Errorf("after restore: %s", d)
		}
	}
	for path, want := range h.parameters {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			h.t.Errorf("after restore: %s is %q, %v; it was %q", path, got, err, want)
		}
	}
	if again, err := h.ctl("restore"); err != nil || !strings.Contains("\n"+again, "\n0 restored, ") {
		h.t.Errorf("a second restore finds something to do: %v\n%s", err, again)
	}
}
