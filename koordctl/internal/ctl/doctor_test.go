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

// Each case of a socket, with the rule's own verdicts and words.
func TestCheckSocket(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.12")
	h.socket(t, "run", "shut.sock")
	h.socket(t, "run", "open.sock")
	if err := os.Chmod(filepath.Join(h.dir, "run/open.sock"), 0o666); err != nil {
		t.Fatal(err)
	}
	h.file(t, "/run/file", "")
	h.file(t, "/run/dir/x", "")
	e := &env{hostRoot: h.dir}
	rule := socketRule{name: "s", absent: warn, missing: "wait", other: "remove it", shut: 0o007, open: fail, tighten: "chmod o= "}
	for path, want := range map[string]check{
		"/run/shut.sock": {"s", ok, h.dir + "/run/shut.sock (0600)", ""},
		"/run/open.sock": {"s", fail, h.dir + "/run/open.sock is open to others (0666)", "chmod o= " + h.dir + "/run/open.sock"},
		"/run/none.sock": {"s", warn, h.dir + "/run/none.sock does not exist", "wait"},
		"/run/file":      {"s", fail, h.dir + "/run/file is not a socket", "remove it"},
		"/run/dir":       {"s", fail, h.dir + "/run/dir is not a socket", "remove it"},
	} {
		if got := e.checkSocket(path, rule); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
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
		if set, disabled := tomlFlag(text, nriSection, "disable"); set != want[0] || disabled != want[1] {
			t.Errorf("%q: set %v, disabled %v", text, set, disabled)
		}
	}
}

