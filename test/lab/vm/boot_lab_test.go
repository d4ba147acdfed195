// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package vm_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/vm"
)

// machineFacts prints KEY=value lines that hold in every guest.
const machineFacts = `
echo release=$(uname -r)
echo cpus=$(grep -c ^processor /proc/cpuinfo)
echo nodes=$(cat /sys/devices/system/node/online)
echo node1=$(cat /sys/devices/system/node/node1/cpulist)
echo siblings=$(cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list)
echo packages=$(cat /sys/devices/system/cpu/cpu*/topology/physical_package_id | sort -u | tr '\n' ' ')
echo pid1=$(cat /proc/1/comm)
echo resctrl=$(cat /sys/fs/resctrl/schemata)
mkdir /sys/fs/resctrl/BE && echo 'L3:0=ff' > /sys/fs/resctrl/BE/schemata && echo $$ > /sys/fs/resctrl/BE/tasks
echo group=$(cat /sys/fs/resctrl/BE/schemata)
echo task=$(grep -c "^$$\$" /sys/fs/resctrl/BE/tasks)
echo 'L3:0=5' > /sys/fs/resctrl/BE/schemata 2>/dev/null
echo refused=$(cat /sys/fs/resctrl/info/last_cmd_status)
echo closids=$(cat /sys/fs/resctrl/info/L3/num_closids)
echo links=$(ls /sys/class/net | tr '\n' ' ')
echo loopback=$(cat /sys/class/net/lo/flags)
echo disk=$(grep ' /disk ' /proc/mounts | cut -d' ' -f3)
`

const unifiedFacts = `
echo controllers=$(cat /sys/fs/cgroup/cgroup.subtree_control)
mkdir /sys/fs/cgroup/lab
echo 1 > /sys/fs/cgroup/lab/cpu.idle
echo files=$(cd /sys/fs/cgroup/lab && ls -d cpu.idle cpu.max.burst cpuset.cpus cpuset.mems memory.high io.max pids.max | tr '\n' ' ')
echo weight=$(cat /sys/fs/cgroup/lab/cpu.weight)
`

func TestBareGuests(t *testing.T) {
	// cpu.weight of an idle group: the kernels' one known difference that matters to the code under test.
	for series, weight := range map[string]string{"6.12": "1", "6.1": "0", "7.2": "1"} {
		t.Run(series, func(t *testing.T) {
			r, facts := bootFacts(t, vm.Options{Kernel: series}, machineFacts+unifiedFacts)
			checkMachine(t, r, facts)
			checkUnified(t, facts)
			want(t, facts, "pid1", "koord-vm")
			want(t, facts, "weight", weight)
		})
	}
}

func TestCgroupV1Guest(t *testing.T) {
	const script = machineFacts + `
for c in cpu cpuset memory blkio pids; do mkdir /sys/fs/cgroup/$c/lab; done
cd /sys/fs/cgroup
echo files=$(ls -d cpu/lab/cpu.shares cpu/lab/cpu.cfs_burst_us cpuset/lab/cpuset.cpus memory/lab/memory.limit_in_bytes \
  blkio/lab/blkio.throttle.read_bps_device pids/lab/pids.max cpu/lab/cpu.bvt_warp_ns 2>/dev/null | wc -l)
echo unified=$(grep -c ' cgroup2 ' /proc/mounts)
`
	r, facts := bootFacts(t, vm.Options{Kernel: "6.1", CgroupV1: true}, script)
	checkMachine(t, r, facts)
	want(t, facts, "files", "6") // all but the last, which no Debian kernel has
	want(t, facts, "unified", "0")
}

// TestSystemdV1Guest: what systemd writes on cgroup v1 is in the properties that it has for that.
func TestSystemdV1Guest(t *testing.T) {
	const script = machineFacts + `
echo state=$(systemctl is-system-running --wait)
systemd-run -q --unit=lab-a --slice=kubepods-besteffort.slice -p CPUShares=2 -p MemoryLimit=64M sleep 600
systemctl daemon-reload && echo reload=ok
cd /sys/fs/cgroup
group=kubepods.slice/kubepods-besteffort.slice/lab-a.service
echo slice=$(cat cpu/$group/cpu.shares) $(cat memory/$group/memory.limit_in_bytes)
echo unified=$(grep -c ' cgroup2 ' /proc/mounts)
`
	r, facts := bootFacts(t, vm.Options{Kernel: "6.1", CgroupV1: true, Flavour: vm.Systemd}, script)
	checkMachine(t, r, facts)
	want(t, facts, "pid1", "systemd")
	want(t, facts, "state", "running")
	want(t, facts, "reload", "ok")
	want(t, facts, "slice", "2 67108864")
	want(t, facts, "unified", "0")
}

func TestSystemdGuest(t *testing.T) {
	const script = machineFacts + unifiedFacts + `
echo state=$(systemctl is-system-running --wait)
systemd-run -q --unit=lab-a --slice=kubepods-besteffort.slice -p CPUWeight=2 -p MemoryHigh=64M sleep 600
systemctl daemon-reload && echo reload=ok
group=/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/lab-a.service
echo slice=$(cat $group/cpu.weight) $(cat $group/memory.high)
echo active=$(systemctl is-active kubepods-besteffort.slice lab-a.service | tr '\n' ' ')
`
	r, facts := bootFacts(t, vm.Options{Kernel: "6.12", Flavour: vm.Systemd}, script)
	checkMachine(t, r, facts)
	checkUnified(t, facts)
	want(t, facts, "pid1", "systemd")
	want(t, facts, "state", "running")
	want(t, facts, "reload", "ok")
	want(t, facts, "slice", "2 67108864")
	want(t, facts, "active", "active active")
}

