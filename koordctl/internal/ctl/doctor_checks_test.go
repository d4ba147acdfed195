// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/node"
)

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
		if set, disabled := tomlKey(text, nriSection, "disable"); set != want[0] || (disabled == "true") != want[1] {
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
		{"1.7.29", config.CDIAuto, []text{{"a", on}}, ok, ""},
		{"1.7.29", config.CDIOn, []text{{"a", on}}, warn, "1.7.30"},
		{"1.7.27", config.CDIOn, nil, warn, "1.7.30"},
		{"2.0.5", config.CDIOn, nil, warn, "2.1"},
		{"2.0.5", config.CDIAuto, []text{{"b", off}}, ok, ""},
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
		"on, protects":      {"featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation\n", config.MemoryQoSYes, taken, ok, "MemoryQoS is true, koord-nri"},
		"on, perhaps none":  {"featureGates: {MemoryQoS: true}\n", config.MemoryQoSYes, taken, ok, "since Kubernetes 1.36 protects no memory without"},
		"on, protects none": {"featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: None\n", config.MemoryQoSAuto, nil, warn, "once a minute"},
		"on, none, told so": {"featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: None\n", config.MemoryQoSYes, taken, warn, "nobody protects"},
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
		{"cri-o", "1.37.0", "0.12", warn, "starts a container whose start koord-nri refuses"},
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

// Whether the API server holds koordlet to its node is what koordlet says of it; nothing where it says nothing.
func TestCheckOwnNode(t *testing.T) {
	t.Parallel()
	agent := func(sources ...status.Source) *status.Entry {
		return &status.Entry{Status: status.Status{Agent: &status.Agent{Sources: sources}}}
	}
	node := status.Source{Name: "node", State: status.StateDegraded, Reason: "connection refused"}
	for name, s := range map[string]*status.Entry{"no section": {}, "no API server": agent(), "of an older release": agent(node)} {
		if got := (&env{}).checkOwnNode(s); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for want, from := range map[verdict]status.Source{
		ok:   {Name: "own-node", State: status.StateActive},
		warn: {Name: "own-node", State: status.StateDegraded, Reason: "the API server does not hold koordlet to its node"},
	} {
		got := (&env{}).checkOwnNode(agent(node, from))
		if len(got) != 1 || got[0].Name != "own-node" || got[0].Result != want || !strings.Contains(got[0].Detail, from.Reason) || (got[0].Next == "") != (want == ok) {
			t.Errorf("%s: %+v", want, got)
		}
	}
	// Of a server that has told nothing it is not said that a policy is missing.
	away := status.Source{Name: "own-node", State: status.StateDegraded, Reason: "not known: connection refused"}
	if got := (&env{}).checkOwnNode(agent(away)); len(got) != 1 || got[0].Result != warn || got[0].Detail != away.Reason || got[0].Next == "" ||
		strings.Contains(got[0].Next, "ValidatingAdmissionPolicy") {
		t.Errorf("not known: %+v", got)
	}
	// Right after a start nothing is known that a policy could mend.
	got := (&env{}).checkOwnNode(agent(node, status.Source{Name: "own-node", State: status.StateDegraded, Reason: status.NotAskedYet}))
	want := []check{{
		Name: "own-node", Result: warn, Detail: "not asked yet: koordlet asks within ten seconds of its start",
		Next: "look again in ten seconds",
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("at first (-want +got):\n%s", d)
	}
}
