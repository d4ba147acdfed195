// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// machine describes where and when the figures were taken; what cannot be read says so in its line.
func machine(now time.Time) string {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-12s %s\n", name, value) }
	line("date", now.UTC().Format(time.RFC3339))
	line("cpu", cpuModel())
	line("cores", fmt.Sprint(runtime.NumCPU()))
	line("memory", firstField("/proc/meminfo", "MemTotal:"))
	line("kernel", kernel())
	line("cgroup", cgroupVersion())
	line("load", oneLine("/proc/loadavg"))
	line("go", runtime.Version())
	line("source", source())
	versions, err := lab.Versions()
	if err != nil {
		line("parts", err.Error())
	}
	line("containerd", versions["CONTAINERD_2_4"])
	line("runc", versions["RUNC"])
	return b.String()
}

func oneLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

// firstField is what follows the first line that begins with prefix.
func firstField(path, prefix string) string {
	for line := range strings.Lines(oneLine(path)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.Join(strings.Fields(strings.TrimPrefix(strings.TrimSpace(rest), ":")), " ")
		}
	}
	return "unknown"
}

func cpuModel() string { return firstField("/proc/cpuinfo", "model name") }

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}

func cgroupVersion() string {
	tree, err := cgroups.Detect()
	switch {
	case err != nil:
		return err.Error()
	case tree.V2():
		return "v2"
	}
	return "v1"
}

// source is the commit that was measured, with a mark when files differ from it.
func source() string {
	out, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown: " + err.Error()
	}
	return strings.TrimSpace(string(out))
}
