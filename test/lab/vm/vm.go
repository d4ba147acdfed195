// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package vm boots a Debian kernel under emulation, runs one command in it as root and brings back its exit code, its
// output and the files it left in /out.
//
// Every guest has 8 CPUs in 2 sockets of 2 cores with 2 threads (or of 4 cores and 2 L3 caches), 2 NUMA nodes, L3 cache
// allocation through the kernel's own resctrl (20 bit masks, one domain per cache), cgroup v2 with every controller
// enabled (or v1 on 6.1), an ext4 disk at /disk and no network but loopback. Times measured inside mean nothing.
//
// It emulates (TCG) even where there is a /dev/kvm. Cache allocation needs a kernel that finds it by probing a model
// specific register, which emulation lets it do. And a /dev/kvm need not mean fast: on a machine with kvm_pvm, a hypervisor
// without hardware support, QEMU 10 stops at MSR 0x10a unless -arch-capabilities is given, and then Debian's 6.12, whose kernel
// is not made for it (no CONFIG_PVM_GUEST), is interpreted instruction by instruction: after 95 s with one CPU it had not
// found its clock, which emulation reaches within a second. A kernel built for it would not be the one that nodes run.
//
// Input is Options, parts come from test/lab/vmparts. It must not import any package under test.
package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
	"github.com/koord-rt/koord-rt/test/lab/vmparts"
)

// Flavour is the userland of a guest.
type Flavour string

const (
	// Bare guests have busybox in a tmpfs and nothing else; the command is a child of a minimal init.
	Bare Flavour = "bare"
	// Systemd guests have a Debian root filesystem with systemd as PID 1; the command is a service.
	Systemd Flavour = "systemd"
)

const (
	defaultTimeout   = 5 * time.Minute
	defaultMemoryMiB = 2048
	defaultDiskMiB   = 1024
	outMiB           = 1024
	slowMiB          = 64
	// resultAllowance is kept from Options.Timeout for bringing the result back.
	resultAllowance = 30 * time.Second
	// bootLimit is how long a guest may take until its command begins, which Options.Timeout does not count: half a minute is usual.
	bootLimit = 5 * time.Minute
)

var (
	// ErrPanic is a guest kernel that panicked. Once the command has begun it is a failure, never a reason to try again.
	ErrPanic = errors.New("guest kernel panicked")
	// ErrIncomplete is a guest that ended, or was ended, before it delivered its result.
	ErrIncomplete = errors.New("guest delivered no result")
	// errNoTimer comes with ErrIncomplete where the kernel says that an emulated CPU's timer does not fire.
	errNoTimer = errors.New("an emulated CPU has no timer")
	// errAborted comes with ErrIncomplete where an assertion in the emulator failed.
	errAborted = errors.New("the emulator aborted")
	// errNotBegun comes with ErrIncomplete and ErrPanic where the command has not begun.
	errNotBegun = errors.New("its command did not begin")
)

// Options says what to boot. Kernel and Command are required.
type Options struct {
	Kernel   string            // series: "6.1", "6.12" or "7.2"
	Flavour  Flavour           // default Bare
	CgroupV1 bool              // v1 hierarchies instead of cgroup v2; only 6.1
	Files    map[string]string // host path of a file or folder -> absolute guest path
	Env      []string          // KEY=value for the command
	Command  []string          // program and arguments; found through the guest's PATH
	// Timeout bounds the time from the command's begin to the guest's end, default 5 minutes. 30 seconds (at most half) before
	// that the command is killed inside the guest, so that its files still come back, with exit code 124.
	Timeout   time.Duration
	Console   io.Writer // optional: sees the guest's console and the command's output as they come
	OutputDir string    // existing folder for the result; default a new temporary one that the caller removes
	MemoryMiB int       // both NUMA nodes together, default 2048
	DiskMiB   int       // free space on /disk beyond Files, default 1024; sparse on the host
	// SlowDisk attaches an empty disk of 64 MiB with the serial number guestcfg.SlowSerial that reads and writes so many bytes per
	// second, and no more, whoever asks. Zero attaches none.
	SlowDisk int
	// SplitCaches gives each NUMA node two last-level caches of two cores without SMT, instead of one of two cores with two threads.
	SplitCaches bool
}

// Result is what came back.
type Result struct {
	ExitCode int    // of the command; 128+N after signal N, 124 when it was killed for time
	TimedOut bool   // the command was killed for time
	Output   string // folder with stdout, stderr, console.log and out/ (the guest's /out)
	Release  string // uname -r of the guest
	Config   string // path of the kernel's build configuration
	Took     time.Duration
	CPU      time.Duration // that the emulator computed: what a guest costs, however busy the host is
	// BootFailed is the end of a first guest that did not come to its command, or that the emulator was to blame for; empty where the first is the result.
	BootFailed string
}

// Stdout returns what the command wrote to its standard output.
func (r Result) Stdout() (string, error) { return r.read(guestcfg.StdoutEntry) }

// Stderr returns what the command wrote to its standard error.
func (r Result) Stderr() (string, error) { return r.read(guestcfg.StderrEntry) }

