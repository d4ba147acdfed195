// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// nriSection is containerd's configuration section of NRI.
const nriSection = "io.containerd.nri.v1.nri"

// checkNRIConfig reads whether NRI is switched on. containerd 2 has it on by default, 1.7 off.
func checkNRIConfig(files []text, plugin *status.Entry) check {
	c := check{Name: "nri-config", Result: ok}
	disabled := flagOf(files, plugin, "disable", nriSection)
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

// dropsCDI: the release has no CDI by NRI, whatever is configured.
func dropsCDI(plugin *status.Entry) bool {
	r := nri.Runtime(plugin.RuntimeName, plugin.RuntimeVersion, plugin.NRIVersion)
	return r.NoCDI
}

// cdiSections hold enable_cdi in containerd 1.7 and 2.
var cdiSections = []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}

// checkCDI compares what containerd does with CDI devices of an adjustment with what koord-nri believes: 1.7 applies them
// from 1.7.30 on, with enable_cdi only, and refuses the container without, and it tells nobody; 2 has it on by default.
func checkCDI(files []text, plugin *status.Entry, told string) check {
	c := check{Name: "cdi", Result: ok}
	f := flagOf(files, plugin, "enable_cdi", cdiSections...)
	on, where := f.on, f.file
	if !f.set {
		on, where = !oldContainerd(plugin), "containerd's default"
	}
	c.Detail = fmt.Sprintf("enable_cdi is %t (%s), koord-nri's cdi is %s", on, where, told)
	switch {
	case plugin == nil || plugin.RuntimeName != "containerd":
		c.Detail = "nothing to compare with: koord-nri has not met containerd; its cdi is " + told
	case dropsCDI(plugin):
		c.Detail += "; containerd " + plugin.RuntimeVersion + " drops CDI devices from NRI, so device nodes are used"
		if told == config.CDIOn {
			c.Result, c.Next = warn, "cdi: on has no effect there: upgrade containerd to 1.7.30 or 2.1, or take it out of nri.yaml"
		}
	case !on && told == config.CDIOn, !on && told == config.CDIAuto && !oldContainerd(plugin):
		c.Result = warn
		c.Next = "a container with CDI devices would be refused or start without them: set enable_cdi = true in containerd's configuration, or cdi: off in nri.yaml"
	case on && told == config.CDIAuto && oldContainerd(plugin):
		c.Result = warn
		c.Next = "containerd 1.7 does not tell that it applies CDI devices, so device nodes are used: set cdi: on in nri.yaml"
	}
	return c
}

// checkNRI judges koord-nri with the runtime's side of NRI.
func (e *env) checkNRI(d *installed, containerd, socket string) []check {
	cfg := e.pluginConfig(d.status)
	if socket == "" {
		socket = cfg.Socket
	}
	out := append(e.checkContainerd(containerd, d.status, cfg.CDI), e.checkSocket(socket, socketRule{
		name:   "nri-socket",
		absent: fail, missing: "start containerd with NRI on; give --nri-socket when it lies elsewhere",
		other: "restart containerd",
		open:  warn, shut: 0o007, tighten: "whoever reaches this socket can change every container: chmod o= ",
	}))
	out = append(out, e.checkDaemon(d)...)
	return append(out, checkRuntime(d.status), e.checkConnections(socket, d.status), e.checkLock(d.status), e.checkPriority(d.status))
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
	why, supported := r.Supported()
	switch {
	case !supported:
		c.Result, c.Detail, c.Next = fail, c.Detail+": "+why, "upgrade containerd to 1.7.27 or newer"
	case s.RuntimeName != "containerd":
		c.Result, c.Next = warn, "only containerd is tested at every release; koordctl features says what works"
		if len(r.Problems) > 0 {
			c.Detail += ": " + strings.Join(r.Problems, "; ")
		}
	}
	return c
}

// checkLock finds a second instance: two live connections of one plugin break every container creation.
func (e *env) checkLock(s *status.Entry) check {
	c := check{Name: "lock", Result: ok, Detail: "free"}
	pid := lock.Holder(lock.Path(e.path(e.runDir), writerNRI))
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

// checkPriority compares what koord-nri says of its scheduling with what the kernel does (the policy in /proc/PID/stat).
func (e *env) checkPriority(s *status.Entry) check {
	c := check{Name: "priority", Result: ok}
	if s == nil || s.Err != "" || !s.Alive || s.Scheduling == "" {
		c.Result, c.Detail, c.Next = warn, "not known: koord-nri does not tell how it is scheduled", "start koord-nri, of the same release as koordctl"
		return c
	}
	c.Detail = s.Scheduling
	policy, err := proc.FS(e.path("/proc")).StatPolicy(s.PID)
	switch told := strings.HasPrefix(s.Scheduling, status.InRealTime); {
	case err != nil:
		c.Result, c.Detail, c.Next = warn, s.Scheduling+"; "+err.Error(), "run koordctl as root"
	case told != (policy == proc.SchedRR):
		c.Result, c.Detail = warn, fmt.Sprintf("koord-nri says: %s; the kernel has its main thread in policy %d", s.Scheduling, policy)
		c.Next = "somebody else has changed it (chrt): restart koord-nri"
	case !told && !strings.HasSuffix(s.Scheduling, status.RealTimeOff):
		c.Result = warn
		c.Next = "creations may wait until koord-nri gets a processor; realTime: false in nri.yaml if that is as it should be"
	}
	return c
}
