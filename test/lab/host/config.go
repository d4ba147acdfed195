// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/folder"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

func newPaths(dir string, port int) Paths {
	at := func(name string) string { return filepath.Join(dir, name) }
	return Paths{
		Dir:       dir,
		Config:    at("config.toml"),
		Socket:    at("containerd.sock"),
		NRISocket: at("nri.sock"),
		NRIPlugin: at("nri/plugins"),
		NRIConfig: at("nri/conf.d"),
		CDI:       at("cdi"),
		DropIns:   at("conf.d"),
		Logs:      at("logs"),
		Log:       at("containerd.log"),
		Runc:      at("runc"),
		Cgroup:    folder.Cgroup(dir),
		Metrics:   fmt.Sprintf("http://127.0.0.1:%d/v1/metrics", port),
	}
}

// render writes the configuration: version 2 for containerd 1.7 and 1.6 (which passes over
// what it does not know: NRI, CDI), version 3 for 2.x.
func (h *Host) render() string {
	var b bytes.Buffer
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	old := slices.Contains([]string{parts.Containerd17, parts.Containerd17CDI, parts.Containerd16}, h.options.Version)
	put("version = %d", map[bool]int{true: 2, false: 3}[old])
	put("root = %q\nstate = %q", filepath.Join(h.Dir, "root"), filepath.Join(h.Dir, "state"))
	put("imports = [%q]", filepath.Join(h.DropIns, "*.toml"))
	put("[grpc]\naddress = %q", h.Socket)
	put("[debug]\nlevel = \"info\"\naddress = %q", filepath.Join(h.Dir, "debug.sock"))
	put("[metrics]\naddress = %q", metricsAddress(h.Metrics))
	put("[plugins.\"io.containerd.internal.v1.opt\"]\npath = %q", filepath.Join(h.Dir, "opt"))
	h.renderNRI(put)
	if old {
		h.renderCRI17(put)
	} else {
		h.renderCRI2(put)
	}
	return b.String()
}

func (h *Host) renderNRI(put func(string, ...any)) {
	put("[plugins.\"io.containerd.nri.v1.nri\"]")
	put("disable = %t\ndisable_connections = false", h.options.DisableNRI)
	put("socket_path = %q\nplugin_path = %q\nplugin_config_path = %q", h.NRISocket, h.NRIPlugin, h.NRIConfig)
	put("plugin_registration_timeout = %q", h.options.RegisterTimeout)
	put("plugin_request_timeout = %q", h.options.RequestTimeout)
}

func (h *Host) renderCRI17(put func(string, ...any)) {
	const section = `plugins."io.containerd.grpc.v1.cri"`
	put("[%s]", section)
	put("sandbox_image = %q", parts.ImageRef)
	put("enable_cdi = true")
	h.renderRuntime(put)
	put("[%s.cni]\nconf_dir = %q", section, filepath.Join(h.Dir, "cni"))
	put("[%s.containerd]\nsnapshotter = %q\ndefault_runtime_name = \"runc\"", section, h.options.Snapshotter)
	h.renderRunc(put, section)
}

func (h *Host) renderCRI2(put func(string, ...any)) {
	const section = `plugins."io.containerd.cri.v1.runtime"`
	put("[plugins.\"io.containerd.cri.v1.images\"]\nsnapshotter = %q", h.options.Snapshotter)
	put("[plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = %q", parts.ImageRef)
	put("[%s]", section)
	if h.options.Version == parts.Containerd20 {
		put("enable_cdi = true") // later versions have no switch
	} else {
		// By default it asks the shims for the CPU time of each container in each second, for a kubelet that takes statistics from the CRI:
		// with 500 containers more than a whole CPU, so that no node is calm.
		put("stats_collect_period = \"30s\"")
	}
	h.renderRuntime(put)
	put("[%s.cni]\nconf_dir = %q", section, filepath.Join(h.Dir, "cni"))
	put("[%s.containerd]\ndefault_runtime_name = \"runc\"", section)
	h.renderRunc(put, section)
}

// renderRuntime writes what the two forms spell alike.
func (h *Host) renderRuntime(put func(string, ...any)) {
	put("cdi_spec_dirs = [%q]", h.CDI)
	put("disable_apparmor = true")
	// Without the capability runc cannot lower oom_score_adj below its own.
	put("restrict_oom_score_adj = %t", !hasSysResource())
}

// renderRunc writes the handler runc and the additional ones.
func (h *Host) renderRunc(put func(string, ...any), section string) {
	for _, name := range append([]string{"runc"}, h.options.Handlers...) {
		put("[%s.containerd.runtimes.%q]\nruntime_type = \"io.containerd.runc.v2\"", section, name)
		put("[%s.containerd.runtimes.%q.options]", section, name)
		put("BinaryName = %q\nRoot = %q\nSystemdCgroup = %t", h.RuncBin, h.Runc, h.options.SystemdCgroup)
	}
}

func metricsAddress(url string) string {
	return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/v1/metrics")
}

// snapshotter is native where dir itself is on overlayfs, which refuses to be an upper layer.
func snapshotter(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native"
	}
	return "overlayfs"
}

// hasSysResource reads CAP_SYS_RESOURCE (bit 24) of this process's effective set.
func hasSysResource() bool {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(data), "\n") {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set&(1<<unix.CAP_SYS_RESOURCE) != 0
		}
	}
	return false
}
