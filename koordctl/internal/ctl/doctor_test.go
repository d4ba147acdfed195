// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/node"
)

func (h *host) file(t *testing.T, path, content string) {
	t.Helper()
	path = filepath.Join(h.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// alive makes the machine's /proc show this test as the plugin and writes its status.
func (h *host) alive(t *testing.T, s status.Status) {
	t.Helper()
	pid := strconv.Itoa(os.Getpid())
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	h.file(t, "/proc/"+pid+"/stat", string(stat))
	h.file(t, "/proc/"+pid+"/cmdline", "/usr/bin/koord-nri\x00--config\x00x\x00")
	if err := os.MkdirAll(h.runDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := status.Write(h.runDir(), "nri", s); err != nil {
		t.Fatal(err)
	}
}

func (h *host) nriSocket(t *testing.T) {
	t.Helper()
	// A socket's path may have 107 bytes, so it is bound by its short name.
	dir := filepath.Join(h.dir, "run/nri")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	short := "/proc/self/fd/" + strconv.Itoa(int(fd.Fd())) + "/nri.sock"
	l, err := net.Listen("unix", short)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(filepath.Join(dir, "nri.sock"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func healthy() status.Status {
	return status.Status{
		Program: "koord-nri", ProgramVersion: "koord-nri v0.1.0 (abc)", ConnectedSince: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		RuntimeName: "containerd", RuntimeVersion: "v2.4.0", NRIVersion: "0.12", Counters: map[string]uint64{"containers": 3},
		Features: []node.FeatureState{{Feature: "batch", State: "active"}, {Feature: "llc", State: "unsupported", Detail: "resctrl is not mounted"}},
	}
}

func withPID(out string) string {
	return strings.ReplaceAll(out, strconv.Itoa(os.Getpid()), "PID")
}

func TestDoctorOfAHealthyNode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	h.nriSocket(t)
	h.file(t, "/proc/cpuinfo", "flags : fpu\n")
	h.alive(t, healthy())
	out, err := h.run(t, "doctor")
	if err != nil {
		t.Errorf("%v", err)
	}
	golden(t, "doctor-healthy", withPID(out))
	out, err = h.run(t, "features")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "features", withPID(out))
}

func TestDoctorOfABrokenNode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	s := healthy()
	s.RuntimeVersion, s.ConnectedSince = "1.7.26", time.Time{}
	s.Problems = []status.Problem{{Where: "default/web", Key: "koordinator.sh/cpuBurst", Reason: "not JSON"}}
	s.Counters = map[string]uint64{"unmanaged": 2, "failOpen": 1}
	h.alive(t, s)
	h.file(t, "/etc/containerd/config.toml", "version = 2\n[plugins.'io.containerd.nri.v1.nri']\n  disable = true # off\n")
	h.file(t, "/proc/4242/cmdline", "/koordlet\x00-v=4\x00")
	h.file(t, "/proc/4243/cmdline", "/usr/bin/nri-resource-policy-balloons\x00")
	h.file(t, "/proc/cpuinfo", "flags : fpu cat_l3\n")
	h.file(t, "/opt/nri/plugins/10-memory", "")
	h.file(t, "/var/lib/kubelet/cpu_manager_state", `{"policyName":"static"}`)
	h.file(t, "/var/lib/kubelet/memory_manager_state", `{"policyName":"None"}`)
	h.file(t, "/run/koord-rt/nri.lock", "1\n")
	h.file(t, "/run/koord-rt/strategy.json", "{")
	if err := os.Chmod(filepath.Join(h.runDir(), "nri.lock"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := h.run(t, "doctor")
	if !errors.Is(err, ErrFound) {
		t.Errorf("%v", err)
	}
	golden(t, "doctor-broken", withPID(out))
}

func TestDoctorWithoutThePlugin(t *testing.T) {
	t.Parallel()
	h := newHost(t, "v1")
	out, err := h.run(t, "doctor", "-o", "json")
	if !errors.Is(err, ErrFound) || !strings.Contains(out, "koord-nri has not run") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestNRIDisabled(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		"":               {false, false},
		"disable = true": {false, false},
		"[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true":            {true, true},
		"[ plugins . \"io.containerd.nri.v1.nri\" ]\n disable=false":        {true, false},
		"[plugins.'io.containerd.nri.v1.nri']\n[plugins.x]\ndisable = true": {false, false},
		"[plugins.'io.containerd.nri.v1.nri']\n# disable = true":            {false, false},
		"[plugins.'io.containerd.nri.v1.nri']\ndisable_connections = true":  {false, false},
		"[plugins.'io.containerd.nri.v1.nri'.x]\ndisable = true":            {false, false},
	} {
		if set, disabled := nriDisabled(text); set != want[0] || disabled != want[1] {
			t.Errorf("%q: set %v, disabled %v", text, set, disabled)
		}
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][3]int{"v1.7.27": {1, 7, 27}, "2.0.0-rc.1": {2, 0, 0}, "1.7.3+unknown": {1, 7, 3}} {
		if v, good := parseVersion(s); !good || v != want {
			t.Errorf("%s: %v %v", s, v, good)
		}
	}
	for _, s := range []string{"", "1.7", "a.b.c"} {
		if _, good := parseVersion(s); good {
			t.Errorf("%q was read", s)
		}
	}
}
