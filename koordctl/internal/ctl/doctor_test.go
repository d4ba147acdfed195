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

	"github.com/koord-rt/koord-rt/api/config"
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
	h.aliveAs(t, "nri", s)
}

func (h *host) aliveAs(t *testing.T, writer string, s status.Status) {
	t.Helper()
	pid := strconv.Itoa(os.Getpid())
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	h.file(t, "/proc/"+pid+"/stat", string(stat))
	h.file(t, "/proc/"+pid+"/cmdline", "/usr/bin/"+s.Program+"\x00--config\x00x\x00")
	if err := os.MkdirAll(h.runDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if s.Written.IsZero() {
		s.Written = time.Now()
	}
	if err := status.Write(h.runDir(), writer, s); err != nil {
		t.Fatal(err)
	}
}

func (h *host) nriSocket(t *testing.T) {
	t.Helper()
	h.socket(t, "run/nri", "nri.sock")
}

func (h *host) socket(t *testing.T, folder, name string) {
	t.Helper()
	// A socket's path may have 107 bytes, so it is bound by its short name.
	dir := filepath.Join(h.dir, folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	short := "/proc/self/fd/" + strconv.Itoa(int(fd.Fd())) + "/" + name
	l, err := net.Listen("unix", short)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
		t.Fatal(err)
	}
}

func healthy() status.Status {
	return status.Status{
		Program: "koord-nri", ProgramVersion: "koord-nri v0.1.0 (abc)", ConnectedSince: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		RuntimeName: "containerd", RuntimeVersion: "v2.4.0", NRIVersion: "0.12", Scheduling: "shares a processor by its nice value: " + status.RealTimeOff, // as these tests do
		Counters: map[string]uint64{"containers": 3},
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
	h.connected(t, defaultNRISocket)
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

// A node with the proxy alone needs no NRI.
func TestDoctorOfAProxyNode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	h.socket(t, "var/run/koord-runtimeproxy", "runtimeproxy.sock")
	h.file(t, "/proc/cpuinfo", "flags : fpu\n")
	s := healthy()
	s.Program, s.ProgramVersion, s.NRIVersion = "koord-runtime-proxy", "koord-runtime-proxy v0.1.0 (abc)", ""
	h.aliveAs(t, "cri", s)
	out, err := h.run(t, "doctor")
	if err != nil {
		t.Errorf("%v", err)
	}
	golden(t, "doctor-proxy", withPID(out))
	s.ConnectedSince = time.Time{}
	h.aliveAs(t, "cri", s)
	out, err = h.run(t, "doctor")
	if !errors.Is(err, ErrFound) || !strings.Contains(out, "the runtime behind it does not answer") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The node agent beside the plugin: its process has the name of Koordinator's and is no other agent, unlike one that has no
// status file. Its configuration stands behind the plugin's.
func TestDoctorWithKoordlet(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	h.nriSocket(t)
	h.connected(t, defaultNRISocket)
	h.file(t, "/proc/cpuinfo", "flags : fpu\n")
	h.alive(t, healthy())
	agent := healthy()
	agent.Program, agent.ProgramVersion, agent.NRIVersion = "koordlet", "koordlet v0.1.0 (abc)", ""
	agent.Problems = []status.Problem{{Where: "pod cache", Key: "kubelet", Reason: "no answer"}}
	h.aliveAs(t, "koordlet", agent)
	out, err := h.run(t, "doctor")
	if err != nil {
		t.Errorf("%v", err)
	}
	golden(t, "doctor-koordlet", withPID(out))
	out, err = h.run(t, "features")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "features-koordlet", withPID(out))

	agent.ConnectedSince = time.Time{}
	h.aliveAs(t, "koordlet", agent)
	h.file(t, "/proc/4242/cmdline", "/koordlet\x00-v=4\x00")
	out, err = h.run(t, "doctor")
	if !errors.Is(err, ErrFound) || !strings.Contains(out, "the runtime does not answer it") ||
		!strings.Contains(out, "koordlet (pid 4242, Koordinator's node agent)") || strings.Contains(out, "koordlet (pid "+strconv.Itoa(os.Getpid())+", Koord") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A status file that cannot be read is its own writer's trouble.
func TestDoctorNamesTheDaemonOfABadFile(t *testing.T) {
	t.Parallel()
	for _, d := range daemons() {
		h := newHost(t, "6.12")
		h.file(t, filepath.Join("/run/koord-rt", "status-"+d.writer+".json"), "{")
		out, err := h.run(t, "doctor")
		if !errors.Is(err, ErrFound) {
			t.Errorf("%s: %v", d.writer, err)
		}
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.HasPrefix(line, "FAIL    "+d.check+" ") && strings.Contains(line, "status-"+d.writer+".json")
		}
		if !found || !strings.Contains(out, "of the same release as "+d.program) {
			t.Errorf("%s is not named:\n%s", d.program, out)
		}
	}
}

// What holds for the node comes from the first daemon of the table that is there, by its own kind of configuration.
func TestNodeConfig(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{writerNRI: config.KindNRI, writerProxy: config.KindProxy, writerKoordlet: config.KindKoordlet}
	for _, d := range daemons() {
		h := newHost(t, "6.12")
		e := &env{hostRoot: h.dir, runDir: "/run/koord-rt"}
		path := "/etc/koord-rt/" + d.file
		h.file(t, path, "apiVersion: koord-rt.dev/v1alpha1\nkind: "+kinds[d.writer]+"\nhost: {kubepodsRoot: /lab/"+d.writer+"}\n")
		h.aliveAs(t, d.writer, status.Status{Program: d.program, ConfigPath: path})
		main := mainOf(e.installed())
		if got := e.nodeConfig(main).Host.KubepodsRoot; main.writer != d.writer || got != "/lab/"+d.writer {
			t.Errorf("%s: %s speaks for the node, kubepods below %q", d.writer, main.writer, got)
		}
		h.file(t, path, "kind: nonsense\n")
		if got := e.nodeConfig(main).Host.KubepodsRoot; got != "" {
			t.Errorf("%s with a bad file: kubepods below %q", d.writer, got)
		}
	}
	e := &env{hostRoot: t.TempDir(), runDir: "/run/koord-rt"}
	if main := mainOf(e.installed()); main.writer != writerNRI || main.status != nil {
		t.Errorf("on an empty node %s speaks", main.writer)
	}
}

func TestDoctorOfABrokenNode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	s := healthy()
	s.RuntimeVersion, s.ConnectedSince = "1.7.26", time.Time{}
	s.Problems = []status.Problem{{Where: "default/web", Key: "koordinator.sh/cpuBurst", Reason: "not JSON"}}
	s.Counters = map[string]uint64{"unmanaged": 2, "failOpen": 1}
	s.ConfigPath, s.ConfigPending = "/etc/koord-rt/nri.yaml", "socket: changed in the file, and taken in by a restart only"
	h.alive(t, s)
	h.file(t, "/etc/containerd/config.toml", "version = 2\n[plugins.'io.containerd.nri.v1.nri']\n  disable = true # off\n  plugin_config_path = \"/srv/nri.d\"\n")
	h.file(t, "/srv/nri.d/20-topology.conf", "")
	h.file(t, "/etc/nri/conf.d/30-not-read.conf", "")
	h.file(t, "/proc/4242/cmdline", "/koordlet\x00-v=4\x00")
	h.file(t, "/proc/4243/cmdline", "/usr/bin/nri-resource-policy-balloons\x00")
	h.file(t, "/proc/cpuinfo", "flags : fpu cat_l3\n")
	h.file(t, "/opt/nri/plugins/10-memory", "")
	h.connected(t, defaultNRISocket, defaultNRISocket)
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

// Two plugins are one too many for one runtime only: a machine may have two.
func TestDoctorOfTwoPlugins(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: koord-rt.dev/v1alpha1\nkind: NRIConfig\nsocket: "
	for name, c := range map[string]struct {
		argv, file string // of the second; the first is at the default socket, of which it says nothing
		fails      bool
	}{
		"another runtime":      {"--config\x00/b.yaml", head + "/run/b/nri.sock\n", false},
		"said in one word":     {"--config=/b.yaml", head + "/run/b/nri.sock\n", false},
		"the same":             {"--config\x00/b.yaml", head + "/var/run/nri/nri.sock\n", true},
		"as little":            {"-v=4", "", true},
		"not to be read":       {"--config\x00/gone.yaml", "", true},
		"who knows from where": {"--config\x00b.yaml", head + "/run/b/nri.sock\n", true},
		"not a configuration":  {"--config\x00/b.yaml", "{", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "6.12")
			h.file(t, "/proc/4242/cmdline", "/usr/bin/koord-nri\x00")
			h.file(t, "/proc/4243/cmdline", "/usr/bin/koord-nri\x00"+c.argv+"\x00")
			if c.file != "" {
				h.file(t, "/proc/4243/root/b.yaml", c.file)
			}
			out, err := h.run(t, "doctor")
			if fails := strings.Contains(out, "more than one koord-nri runs: pids 4242, 4243"); fails != c.fails {
				t.Errorf("told: %t, want %t: %v\n%s", fails, c.fails, err, out)
			}
		})
	}
}

func TestDoctorWithoutThePlugin(t *testing.T) {
	t.Parallel()
	h := newHost(t, "v1")
	out, err := h.run(t, "doctor", "-o", "json")
	if !errors.Is(err, ErrFound) || !strings.Contains(out, "koord-nri has not run") {
		t.Errorf("%v\n%s", err, out)
	}
}
