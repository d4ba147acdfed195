// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// nriSection is containerd's configuration section of NRI.
const nriSection = "io.containerd.nri.v1.nri"

// checkNRIConfig reads whether NRI is switched on. containerd 2 has it on by default, 1.7 off.
func checkNRIConfig(files []text, plugin *status.Entry) check {
	c := check{Name: "nri-config", Result: ok}
	disabled := flagOf(files, "disable", nriSection)
	const enable = `set disable = false in [plugins."` + nriSection + `"] of containerd's configuration and restart containerd`
	switch {
	case disabled.set && disabled.on:
		c.Result, c.Detail, c.Next = fail, "NRI is disabled in "+disabled.file, enable
	case disabled.set:
		c.Detail = "NRI is enabled in " + disabled.file
	case oldContainerd(plugin):
		c.Result, c.Detail, c.Next = warn, "NRI is not configured, and containerd 1.x has it off by default", enable
	default:
		c.Detail = "NRI is not configured: on by default in containerd 2, off in 1.7"
	}
	return c
}

// oldContainerd: 1.x has NRI and CDI off by default.
func oldContainerd(plugin *status.Entry) bool {
	return plugin != nil && plugin.RuntimeName == "containerd" && strings.HasPrefix(strings.TrimPrefix(plugin.RuntimeVersion, "v"), "1.")
}

// readHead reads at most 1 MiB of a file.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// text is a file that was read.
type text struct{ path, content string }

// containerdConfig reads containerd's configuration and its drop-ins, in the order in which they hold.
func (e *env) containerdConfig(config string) ([]text, error) {
	paths := append([]string{e.path(config)}, glob(e.path(filepath.Join(filepath.Dir(config), "conf.d", "*.toml")))...)
	var out []text
	for _, p := range paths {
		b, err := readHead(p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, text{p, string(b)})
	}
	return out, nil
}

// flagIn is a boolean of a configuration: the last file that sets it holds.
type flagIn struct {
	set, on bool
	file    string
}

func flagOf(files []text, key string, plugins ...string) (out flagIn) {
	for _, f := range files {
		for _, p := range plugins {
			if set, on := tomlFlag(f.content, p, key); set {
				out = flagIn{set, on, f.path}
			}
		}
	}
	return out
}

// tomlFlag finds a boolean key of a plugin's section in a TOML text: the header in any quoting, then the section's own
// keys.
func tomlFlag(text, plugin, key string) (set, on bool) {
	in := false
	for l := range strings.Lines(text) {
		l, _, _ = strings.Cut(l, "#")
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "[") {
			name := strings.Trim(strings.NewReplacer(`"`, "", `'`, "", " ", "").Replace(l), "[]")
			in = name == "plugins."+plugin
			continue
		}
		k, v, isPair := strings.Cut(l, "=")
		if in && isPair && strings.TrimSpace(k) == key {
			set, on = true, strings.TrimSpace(v) == "true"
		}
	}
	return set, on
}

// cdiSections hold enable_cdi in containerd 1.7 and 2.
var cdiSections = []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}

// checkCDI compares what containerd does with CDI devices of an adjustment with what koord-nri believes: 1.7 applies them
// with enable_cdi only and refuses the container without, and it tells nobody; 2 has it on by default.
func checkCDI(files []text, plugin *status.Entry, told string) check {
	c := check{Name: "cdi", Result: ok}
	f := flagOf(files, "enable_cdi", cdiSections...)
	on, where := f.on, f.file
	if !f.set {
		on, where = !oldContainerd(plugin), "containerd's default"
	}
	c.Detail = fmt.Sprintf("enable_cdi is %t (%s), koord-nri's cdi is %s", on, where, told)
	switch {
	case plugin == nil || plugin.RuntimeName != "containerd":
		c.Detail = "nothing to compare with: koord-nri has not met containerd; its cdi is " + told
	case !on && told == config.CDIOn, !on && told == config.CDIAuto && !oldContainerd(plugin):
		c.Result = warn
		c.Next = "a container with CDI devices would be refused or start without them: set enable_cdi = true in containerd's configuration, or cdi: off in nri.yaml"
	case on && told == config.CDIAuto && oldContainerd(plugin):
		c.Result = warn
		c.Next = "containerd 1.7 does not tell that it applies CDI devices, so device nodes are used: set cdi: on in nri.yaml"
	}
	return c
}

