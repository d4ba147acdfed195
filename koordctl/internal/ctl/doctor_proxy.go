// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// checkProxy looks at what koord-runtime-proxy serves and what stands behind it.
func (e *env) checkProxy(s *status.Entry) []check {
	cfg := config.DefaultProxy()
	if data, ok := e.configOf(s); ok {
		if c, _, err := config.LoadProxy(data); err == nil {
			cfg = c
		}
	}
	// The kubelet connects there. Whoever else does controls every container.
	return []check{e.checkSocket(cfg.ListenPath(), socketRule{
		name:   "proxy-socket",
		absent: warn, missing: "nothing to do when the proxy was started with another --koord-runtimeproxy-endpoint: doctor knows the configuration file only",
		other: "remove it and restart koord-runtime-proxy",
		open:  fail, shut: 0o077, tighten: "whoever reaches this socket controls every container: chmod 0600 ",
	}), checkProxied(s)}
}

// checkProxied judges the runtime behind the proxy by the proxy's own table of releases.
func checkProxied(s *status.Entry) check {
	c := check{Name: "proxied-runtime", Result: ok, Detail: s.RuntimeName + " " + s.RuntimeVersion}
	if s.RuntimeVersion == "" {
		return check{Name: c.Name, Result: warn, Detail: "not known: the proxy has not met it", Next: "start the runtime"}
	}
	if r := cri.Runtime(s.RuntimeName, s.RuntimeVersion); len(r.Problems) > 0 {
		c.Detail += ": " + r.Problems[0]
		if r.Fields == (cri.Runtime("", "")).Fields {
			c.Result, c.Next = warn, "koordctl features says what works with it"
		}
	}
	return c
}
