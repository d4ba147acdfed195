// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/node"
)

// checkRunDir judges the modes: what lies there steers the node.
func (e *env) checkRunDir() check {
	c := check{Name: "run-dir", Result: ok}
	dir := e.path(e.runDir)
	st, err := os.Stat(dir)
	if err != nil {
		return check{Name: c.Name, Result: fail, Detail: err.Error(), Next: "start koord-nri, or give its runDir with --run-dir"}
	}
	var open []string
	if st.Mode().Perm()&0o077 != 0 {
		open = append(open, dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return check{Name: c.Name, Result: fail, Detail: err.Error(), Next: "run koordctl as root"}
	}
	for _, f := range entries {
		if info, err := f.Info(); err == nil && f.Type()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 {
			open = append(open, filepath.Join(dir, f.Name()))
		}
	}
	c.Detail = fmt.Sprintf("%s (%04o)", dir, st.Mode().Perm())
	if len(open) > 0 {
		c.Result, c.Detail = warn, "open to others: "+strings.Join(open, ", ")
		c.Next = "chmod -R go= " + dir
	}
	return c
}

func (e *env) checkLedger() check {
	c := check{Name: "ledger", Result: ok}
	records, torn, err := ledger.ReadAll(e.path(e.runDir))
	if err != nil {
		return check{Name: c.Name, Result: fail, Detail: err.Error(), Next: "run koordctl as root"}
	}
	c.Detail = fmt.Sprintf("%d records", len(records))
	if torn > 0 {
		// One per kill -9 is normal; the records around it are whole.
		c.Detail += fmt.Sprintf(", %d lines cut by a killed writer", torn)
	}
	return c
}

// checkHandoff judges what the node agent has published, against whether it runs.
func (e *env) checkHandoff(found []installed) check {
	c := check{Name: "handoff", Result: ok}
	s := handoff.Read(handoff.Options{RunDir: e.path(e.runDir)})
	if len(s.Problems) > 0 {
		p := s.Problems[0]
		return check{Name: c.Name, Result: warn, Detail: p.File + ": " + p.Reason, Next: "the last good content holds; restart koordlet"}
	}
	agent := slices.ContainsFunc(found, func(d installed) bool {
		return d.writer == writerKoordlet && d.status != nil && d.status.Alive
	})
	switch {
	case s.Strategy == nil && s.Pods == nil && agent:
		c.Result, c.Detail, c.Next = warn, "koordlet runs and has published nothing", "journalctl -u koordlet says why"
	case s.Strategy == nil && s.Pods == nil:
		c.Detail = "no node agent: standalone, with the strategy file"
	case !s.Dynamic.Known:
		c.Result, c.Detail, c.Next = warn, "the agent's dynamic state is missing or has expired", "static defaults hold; see whether koordlet runs"
	default:
		c.Detail = fmt.Sprintf("strategy %d, dynamic %d, pods %d", s.StrategyGeneration, s.DynamicGeneration, s.PodsGeneration)
	}
	return c
}

// agents are programs that write the same kernel files.
var agents = map[string]string{
	"koordlet":            "Koordinator's node agent",
	"katalyst-agent":      "Katalyst's node agent",
	"crane-agent":         "Crane's node agent",
	"nri-resource-policy": "a resource policy plugin of NRI",
	"nri-memory-qos":      "NRI's memory QoS plugin",
	"nri-memtierd":        "NRI's memtierd plugin",
	"nri-sgx-epc":         "NRI's EPC plugin",
}

// checkAgents looks through the processes for others that claim our knobs, and for a second plugin of ours at one runtime. A process that
// keeps one of our status files is ours: our node agent has the name of Koordinator's.
func (e *env) checkAgents(installed []installed) check {
	c := check{Name: "other-agents", Result: ok, Detail: "none"}
	var found []string
	plugins := map[string][]string{} // pids by NRI socket
	dirs, err := os.ReadDir(e.path("/proc"))
	if err != nil {
		return check{Name: c.Name, Result: warn, Detail: err.Error(), Next: "run koordctl in the host's PID namespace"}
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(e.path("/proc"), d.Name(), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		argv0, _, _ := strings.Cut(string(b), "\x00")
		name := filepath.Base(argv0)
		if name == "koord-nri" {
			at := e.socketOf(d.Name(), strings.Split(string(b), "\x00"))
			plugins[at] = append(plugins[at], strconv.Itoa(pid))
		}
		if what := agentOf(name); what != "" && !ours(installed, pid) {
			found = append(found, fmt.Sprintf("%s (pid %d, %s)", name, pid, what))
		}
	}
	double := twice(plugins)
	switch {
	case len(double) > 0:
		c.Result, c.Detail = fail, "more than one koord-nri runs: pids "+strings.Join(double, ", ")
		c.Next = "two connections of one plugin break every container creation: stop all but one"
	case len(found) > 0:
		slices.Sort(found)
		c.Result, c.Detail = warn, strings.Join(found, ", ")
		c.Next = "two writers of one knob undo each other: stop the other, or list its knobs under cede in nri.yaml"
	}
	return c
}

// socketOf is the NRI socket that a koord-nri connects to by its configuration, as the process sees that; "" where it cannot be read.
func (e *env) socketOf(pid string, argv []string) string {
	path, given := "/etc/koord-rt/nri.yaml", false // read when none is given, and it may be absent
	for i, arg := range argv {
		if value, ok := strings.CutPrefix(arg, "--config="); ok {
			path, given = value, true
		} else if arg == "--config" && i+1 < len(argv) {
			path, given = argv[i+1], true
		}
	}
	if !filepath.IsAbs(path) {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(e.path("/proc"), pid, "root", path))
	switch {
	case errors.Is(err, fs.ErrNotExist) && !given:
		return config.Default().Socket
	case err != nil:
		return ""
	}
	c, _, err := config.LoadNRI(data)
	if err != nil {
		return ""
	}
	return c.Socket
}

// twice are the processes that connect to one runtime. Of which it is not known may be any's.
func twice(plugins map[string][]string) []string {
	if unknown := plugins[""]; len(unknown) > 0 {
		var all []string
		for _, pids := range plugins {
			all = append(all, pids...)
		}
		if slices.Sort(all); len(all) > 1 {
			return all
		}
		return nil
	}
	var out []string
	for _, pids := range plugins {
		if len(pids) > 1 {
			out = append(out, pids...)
		}
	}
	slices.Sort(out)
	return out
}

func agentOf(name string) string {
	if what := agents[name]; what != "" {
		return what
	}
	for prefix, what := range agents {
		if strings.HasPrefix(prefix, "nri-") && strings.HasPrefix(name, prefix+"-") {
			return what
		}
	}
	return ""
}

// checkOtherPlugins lists NRI plugins that the runtime starts by itself, from where its configuration says.
func (e *env) checkOtherPlugins(containerd string, plugin *status.Entry) check {
	c := check{Name: "nri-plugins", Result: ok, Detail: "no other is installed"}
	files, err := e.containerdConfig(containerd, plugin)
	if err != nil {
		return check{Name: c.Name, Result: warn, Detail: err.Error(), Next: "run koordctl as root"}
	}
	var others []string
	for _, dir := range []string{
		folderOf(files, plugin, "plugin_path", nriSection, "/opt/nri/plugins"),
		folderOf(files, plugin, "plugin_config_path", nriSection, "/etc/nri/conf.d"),
	} {
		entries, err := os.ReadDir(e.path(dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return check{Name: c.Name, Result: warn, Detail: err.Error(), Next: "run koordctl as root"}
		}
		for _, f := range entries {
			if !strings.Contains(f.Name(), "koord") {
				others = append(others, filepath.Join(dir, f.Name()))
			}
		}
	}
	if len(others) > 0 {
		c.Result, c.Detail = warn, strings.Join(others, ", ")
		c.Next = "where one sets a knob of ours, container creation fails with a conflict: list that knob under cede in nri.yaml"
	}
	return c
}

func (e *env) checkCgroups(kubepods string) check {
	c := check{Name: "cgroups", Result: ok}
	r := e.roots()
	v2 := cgroupVersion(r) == node.CgroupV2
	base, mode := r.Cgroup, "v2"
	if !v2 {
		base, mode = r.Cgroup+"/cpu", "v1"
		if exists(r.Cgroup + "/unified") {
			mode = "hybrid (controllers are v1)"
		}
	}
	pods := filepath.Join(base, kubepods)
	switch {
	case !v2 && !exists(base) && !exists(r.Cgroup+"/cpu,cpuacct"):
		c.Result, c.Detail, c.Next = fail, "no cgroup controller is mounted below "+r.Cgroup, "mount cgroups, or give --host-root"
		return c
	case len(glob(pods+"/*kubepods.slice")) > 0:
		c.Detail = mode + ", systemd driver"
	case exists(pods + "/kubepods"):
		c.Detail = mode + ", cgroupfs driver"
	default:
		c.Result, c.Detail, c.Next = warn, mode+", no kubepods cgroup yet", "it appears with the first pod"
	}
	return c
}

// glob lists what matches; a pattern of ours is never malformed.
func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// checkResctrl warns only where the CPU could do it.
func (e *env) checkResctrl() check {
	c := check{Name: "resctrl", Result: ok, Detail: "mounted"}
	if exists(e.roots().Resctrl + "/schemata") {
		return c
	}
	b, err := readHead(e.path("/proc/cpuinfo"))
	if err != nil {
		c.Result, c.Detail, c.Next = warn, "not mounted; "+err.Error(), "mount -t resctrl resctrl /sys/fs/resctrl where the CPU can"
		return c
	}
	for _, flag := range strings.Fields(string(b)) {
		if flag == "cat_l3" || flag == "mba" || flag == "cqm_llc" {
			c.Result, c.Detail, c.Next = warn, "not mounted, although the CPU has "+flag, "mount -t resctrl resctrl /sys/fs/resctrl"
			return c
		}
	}
	c.Detail = "not mounted; the CPU has neither allocation nor monitoring"
	return c
}
