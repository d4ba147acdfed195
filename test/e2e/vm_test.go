// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/verdict"
	"github.com/koord-rt/koord-rt/test/lab/vm"
)

// bundle is what a guest needs to run this package's Guest tests.
func bundle(t *testing.T) (files map[string]string, given string) {
	t.Helper()
	ctx := t.Context()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	if given, err = vm.Carry(ctx, cache, files, parts.Containerd24, parts.Runc, parts.Image, parts.Crictl); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() + "/"
	tests := []string{"test", "-c", "-vet=off", "-tags", "lab", "-trimpath", "-ldflags=-s -w", "-o", dir, "."}
	for folder := range kernelPackages {
		tests = append(tests, "../../"+folder)
		data, err := filepath.Abs("../../" + folder + "/testdata")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(data); err == nil {
			files[data] = guestTests + "/" + folder + "/testdata"
		}
	}
	for _, args := range [][]string{tests, {"build", "-trimpath", "-ldflags=-s -w", "-o", dir, "../demo"}} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build for the guest: %v\n%s", err, out)
		}
	}
	built, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range built {
		files[dir+program.Name()] = filepath.Join(vm.GuestBin, program.Name())
	}
	for _, name := range []string{"koord-nri", "koord-runtime-proxy", "koordlet", "koordctl"} {
		path, err := filepath.Abs(bin(name))
		if err != nil {
			t.Fatal(err)
		}
		files[path] = filepath.Join(vm.GuestBin, name)
	}
	return files, given
}

// withParts adds parts to a guest's files where its tests want them, which a word of their names says.
func withParts(t *testing.T, files map[string]string, given, match, word string, names ...string) (map[string]string, string) {
	t.Helper()
	if !strings.Contains(match, word) {
		return files, given
	}
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	files = maps.Clone(files)
	more, err := vm.Carry(t.Context(), cache, files, names...)
	if err != nil {
		t.Fatal(err)
	}
	return files, given + more
}

// inVM runs the Guest tests that match in one VM and passes their verdict on. What failed there is returned, too.
func inVM(t *testing.T, o vm.Options, files map[string]string, given, match string) (failed []string) {
	t.Helper()
	o.Files = files
	o.Env = append(append(o.Env, vm.Surroundings(given)...), "KOORD_RT_BIN="+vm.GuestBin, "KOORD_RT_GUEST=1")
	if o.CgroupV1 {
		o.Env = append(o.Env, envCgroup+"=1")
	}
	if o.SplitCaches {
		o.Env = append(o.Env, envCaches+"=2")
	}
	o.Command = vm.OnDisk(vm.GuestBin + "/e2e.test -test.v -test.timeout " + (o.Timeout - time.Minute).String() + " -test.run '" + match + "'")
	o.OutputDir = t.TempDir()
	o.MemoryMiB = 3072
	ctx, cancel := context.WithTimeout(t.Context(), 2*o.Timeout+12*time.Minute) // a boot may come twice, with five minutes each, and a first try end late
	defer cancel()
	r, err := vm.Boot(ctx, o)
	if err != nil {
		t.Fatalf("%v; console: %s", err, r.Output)
	}
	out, err := r.Stdout()
	if err != nil {
		t.Fatal(err)
	}
	if r.BootFailed != "" {
		t.Logf("the first boot failed: %s", r.BootFailed)
	}
	t.Logf("kernel %s, %s, %s of CPU:\n%s", r.Release, r.Took.Round(time.Second), r.CPU.Round(time.Second), shown(out, r.ExitCode != 0))
	proveNoCookies(t, out, r.Config)
	if r.ExitCode != 0 {
		if said, err := r.Stderr(); err == nil && said != "" { // a panic stands there
			t.Logf("standard error:\n%s", tail(said, 8000))
		}
		t.Errorf("guest tests ended with %d", r.ExitCode)
		failed = verdict.Failed(out)
	}
	if !strings.Contains(out, "--- PASS: TestGuest") {
		t.Errorf("no guest test ran for %q", match)
	}
	return failed
}