// TestCommandContract covers what the caller hands in and gets back: files small, large and in folders, environment,
// both output streams, the out folder and the exit code.
func TestCommandContract(t *testing.T) {
	host := t.TempDir()
	large := slices.Repeat([]byte("0123456789abcdef"), 1<<20/8)
	for name, data := range map[string][]byte{"small": []byte("small"), "large": large, "tree/in/file": []byte("inside")} {
		path := filepath.Join(host, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	const script = `
echo new > /etc/lab/small.tmp && mv /etc/lab/small.tmp /etc/lab/small || exit 1
wc -c < /opt/large; cat /opt/tree/in/file; echo " $LAB_VALUE"; stat -c '%u %a' /opt/large
echo oops >&2; mkdir /out/sub; cat /etc/lab/small > /out/sub/file; exit 7`
	r, err := vm.Boot(t.Context(), vm.Options{
		Kernel: "6.12", Command: []string{"sh", "-c", script}, Env: []string{"LAB_VALUE=a b"}, OutputDir: t.TempDir(),
		Files: map[string]string{
			filepath.Join(host, "small"): "/etc/lab/small",
			filepath.Join(host, "large"): "/opt/large",
			filepath.Join(host, "tree"):  "/opt/tree",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 7 {
		t.Errorf("exit code %d, want 7", r.ExitCode)
	}
	for name, text := range map[string]string{
		"stdout": "2097152\ninside a b\n0 755\n", "stderr": "oops\n", "out/sub/file": "new\n",
	} {
		got, err := os.ReadFile(filepath.Join(r.Output, name))
		if err != nil || string(got) != text {
			t.Errorf("%s: got %q, want %q (%v)", name, got, text, err)
		}
	}
}

func TestCommandKilledForTime(t *testing.T) {
	r, err := vm.Boot(t.Context(), vm.Options{
		Kernel: "6.12", Timeout: 80 * time.Second, OutputDir: t.TempDir(),
		Command: []string{"sh", "-c", "echo partly > /out/file; sleep 600"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.TimedOut || r.ExitCode != 124 {
		t.Errorf("timed out %v, exit code %d, want true, 124", r.TimedOut, r.ExitCode)
	}
	if got, err := os.ReadFile(filepath.Join(r.Output, "out/file")); err != nil || string(got) != "partly\n" {
		t.Errorf("out/file: %q, %v", got, err)
	}
}

func TestPanicIsAnError(t *testing.T) {
	_, err := vm.Boot(t.Context(), vm.Options{
		Kernel: "6.12", Timeout: 5 * time.Minute, OutputDir: t.TempDir(),
		Command: []string{"sh", "-c", "echo c > /proc/sysrq-trigger"},
	})
	if !errors.Is(err, vm.ErrPanic) {
		t.Errorf("got %v, want ErrPanic", err)
	}
}

func bootFacts(t *testing.T, o vm.Options, script string) (vm.Result, map[string]string) {
	t.Helper()
	o.Command = []string{"/bin/sh", "-c", script}
	o.OutputDir = t.TempDir()
	o.Timeout = 5 * time.Minute
	r, err := vm.Boot(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Stdout()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("guest took %s %s", r.Took, r.BootFailed)
	facts := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(line, "=")
		facts[key] = strings.TrimSpace(value)
	}
	if r.ExitCode != 0 {
		stderr, err := r.Stderr()
		t.Errorf("exit code %d: %s (%v)", r.ExitCode, stderr, err)
	}
	return r, facts
}

func checkMachine(t *testing.T, r vm.Result, facts map[string]string) {
	t.Helper()
	for key, value := range map[string]string{
		"release": r.Release, "cpus": "8", "nodes": "0-1", "node1": "4-7", "siblings": "0-1", "packages": "0 1",
		"resctrl": "L3:0=fffff;1=fffff", "group": "L3:0=ff;1=fffff", "task": "1", "closids": "4",
		"links": "lo", "loopback": "0x9", "disk": "ext4",
	} {
		want(t, facts, key, value)
	}
	if !strings.Contains(facts["refused"], "non-consecutive") {
		t.Errorf("last_cmd_status %q, want the kernel's refusal of a mask with holes", facts["refused"])
	}
}

func checkUnified(t *testing.T, facts map[string]string) {
	t.Helper()
	for _, name := range []string{"cpu", "cpuset", "memory", "io", "pids"} {
		if !slices.Contains(strings.Fields(facts["controllers"]), name) {
			t.Errorf("controllers %q, want %s among them", facts["controllers"], name)
		}
	}
	want(t, facts, "files", "cpu.idle cpu.max.burst cpuset.cpus cpuset.mems io.max memory.high pids.max")
}

func want(t *testing.T, facts map[string]string, key, value string) {
	t.Helper()
	if facts[key] != value {
		t.Errorf("%s: got %q, want %q", key, facts[key], value)
	}
}