// Which files hold, and what: only what is imported counts, and containerd 1.x takes a plugin's table from the last file whole.
func TestContainerdConfig(t *testing.T) {
	t.Parallel()
	const on, off = "[plugins.'io.containerd.nri.v1.nri']\n disable = false\n", "[plugins.\"io.containerd.nri.v1.nri\"]\n disable = true\n"
	const other = "[plugins.'io.containerd.nri.v1.nri']\n plugin_path = '/x'\n"
	for name, c := range map[string]struct {
		version, main, drop string
		want                verdict
		detail              string
	}{
		"1.7, imported":                     {"1.7.30", "imports = [\"conf.d/*.toml\"]\n", on, ok, "enabled in"},
		"1.7, not imported":                 {"1.7.30", "version = 2\n", on, warn, "off by default"},
		"1.7, the table is replaced":        {"1.7.30", "imports = [\n  '/etc/containerd/conf.d/*.toml', # all\n]\n" + on, other, warn, "off by default"},
		"1.7, another table":                {"1.7.30", "imports = ['conf.d/10.toml']\n" + on, "[plugins.x]\n", ok, "enabled in"},
		"2.4, the tables are joined":        {"2.4.2", "imports = ['conf.d/10.toml']\n" + off, other, fail, "disabled in"},
		"2.4, not imported":                 {"2.4.2", "version = 3\n[plugins]\nimports = ['conf.d/*.toml']\n", off, ok, "on by default"},
		"2.4, no file but a drop-in":        {"2.4.2", "", off, fail, "disabled in"},
		"1.7, no file but a drop-in":        {"1.7.30", "", on, warn, "off by default"},
		"2.4, files that import each other": {"2.4.2", "imports = ['config.toml', 'conf.d/10.toml']\n", "imports = ['../config.toml']\n" + off, fail, "disabled in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "6.12")
			if c.main != "" {
				h.file(t, "/etc/containerd/config.toml", c.main)
			}
			h.file(t, "/etc/containerd/conf.d/10.toml", c.drop)
			plugin := &status.Entry{Status: status.Status{RuntimeName: "containerd", RuntimeVersion: c.version}}
			files, err := (&env{hostRoot: h.dir}).containerdConfig("/etc/containerd/config.toml", plugin)
			if err != nil {
				t.Fatal(err)
			}
			if got := checkNRIConfig(files, plugin); got.Result != c.want || !strings.Contains(got.Detail, c.detail) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// enable_cdi in the last file that has it, against koord-nri's own cdi.
func TestCheckCDI(t *testing.T) {
	t.Parallel()
	on := "[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = true\n"
	off := "[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\n"
	for _, c := range []struct {
		version, told string
		files         []text
		want          verdict
		next          string
	}{
		{"1.7.30", config.CDIAuto, nil, ok, ""},
		{"1.7.30", config.CDIOn, []text{{"a", on}}, ok, ""},
		{"1.7.30", config.CDIAuto, []text{{"a", on}}, warn, "cdi: on"},
		{"1.7.30", config.CDIOn, nil, warn, "enable_cdi = true"},
		{"2.4.2", config.CDIAuto, nil, ok, ""},
		{"2.4.2", config.CDIAuto, []text{{"a", on}, {"b", off}}, warn, "cdi: off"},
		{"2.4.2", config.CDIOff, []text{{"b", off}}, ok, ""},
		{"2.4.2", config.CDIAuto, []text{{"b", off}, {"c", "[plugins.'io.containerd.cri.v1.runtime']\n enable_cdi=true"}}, ok, ""},
	} {
		plugin := &status.Entry{Status: status.Status{RuntimeName: "containerd", RuntimeVersion: c.version}}
		if got := checkCDI(c.files, plugin, c.told); got.Result != c.want || !strings.Contains(got.Next, c.next) || (got.Next == "") != (c.next == "") {
			t.Errorf("%s, cdi %s, %v: %+v", c.version, c.told, c.files, got)
		}
	}
	if got := checkCDI(nil, nil, config.CDIOn); got.Result != ok {
		t.Errorf("without a plugin: %+v", got)
	}
}

// The kubelet's feature gate against what koord-nri takes for the owner of memory.min.
func TestCheckMemoryQoS(t *testing.T) {
	t.Parallel()
	taken := []node.FeatureState{{Feature: "memory-qos", State: "degraded", Detail: "kubelet's MemoryQoS is on: …"}}
	for name, c := range map[string]struct {
		file, told string
		features   []node.FeatureState
		want       verdict
		part       string
	}{
		"no file":           {"", config.MemoryQoSAuto, nil, ok, "no /var/lib/kubelet/config.yaml"},
		"not named":         {"kind: KubeletConfiguration\n", config.MemoryQoSAuto, nil, ok, "does not name MemoryQoS"},
		"not named, seen":   {"kind: KubeletConfiguration\n", config.MemoryQoSAuto, taken, ok, "does not name MemoryQoS"},
		"on and seen":       {"featureGates: {MemoryQoS: true}\n", config.MemoryQoSAuto, taken, ok, "is true"},
		"on and told":       {"featureGates: {MemoryQoS: true}\n", config.MemoryQoSYes, taken, ok, "is true"},
		"on, not seen":      {"featureGates: {MemoryQoS: true}\n", config.MemoryQoSAuto, nil, warn, "kubeletMemoryQoS: yes"},
		"on, told no":       {"featureGates: {MemoryQoS: true}\n", config.MemoryQoSNo, nil, warn, "two writers"},
		"off, told yes":     {"featureGates: {MemoryQoS: false}\n", config.MemoryQoSYes, taken, warn, "nobody protects"},
		"off, but taken":    {"featureGates: {MemoryQoS: false}\n", config.MemoryQoSAuto, taken, warn, "leftover"},
		"off":               {"featureGates: {MemoryQoS: false}\n", config.MemoryQoSAuto, nil, ok, "is false"},
		"not a YAML object": {"- [", config.MemoryQoSAuto, nil, warn, "correct"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "6.12")
			if c.file != "" {
				h.file(t, kubeletConfig, c.file)
			}
			e := &env{hostRoot: h.dir}
			d := &installed{daemon: daemons()[0], status: &status.Entry{Status: status.Status{Features: c.features}}}
			got := e.checkMemoryQoS(d, c.told)
			if got.Result != c.want || !strings.Contains(got.Detail+got.Next, c.part) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The verdict on the runtime is the plugin's own table's.
func TestCheckRuntime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, version, nri string
		want               verdict
		part               string
	}{
		{"containerd", "v1.7.27", "0.8", ok, "containerd v1.7.27"},
		{"containerd", "1.7.26", "0.8", fail, "older than 1.7.27"},
		{"containerd", "2.0.0-rc.1", "0.8", ok, ""},
		{"cri-o", "1.37.0", "0.12", warn, ""},
		{"containerd", "weekly", "", fail, "not known"},
	} {
		got := checkRuntime(&status.Entry{Status: status.Status{RuntimeName: c.name, RuntimeVersion: c.version, NRIVersion: c.nri}})
		if got.Result != c.want || !strings.Contains(got.Detail, c.part) || (got.Next == "") != (c.want == ok) {
			t.Errorf("%s %s: %+v", c.name, c.version, got)
		}
	}
	if got := checkRuntime(nil); got.Result != warn {
		t.Errorf("without a plugin: %+v", got)
	}
}
