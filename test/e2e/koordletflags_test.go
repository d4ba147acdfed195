// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// upstreamArgs are the arguments of koordlet in upstream's DaemonSet, of its chart's version 1.8.0 (versions/v1.8.0/templates/koordlet.yaml of
// koordinator-sh/charts), with that chart's gates and these beside them. The cgroups are where the node has them: a ledger knows files by their
// paths, and what was written at one root is not taken back at another.
func upstreamArgs(gates string) []string {
	return []string{
		"-addr=:9316", "-cgroup-root-dir=/sys/fs/cgroup/", "-feature-gates=BECPUEvict=true,BEMemoryEvict=true,CgroupReconcile=true,Accelerators=true" + gates,
		"-runtime-hooks-host-endpoint=/var/run/koordlet/koordlet.sock", "--logtostderr=true", "--v=4",
		// What users add: another pace.
		"--kubelet-sync-interval=20s", "--collect-res-used-interval=1s",
	}
}

// upstreamFlags: koordlet is started as upstream's DaemonSet starts its own. A feature whose gate is off
// is taken back in the kernel and one whose gate is on written; of evictions those alone are on whose gates are.
func upstreamFlags(h *alone) {
	with := func(gates string) {
		h.t.Helper()
		h.a.end(syscall.SIGTERM)
		h.a.dress = func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, upstreamArgs(gates)...) }
		h.a.start()
	}
	identity := func(want string) {
		h.t.Helper()
		for _, run := range h.be {
			h.soon(30*time.Second, run, []string{"pod cpu.idle=" + want})
		}
	}
	h.a.strategy(everywhere + "resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 100, cpuSuppressPolicy: cfsQuota}\n")
	with(",CPUBurst=false")
	h.burstOf(30*time.Second, "0")
	identity("1")
	h.a.ticks(5, func() error { return h.differs(h.ls[0], h.bursts("0")) })
	if !strings.Contains(h.a.log.String(), "--addr has no effect") {
		h.t.Error("koordlet does not say that --addr has no effect")
	}
	with(",CPUBurst=true,GroupIdentity=false")
	h.burstOf(30*time.Second, "5000")
	identity("0")
	with("")
	identity("1")
	h.burstOf(30*time.Second, "5000")
	h.eventually(20*time.Second, func() error {
		e := status.Read(h.run, "/proc", "koordlet")
		if e.Agent == nil {
			return fmt.Errorf("koordlet has no status: %s", e.Err)
		}
		var on []string
		for _, l := range e.Agent.Loops {
			if strings.HasSuffix(l.Name, "Evict") {
				on = append(on, l.Name)
			}
			if l.Name == "BECPUEvict" && !strings.Contains(l.Decision, "is on, but no threshold is set: cpuEvictBESatisfactionLowerPercent and") {
				return fmt.Errorf("BECPUEvict has no threshold, and koordlet says %+v", l)
			}
		}
		if slices.Sort(on); !slices.Equal(on, []string{"BECPUEvict", "BEMemoryEvict"}) {
			return fmt.Errorf("evictions that are on: %v", on)
		}
		return nil
	})
	h.a.end(syscall.SIGTERM)
	h.a.dress = nil
	h.a.strategy(everywhere)
	h.a.start()
	h.settled()
}

// noInotify: the kernel gives koordlet no inotify instance, as on a node whose fs.inotify.max_user_instances are used up: here by the limit of a
// user namespace of its own. It says so, and looks by itself: a strategy that changes is in force, new pods too.
func noInotify(h *alone) {
	h.a.end(syscall.SIGTERM)
	h.a.dress = func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, GidMappingsEnableSetgroups: true,
			UidMappings: []syscall.SysProcIDMap{{Size: 1 << 31}}, GidMappings: []syscall.SysProcIDMap{{Size: 1 << 31}},
		}
		// The shell's process becomes koordlet.
		cmd.Args = append([]string{"sh", "-c", `echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"`, "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
	}
	h.a.start()
	h.eventually(20*time.Second, func() error {
		const why = "fs.inotify.max_user_instances"
		if n, err := h.a.inotifies(); err != nil || n > 0 {
			h.t.Fatalf("koordlet has %d instances of inotify, %v: this shows nothing", n, err)
		}
		for _, p := range status.Read(h.run, "/proc", "koordlet").Problems {
			if strings.Contains(p.Reason, why) {
				return nil
			}
		}
		return fmt.Errorf("koordlet's status does not tell of %s", why)
	})
	h.settled()
	h.a.strategy("resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: -1}}}\n")
	h.burstOf(30*time.Second, "0")
	h.a.strategy(everywhere)
	h.settled()
	p := crowdPod(0)
	p.Name, p.UID = "unwatched", uid("unwatched")
	late := h.pod(p)
	h.soon(30*time.Second, late, h.bursts("5000"))
	h.a.end(syscall.SIGTERM)
	h.a.dress = nil
	h.a.start()
	h.settled()
}

// bursts is the want of a main container with this burst in µs.
func (h *alone) bursts(micros string) []string {
	return []string{"main " + h.burstFile() + "=" + micros}
}

// inotifies is how many instances of inotify koordlet has.
func (a *agent) inotifies() (n int, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid)
	fds, err := os.ReadDir(dir)
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == "anon_inode:inotify" {
			n++
		}
	}
	return n, err
}