// shown is the whole output of a failure, else the lines with results, and with figures.
func shown(out string, all bool) string {
	if all {
		return tail(out, 20000)
	}
	var b strings.Builder
	for line := range strings.Lines(out) {
		if strings.Contains(line, "--- ") || strings.Contains(line, "scenarios ran") || strings.Contains(line, ": koordlet: ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// What make test has of the guests is chosen so that it ends within 45 minutes on two CPUs, where emulation takes hours for everything;
// lab-vm-full has the rest.
const (
	// onV2 and onOldV2 show every feature on cgroup v2 (TestEveryFeatureIsShownOnBothVersions of test/arch). 6.1 is the quickest to emulate and has, beside
	// identity, what no kernel of the matrix does otherwise than another.
	onV2    = "/^(blkio|cpuset-lsr|memory-annotation|memory-m6a|normalization|untouched)$"
	onOldV2 = "/^(cpuset-dynamic|identity|llc|llc-pod|rdma)$"
	// brought is what else than koord-nri at creation brings pods to: its repairs, koordlet, the proxy.
	brought = "/^memory-annotation$"
	// ofKernel is what differs most between kernels: what is best for a class.
	ofKernel = "/^identity$"
	// vmOnly are scenarios of cgroup v1 that no host runs: they are for the CPUs of a VM, or need RDT.
	vmOnly = "/^(cpuset-dynamic|cpuset-lsr|llc|llc-pod)$"
	// underUnits sets what systemd keeps as properties of its units. Half a minute each under systemd.
	underUnits = "/^memory-m5$"
	// What a container's first instruction finds depends on kernel and runc.
	firstWords = "/^FirstInstruction$"
	// underSystemd are lifecycles that the systemd cgroup driver could break, elsewhere others in which the kernel has a part.
	underSystemd = "/^(FirstInstruction|Resize)$"
	elsewhere    = "/^(ResizePod|Restore)$"
	// safeOnV2 is what the proxy gives back to the kernel.
	safeOnV2 = "/^Restore$"
	// loopsOnV2 are those of koordlet's loops that have other files with cgroup v2, or are there with it alone.
	loopsOnV2 = "/^(Burst|Quota|Pressure|Protection|Reclaim|Tight|Restore)$"
)

// TestVM is lane 3 of make test: each feature on cgroup v2, what differs between kernels on each of the matrix, under systemd, with the proxy, and
// on the oldest kernel also with v1.
func TestVM(t *testing.T) {
	// Some take ten minutes of two CPUs, which they share with the other lanes.
	boot(t, 30*time.Minute, []machine{
		{"6.12", vm.Options{Kernel: "6.12"}, "^TestGuest(PageCache|CoreSched|KernelPackages|MemoryOOMScore)$|^TestGuestScenarios$" + onV2 + "|^TestGuest(Conformance|OnlyKoordlet|ProxyScenarios)$" + brought},
		{"6.12-loops", vm.Options{Kernel: "6.12", SlowDisk: slowBPS, SplitCaches: true}, "^TestGuestKoordlet$" + loopsOnV2 + "|^TestGuestNetwork$"},
		{"6.12-systemd", vm.Options{Kernel: "6.12", Flavour: vm.Systemd}, "^TestGuestSystemdScenarios$" + underUnits + "|^TestGuestSystemdKoordlet$|^TestGuestSystemdLifecycle$" + underSystemd},
		// Emulated, 6.1 is twice as fast as 7.2.
		{"6.1", vm.Options{Kernel: "6.1"}, "^TestGuestScenarios$" + onOldV2 + "|^TestGuestLifecycle$" + elsewhere + "|^TestGuestProxySafe$" + safeOnV2},
		{"6.1-v1", vm.Options{Kernel: "6.1", CgroupV1: true}, "^TestGuestKernelPackages$|^TestGuestScenarios$" + vmOnly + "|^TestGuestLifecycle$" + firstWords},
		{"7.2", vm.Options{Kernel: "7.2"}, "^TestGuestScenarios$" + ofKernel + "|^TestGuestLifecycle$" + firstWords},
	})
}

// TestFullVM runs everything everywhere, for `make test-long`: hours, of which a kernel is compiled for a quarter once. Every guest test, every lifecycle,
// every life of the proxy and every step beside a kubelet is in it on cgroup v2 (test/arch).
func TestFullVM(t *testing.T) {
	boot(t, 2*time.Hour, []machine{
		{"6.12", vm.Options{Kernel: "6.12"}, "^TestGuest(Scenarios|ProxyScenarios|Conformance|PageCache|CoreSched|KernelPackages|MemoryOOMScore|MemoryQoS|OnlyKoordlet|Demo|Lifecycle)$"},
		// Scenarios have masks for one cache of a node. Here are two: suppression prefers CPUs that share one.
		{"6.12-loops", vm.Options{Kernel: "6.12", SlowDisk: slowBPS, SplitCaches: true}, "^TestGuest(Koordlet|Neighbours|Network)$"},
		{"6.12-kubelet", vm.Options{Kernel: "6.12"}, "^TestGuestKubelet$"},
		{"6.12-systemd", vm.Options{Kernel: "6.12", Flavour: vm.Systemd}, "^TestGuestSystemd(Scenarios|ProxyScenarios|Conformance|Lifecycle|Docker|Koordlet|Demo)$"},
		{"7.2", vm.Options{Kernel: "7.2"}, "^TestGuest(Scenarios|PageCache|MemoryOOMScore|MemoryQoS|Lifecycle)$"},
		{"6.1", vm.Options{Kernel: "6.1"}, "^TestGuest(Scenarios|PageCache|MemoryOOMScore|MemoryQoS|Lifecycle|Compat17|Compat17FirstInstruction|Compat20|Compat20FirstInstruction)$"},
		{"6.1-proxy", vm.Options{Kernel: "6.1"}, "^TestGuestProxy(Beside|BesideScenarios|Killed|KilledBetween|Safe)$"},
		{"6.1-v1", vm.Options{Kernel: "6.1", CgroupV1: true}, "^TestGuest(Scenarios|ProxyScenarios|Conformance|KernelPackages|Lifecycle)$"},
		{"6.1-v1-systemd", vm.Options{Kernel: "6.1", CgroupV1: true, Flavour: vm.Systemd}, "^TestGuestSystemd(Scenarios|Koordlet)$|^TestGuestSystemdLifecycle$/^(FirstInstruction|Resize|ResizePod|Restore|AnyMoment)$"},
		// Debian's kernels have neither core scheduling nor io.latency: this one is compiled with them.
		{"6.12-own", vm.Options{Kernel: "6.12-own"}, "^TestGuest(CoreSched|KernelPackages)$|^TestGuest(Scenarios|ProxyScenarios|Conformance|OnlyKoordlet)$/^core-sched(-node)?$|^TestGuestLifecycle$/^(FirstInstruction|BlockIO)$"},
	})
}

type machine struct {
	name  string
	o     vm.Options
	match string
}

// boot runs the machines one after the other, each for so long at most.
func boot(t *testing.T, limit time.Duration, machines []machine) {
	t.Helper()
	files, given := bundle(t)
	var failed []string
	for _, m := range machines {
		if match := os.Getenv("KOORD_RT_MATCH"); match != "" {
			m.match = match // for people who look at one guest test
		}
		m.o.Timeout = limit
		t.Run(m.name, func(t *testing.T) {
			files, given := withParts(t, files, given, m.match, "Compat17", parts.Containerd17)
			files, given = withParts(t, files, given, m.match, "Compat20", parts.Containerd20)
			files, given = withParts(t, files, given, m.match, "Network", parts.CNI, parts.IPRoute2)
			files, given = withServed(t, files, given, m.match)
			for _, f := range inVM(t, m.o, withDocker(t, files, m.match), given, m.match) {
				failed = append(failed, m.name+": "+f)
			}
		})
	}
	if len(failed) > 0 {
		t.Logf("failed in the guests:\n%s", strings.Join(failed, "\n"))
	}
}