func (r Result) read(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(r.Output, name))
	if err != nil {
		return "", fmt.Errorf("read guest output: %w", err)
	}
	return string(data), nil
}

// Boot runs one guest to its end. A command that fails is no error: see Result.ExitCode. Errors are parts that cannot
// be built, a guest that could not be set up, ErrPanic and ErrIncomplete; Result.Output is set where a guest ran.
func Boot(ctx context.Context, o Options) (Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Result{}, err
	}
	cache, err := parts.Open(parts.Options{Progress: o.Console})
	if err != nil {
		return Result{}, err
	}
	machine, err := gather(ctx, cache, o)
	if err != nil {
		return Result{}, err
	}
	if o.OutputDir == "" {
		if o.OutputDir, err = os.MkdirTemp("", "koord-vm-out-"); err != nil {
			return Result{}, fmt.Errorf("create output folder: %w", err)
		}
	}
	release, err := takeSlot(ctx, cache.Root())
	if err != nil {
		return Result{}, err
	}
	defer release()
	r, err := machine.boot(ctx, o)
	if emulators(err) && ctx.Err() == nil {
		// An emulated CPU can sleep through its timer and whatever wakes it: systemd gives up after 90 seconds then, and once in many
		// runs the kernel has panicked at its fourth second. Nothing of the caller's has run, so nothing of it is hidden by one more try. A timer
		// that is lost later is the emulator's, too: no program can stop one. So is an assertion of the emulator's.
		fmt.Fprintf(o.Console, "boot the guest once more: %v\n", err)
		first := err.Error()
		r, err = machine.boot(ctx, o)
		r.BootFailed = first
	}
	return r, err
}

// emulators reports whether the emulator is to blame for how a guest ended, and nothing that has run in it.
func emulators(err error) bool {
	return errors.Is(err, errNotBegun) || errors.Is(err, errNoTimer) || errors.Is(err, errAborted)
}

// boot runs the guest once.
func (m machine) boot(ctx context.Context, o Options) (Result, error) {
	r := Result{Output: o.OutputDir, Release: m.kernel.Release, Config: m.kernel.Config}
	work, err := os.MkdirTemp("", "koord-vm-")
	if err != nil {
		return r, fmt.Errorf("create work folder: %w", err)
	}
	defer os.RemoveAll(work)
	if err := m.prepare(ctx, work, o); err != nil {
		return r, err
	}
	start := time.Now()
	exit, cpu, err := m.run(ctx, work, o, bootLimit)
	r.Took, r.CPU = time.Since(start), cpu
	if err != nil {
		return r, err
	}
	r.ExitCode, r.TimedOut = exit.Code, exit.TimedOut
	if exit.Setup != "" {
		return r, fmt.Errorf("set up guest: %s", exit.Setup)
	}
	return r, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Flavour == "" {
		o.Flavour = Bare
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.MemoryMiB == 0 {
		o.MemoryMiB = defaultMemoryMiB
	}
	if o.DiskMiB == 0 {
		o.DiskMiB = defaultDiskMiB
	}
	if o.Console == nil {
		o.Console = io.Discard
	}
	switch {
	case o.Kernel == "":
		return o, errors.New("boot guest: no kernel series given")
	case o.SlowDisk < 0:
		return o, fmt.Errorf("boot guest: a disk of %d bytes per second", o.SlowDisk)
	case len(o.Command) == 0:
		return o, errors.New("boot guest: no command given")
	case o.Flavour != Bare && o.Flavour != Systemd:
		return o, fmt.Errorf("boot guest: flavour %q is neither %s nor %s", o.Flavour, Bare, Systemd)
	case o.CgroupV1 && o.Kernel != "6.1":
		return o, errors.New("boot guest: cgroup v1 needs kernel 6.1, later kernels lack controllers")
	}
	for host, guest := range o.Files {
		if !filepath.IsAbs(guest) || filepath.Clean(guest) == "/" {
			return o, fmt.Errorf("boot guest: target %q of %s is not an absolute file path", guest, host)
		}
	}
	for _, kv := range o.Env {
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" {
			return o, errors.New("boot guest: an environment entry is not KEY=value")
		}
	}
	return o, nil
}

// guestSeconds is how long after the command's begin it is killed inside the guest.
func (o Options) guestSeconds() int {
	return int((o.Timeout - min(resultAllowance, o.Timeout/2)).Seconds())
}

// machine is the set of parts of one guest.
type machine struct {
	kernel   vmparts.Kernel
	emulator vmparts.Emulator
	busybox  string // bare only
	rootfs   string // systemd only
}

func gather(ctx context.Context, cache *parts.Cache, o Options) (m machine, err error) {
	store, err := vmparts.Open(cache)
	if err != nil {
		return m, err
	}
	if m.emulator, err = store.Emulator(ctx); err != nil {
		return m, err
	}
	if m.kernel, err = store.Kernel(ctx, o.Kernel); err != nil {
		return m, err
	}
	if o.Flavour == Systemd {
		m.rootfs, err = store.Rootfs(ctx)
		return m, err
	}
	m.busybox, err = store.Busybox(ctx)
	return m, err
}
