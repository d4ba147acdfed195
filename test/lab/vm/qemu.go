// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// cpuModel has no CPUID enumeration of cache allocation but a family and model that the kernel probes for it; the
// probe is patched in the kernel (vmparts). What costs emulation most is left out: with erms and fsrm kernel and Go copy
// and clear memory byte by byte, the rest is checked or changed at each copy from user space or adds a level to page tables.
const cpuModel = "max,vendor=GenuineIntel,family=6,model=63,-erms,-fsrm,-smap,-smep,-umip,-pku,-la57"

// noDies hides the leaf of CPUID that tells of dies: at an assertion about it QEMU 10.0 aborts when a kernel reads it (encode_topo_cpuid1f). The kernel
// finds the caches without.
const noDies = ",level=0x1e"

// kernelLine is what the kernel is told. Hardening that touches every page and every copy is off, waits for grace periods
// are short, and the TSC, which emulation keeps in step, is not doubted when the host gives the guest no time.
const kernelLine = "quiet panic=-1 mitigations=off console=ttyS0 init_on_alloc=0 hardened_usercopy=off tsc=reliable " +
	"rcupdate.rcu_expedited=1 lsm=capability audit=0 systemd.mask=serial-getty@ttyS0.service systemd.show_status=0"

// legacyLine has systemd mount cgroup v1 and nothing else. From version 256 on it does so under protest only, and from 258 on no more.
const legacyLine = " systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"

// arguments is the machine of design/lab.md, lane 3.
func (m machine) arguments(work string, o Options) []string {
	node := fmt.Sprintf("memory-backend-ram,size=%dM,id=", o.MemoryMiB/2)
	model, cpus := cpuModel, "8,sockets=2,cores=2,threads=2"
	if o.SplitCaches {
		model, cpus = cpuModel+noDies, "8,sockets=2,dies=2,cores=2,threads=1" // each die has an L3
	}
	line := kernelLine
	if o.CgroupV1 && o.Flavour == Systemd {
		line += legacyLine
	}
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", model, "-smp", cpus,
		"-m", fmt.Sprintf("%dM", o.MemoryMiB/2*2),
		"-object", node + "node0", "-object", node + "node1",
		"-numa", "node,nodeid=0,cpus=0-3,memdev=node0", "-numa", "node,nodeid=1,cpus=4-7,memdev=node1",
		"-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", m.kernel.Vmlinux, "-initrd", filepath.Join(work, initramfsFile),
		"-append", line,
	}
	args = append(args, drive(guestcfg.DiskSerial, filepath.Join(work, diskFile), "")...)
	args = append(args, drive(guestcfg.OutSerial, filepath.Join(work, outFile), "")...)
	if o.SlowDisk > 0 {
		args = append(args, drive(guestcfg.SlowSerial, filepath.Join(work, slowFile), ",throttling.bps-total="+strconv.Itoa(o.SlowDisk))...)
	}
	if o.Flavour == Systemd {
		args = append(args, drive(guestcfg.RootSerial, m.rootfs, ",snapshot=on")...)
	}
	return args
}

// drive attaches a raw image. A snapshot's changes go to a temporary file and are lost; cache=unsafe is safe enough
// for images that live as long as the guest.
func drive(serial, file, more string) []string {
	spec := "if=none,format=raw,cache=unsafe,id=" + serial + ",file=" + strings.ReplaceAll(file, ",", ",,") + more
	return []string{"-drive", spec, "-device", "virtio-blk-pci,discard=off,write-zeroes=off,drive=" + serial + ",serial=" + serial}
}

