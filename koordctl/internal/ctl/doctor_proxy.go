// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"fmt"
	"os"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// proxyConfig is the configuration that the running proxy names, else the default. Flags of its command line are not in it.
func (e *env) proxyConfig(s *status.Entry) config.Proxy {
	if s.ConfigPath != "" {
		if data, err := os.ReadFile(e.path(s.ConfigPath)); err == nil {
			if c, _, err := config.LoadProxy(data); err == nil {
				return c
			}
		}
	}
	return config.DefaultProxy()
}

// checkProxy judges koord-runtime-proxy on a node that has it.
func (e *env) checkProxy(s *status.Entry) []check {
	const start = "systemctl start koord-runtime-proxy, or the kubelet behind it reaches no runtime; journalctl -u koord-runtime-proxy says why it ended"
	c := check{Name: "proxy", Result: ok}
	switch {
	case s.Err != "":
		c.Result, c.Detail, c.Next = fail, s.Err, "run koordctl as root, of the same release as koord-runtime-proxy"
		return []check{c}
	case !s.Alive:
		c.Result, c.Detail, c.Next = fail, fmt.Sprintf("%s (pid %d) is not running", s.ProgramVersion, s.PID), start
		return []check{c}
	case s.ConnectedSince.IsZero():
		c.Result, c.Detail = fail, fmt.Sprintf("%s (pid %d) runs, but the runtime behind it does not answer", s.ProgramVersion, s.PID)
		c.Next = "start the runtime; runtimeEndpoint in proxy.yaml says where it is looked for"
	default:
		c.Detail = fmt.Sprintf("%s (pid %d), connected since %s", s.ProgramVersion, s.PID, s.ConnectedSince.UTC().Format("2006-01-02T15:04:05Z"))
	}
	cfg := e.proxyConfig(s)
	out := []check{c, e.checkProxySocket(cfg.ListenPath()), checkProxied(s)}
	return append(out, checkCounters(s)...)
}

// checkProxySocket looks at the socket that the kubelet connects to.
func (e *env) checkProxySocket(socket string) check {
	c := check{Name: "proxy-socket", Result: ok}
	path := e.path(socket)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.Result, c.Detail = warn, path+" does not exist"
		c.Next = "nothing to do when the proxy was started with another --koord-runtimeproxy-endpoint: doctor knows the configuration file only"
	case err != nil:
		c.Result, c.Detail, c.Next = fail, err.Error(), "run koordctl as root"
	case st.Mode().Type() != os.ModeSocket:
		c.Result, c.Detail, c.Next = fail, path+" is not a socket", "remove it and restart koord-runtime-proxy"
	case st.Mode().Perm()&0o077 != 0:
		c.Result, c.Detail = fail, fmt.Sprintf("%s is open to others (%04o)", path, st.Mode().Perm())
		c.Next = "whoever reaches this socket controls every container: chmod 0600 " + path
	default:
		c.Detail = fmt.Sprintf("%s (%04o)", path, st.Mode().Perm())
	}
	return c
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
