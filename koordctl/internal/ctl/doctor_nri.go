// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// nriSection is containerd's configuration section of NRI.
const nriSection = "io.containerd.nri.v1.nri"

// checkNRIConfig reads whether NRI is switched on. containerd 2 has it on by default, 1.7 off.
func (e *env) checkNRIConfig(config string, plugin *status.Entry) check {
	c := check{Name: "nri-config", Result: ok}
	files := []string{e.path(config)}
	more, err := filepath.Glob(e.path(filepath.Join(filepath.Dir(config), "conf.d", "*.toml")))
	if err == nil {
		files = append(files, more...)
	}
	set, disabled, from := false, false, ""
	for _, f := range files {
		b, err := readHead(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return check{Name: c.Name, Result: warn, Detail: err.Error(), Next: "run koordctl as root"}
		}
		if s, d := nriDisabled(string(b)); s {
			set, disabled, from = true, d, f
		}
	}
	const enable = `set disable = false in [plugins."` + nriSection + `"] of containerd's configuration and restart containerd`
	old := plugin != nil && strings.HasPrefix(strings.TrimPrefix(plugin.RuntimeVersion, "v"), "1.")
	switch {
	case set && disabled:
		c.Result, c.Detail, c.Next = fail, "NRI is disabled in "+from, enable
	case set:
		c.Detail = "NRI is enabled in " + from
	case old:
		c.Result, c.Detail, c.Next = warn, "NRI is not configured, and containerd 1.x has it off by default", enable
	default:
		c.Detail = "NRI is not configured: on by default in containerd 2, off in 1.7"
	}
	return c
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

// nriDisabled finds NRI's "disable" in a TOML text: the section's header in any quoting, then its own key.
func nriDisabled(text string) (set, disabled bool) {
	in := false
	for l := range strings.Lines(text) {
		l, _, _ = strings.Cut(l, "#")
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "[") {
			name := strings.Trim(strings.NewReplacer(`"`, "", `'`, "", " ", "").Replace(l), "[]")
			in = name == "plugins."+nriSection
			continue
		}
		k, v, isPair := strings.Cut(l, "=")
		if in && isPair && strings.TrimSpace(k) == "disable" {
			set, disabled = true, strings.TrimSpace(v) == "true"
		}
	}
	return set, disabled
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

// oldestContainerd is the first release whose NRI does what we need.
var oldestContainerd = [3]int{1, 7, 27}

func checkRuntime(s *status.Entry) check {
	c := check{Name: "runtime", Result: ok}
	if s == nil || s.RuntimeVersion == "" {
		c.Result, c.Detail, c.Next = warn, "not known: the plugin has not been connected", "connect the plugin first"
		return c
	}
	c.Detail = s.RuntimeName + " " + s.RuntimeVersion + ", NRI " + s.NRIVersion
	if s.RuntimeName != "containerd" {
		c.Result, c.Next = warn, "only containerd is tested; koordctl features says what works"
		return c
	}
	v, good := parseVersion(s.RuntimeVersion)
	switch {
	case !good:
		c.Result, c.Next = warn, "the version cannot be read; containerd 1.7.27 or newer is needed"
	case slices.Compare(v[:], oldestContainerd[:]) < 0:
		c.Result, c.Next = fail, "not supported: upgrade containerd to 1.7.27 or newer"
	}
	return c
}

// parseVersion reads the first three numbers of "v1.7.27-rc.1".
func parseVersion(s string) (v [3]int, good bool) {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "v"), "-")
	s, _, _ = strings.Cut(s, "+")
	parts := strings.Split(s, ".")
	if len(parts) < 3 {
		return v, false
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// checkLock finds a second instance: two live connections of one plugin break every container creation.
func (e *env) checkLock(s *status.Entry) check {
	c := check{Name: "lock", Result: ok, Detail: "free"}
	pid := lock.Holder(lock.NRIPath(e.path(e.runDir)))
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