func (e *env) checkNRISocket(socket string) check {
	c := check{Name: "nri-socket", Result: ok}
	path := e.path(socket)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.Result, c.Detail = fail, path+" does not exist"
		c.Next = "start containerd with NRI on; give --nri-socket when it lies elsewhere"
	case err != nil:
		c.Result, c.Detail, c.Next = fail, err.Error(), "run koordctl as root"
	case st.Mode().Type() != os.ModeSocket:
		c.Result, c.Detail, c.Next = fail, path+" is not a socket", "restart containerd"
	case st.Mode().Perm()&0o007 != 0:
		c.Result, c.Detail = warn, fmt.Sprintf("%s is open to others (%04o)", path, st.Mode().Perm())
		c.Next = "whoever reaches this socket can change every container: chmod o= " + path
	default:
		c.Detail = fmt.Sprintf("%s (%04o)", path, st.Mode().Perm())
	}
	return c
}

// checkPlugin judges the plugin's own description.
func checkPlugin(s *status.Entry, runDir string) []check {
	const start = "systemctl start koord-nri; journalctl -u koord-nri says why it ended"
	c := check{Name: "plugin", Result: ok}
	switch {
	case s == nil:
		c.Result, c.Detail, c.Next = fail, "no status file in "+runDir+": koord-nri has not run", start
		return []check{c}
	case s.Err != "":
		c.Result, c.Detail, c.Next = fail, s.Err, "run koordctl as root, of the same release as koord-nri"
		return []check{c}
	case !s.Alive:
		c.Result, c.Detail, c.Next = fail, fmt.Sprintf("%s (pid %d) is not running", s.ProgramVersion, s.PID), start
		return []check{c}
	case s.ConnectedSince.IsZero():
		c.Result, c.Detail = fail, fmt.Sprintf("%s (pid %d) runs but is not connected to the runtime", s.ProgramVersion, s.PID)
		c.Next = "see nri-config and nri-socket; the plugin connects by itself once NRI is on"
	default:
		c.Detail = fmt.Sprintf("%s (pid %d), connected since %s", s.ProgramVersion, s.PID, s.ConnectedSince.UTC().Format("2006-01-02T15:04:05Z"))
	}
	return append([]check{c}, checkCounters(s)...)
}

func checkCounters(s *status.Entry) []check {
	c := check{Name: "guarantees", Result: ok, Detail: fmt.Sprintf("%d containers, none without guarantees", s.Counters["containers"])}
	switch {
	case len(s.ProofFailures) > 0:
		c.Result, c.Detail = warn, fmt.Sprintf("%d containers did not have every value at start", len(s.ProofFailures))
		c.Next = "koordctl diff lists what differs now"
	case s.Counters["unmanaged"] > 0 || s.Counters["failOpen"] > 0:
		c.Result, c.Detail = warn, fmt.Sprintf("%d containers came up without us, %d decisions failed open", s.Counters["unmanaged"], s.Counters["failOpen"])
		c.Next = "what has no NRI field was repaired afterwards; recreate pods that need the rest"
	}
	out := []check{c}
	if n := len(s.Problems); n > 0 {
		p := s.Problems[n-1]
		detail := fmt.Sprintf("%d, the last: %s %s: %s", n, p.Where, p.Key, p.Reason)
		out = append(out, check{Name: "problems", Result: warn, Detail: detail, Next: "koordctl features -o json lists them"})
	}
	return out
}

// checkRuntime judges the runtime by the plugin's own table of releases.
func checkRuntime(s *status.Entry) check {
	c := check{Name: "runtime", Result: ok}
	if s == nil || s.RuntimeVersion == "" {
		c.Result, c.Detail, c.Next = warn, "not known: the plugin has not been connected", "connect the plugin first"
		return c
	}
	c.Detail = s.RuntimeName + " " + s.RuntimeVersion + ", NRI " + s.NRIVersion
	r := nri.Runtime(s.RuntimeName, s.RuntimeVersion, s.NRIVersion)
	why, supported := nri.Supported(&r)
	switch {
	case !supported:
		c.Result, c.Detail, c.Next = fail, c.Detail+": "+why, "upgrade containerd to 1.7.27 or newer"
	case s.RuntimeName != "containerd":
		c.Result, c.Next = warn, "only containerd is tested; koordctl features says what works"
	}
	return c
}

// checkLock finds a second instance: two live connections of one plugin break every container creation.
func (e *env) checkLock(s *status.Entry) check {
	c := check{Name: "lock", Result: ok, Detail: "free"}
	pid := lock.Holder(lock.Path(e.path(e.runDir), "nri"))
	if pid == 0 {
		return c
	}
	c.Detail = fmt.Sprintf("held by process %d", pid)
	if s != nil && s.Alive && s.PID != pid {
		c.Result, c.Detail = warn, fmt.Sprintf("process %d has it, but process %d wrote the status", pid, s.PID)
		c.Next = "only one koord-nri may run: stop the one that systemd does not know"
	}
	return c
}