// run boots, waits for the end and unpacks the result. A guest whose command has not begun within the limit is ended, and one that has
// not ended o.Timeout after that. cpu is the time that the emulator computed.
func (m machine) run(ctx context.Context, work string, o Options, limit time.Duration) (exit guestcfg.Exit, cpu time.Duration, err error) {
	log, err := os.Create(filepath.Join(o.OutputDir, consoleFile))
	if err != nil {
		return exit, 0, fmt.Errorf("create console log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	tooLate := time.AfterFunc(limit, cancel)
	defer tooLate.Stop()
	begun := &lineSeen{line: guestcfg.Begins, times: 1, then: func() { tooLate.Reset(o.Timeout) }}
	stalled := &lineSeen{line: noTimer, times: 3, then: cancel}
	tail := &tailBuffer{limit: 32 << 10}
	command := append(append([]string{}, m.emulator.Command...), m.arguments(work, o)...)
	cmd := exec.CommandContext(limited, command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), m.emulator.Env...), "TMPDIR="+work)
	cmd.Stdout = io.MultiWriter(log, tail, begun, stalled, o.Console)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	runErr := cmd.Run()
	if state := cmd.ProcessState; state != nil {
		cpu = state.UserTime() + state.SystemTime()
	}
	incomplete := ErrIncomplete
	if !begun.seen.Load() {
		incomplete = fmt.Errorf("%w, %w", ErrIncomplete, errNotBegun)
	}
	exit, complete, err := unpackResult(filepath.Join(work, outFile), o.OutputDir)
	switch {
	case err != nil:
		return exit, cpu, err
	case strings.Contains(tail.String(), panicked):
		err := fmt.Errorf("%w: %s: %s", ErrPanic, panicLine(tail.String()), tail)
		if !begun.seen.Load() {
			err = fmt.Errorf("%w, %w", errNotBegun, err)
		}
		return exit, cpu, err
	case stalled.seen.Load():
		return exit, cpu, fmt.Errorf("%w, %w: %s", incomplete, errNoTimer, tail)
	case limited.Err() != nil && ctx.Err() == nil:
		return exit, cpu, fmt.Errorf("%w: %s passed: %s", incomplete, time.Since(start).Round(time.Second), tail)
	case aborted(cmd.ProcessState):
		return exit, cpu, fmt.Errorf("%w, %w: %s: %s", incomplete, errAborted, bytes.TrimSpace(stderr.Bytes()), tail)
	case runErr != nil:
		return exit, cpu, fmt.Errorf("run emulator: %w: %s", errors.Join(runErr, ctx.Err()), bytes.TrimSpace(stderr.Bytes()))
	case !complete:
		return exit, cpu, fmt.Errorf("%w: %s", incomplete, tail)
	}
	return exit, cpu, nil
}

// aborted tells whether the emulator has ended itself at an assertion of its own. One of QEMU 10.0's, iotlb_to_section's, holds only as long
// as no CPU changes the machine's memory map while another one is about to touch a device: with threads for CPUs it fails now and then.
func aborted(state *os.ProcessState) bool {
	if state == nil {
		return false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGABRT
}

// panicked is what a kernel says last.
const panicked = "Kernel panic - not syncing"

// panicLine is the reason, which otherwise stands far from where one begins to read.
func panicLine(console string) string {
	_, rest, _ := strings.Cut(console, panicked)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Trim(line, ": \r")
}

// noTimer is what the kernel says when a CPU's timer has not fired for 21 s, and every minute or so from then on.
const noTimer = "Possible timer handling issue on cpu="

// lineSeen tells whether a text has been written to it so many times, and calls then when it has.
type lineSeen struct {
	line  string
	times int
	then  func()
	rest  []byte // of earlier writes, shorter than the line
	seen  atomic.Bool
}

func (l *lineSeen) Write(p []byte) (int, error) {
	if l.seen.Load() {
		return len(p), nil
	}
	l.rest = append(l.rest, p...)
	if l.times -= bytes.Count(l.rest, []byte(l.line)); l.times <= 0 {
		l.seen.Store(true)
		l.then()
	}
	l.rest = slices.Clone(l.rest[max(0, len(l.rest)-len(l.line)+1):])
	return len(p), nil
}

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	data  []byte
	limit int
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - t.limit; extra > 0 {
		t.data = t.data[extra:]
	}
	return len(p), nil
}

func (t *tailBuffer) String() string { return strings.TrimSpace(string(t.data)) }
