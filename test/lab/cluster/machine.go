// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// sysctl is one kernel parameter and its value.
type sysctl struct{ path, value string }

// readSysctls saves what a starting kubelet (pkg/kubelet/cm, setupKernelTunables) and the CNI
// plugin ptp change on the whole machine. A parameter that the kernel lacks is left out.
func readSysctls() ([]sysctl, error) {
	var out []sysctl
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
	} {
		path := "/proc/sys/" + name
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read kernel parameter: %w", err)
		}
		out = append(out, sysctl{path, strings.TrimSpace(string(data))})
	}
	return out, nil
}

// writeSysctls puts back what differs.
func writeSysctls(saved []sysctl) error {
	var errs []error
	for _, s := range saved {
		now, err := os.ReadFile(s.path)
		if err == nil && strings.TrimSpace(string(now)) == s.value {
			continue
		}
		errs = append(errs, os.WriteFile(s.path, []byte(s.value), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("restore kernel parameters: %w", err)
	}
	return nil
}

// ownOOMScore is this process's oom_score_adj: without CAP_SYS_RESOURCE a kubelet
// cannot go below it.
func ownOOMScore() int {
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return n
}

// makeCgroupRoot makes the group in every hierarchy; the kubelet wants it to exist, and on
// version 1 a cpuset starts empty.
func makeCgroupRoot(name string) error {
	tree, err := cgroups.Detect()
	if err != nil {
		return err
	}
	for _, m := range tree.Mounts() {
		dir := filepath.Join(m, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		if m != tree.Controllers["cpuset"] {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := cgroups.Read(m, file)
			if err != nil {
				return err
			}
			if err := cgroups.Write(dir, file, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// podCgroups lists the pods' groups below a kubelet's root.
func podCgroups(name string) ([]string, error) {
	tree, err := cgroups.Detect()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range tree.Mounts() {
		dirs, err := cgroups.Dirs(filepath.Join(m, name))
		if err != nil {
			return nil, err
		}
		for _, d := range dirs {
			if strings.HasPrefix(filepath.Base(d), "pod") {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// removeLogLinks removes the links into our logs from the one folder whose place the
// kubelet does not let us choose, and the folder if that was all.
func removeLogLinks(logs string) error {
	const links = "/var/log/containers"
	entries, err := os.ReadDir(links)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list log links: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(links, e.Name())
		to, err := os.Readlink(path)
		if err != nil {
			continue
		}
		_, gone := os.Stat(to)
		stale := errors.Is(gone, fs.ErrNotExist) && strings.HasPrefix(to, "/tmp/krt") // of a lab that was killed
		if stale || strings.HasPrefix(to, logs+"/") {
			errs = append(errs, os.Remove(path))
		}
	}
	_ = os.Remove(links) // refused by the kernel while it holds something else
	return errors.Join(errs...)
}

// removeDevicePlugins removes the device manager's socket and checkpoint, whose folder is
// fixed in the kubelet too, unless somebody's plugin lives there.
func removeDevicePlugins() error {
	const dir = "/var/lib/kubelet/device-plugins"
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list device plugins: %w", err)
	}
	ours := []string{"kubelet.sock", "kubelet_internal_checkpoint", "DEPRECATION"}
	for _, e := range entries {
		if !slices.Contains(ours, e.Name()) {
			return nil
		}
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove device plugin state: %w", err)
		}
	}
	_ = os.Remove(dir)               // refused while a plugin came in between
	_ = os.Remove(filepath.Dir(dir)) // refused while it holds something else
	return nil
}
