// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxSocketPath is the longest path of a unix socket (sun_path less its final NUL, unix(7)).
const maxSocketPath = 107

// Validate checks every setting. Each error names the key, the value and what is wanted; their order is fixed.
func (c *Proxy) Validate() []error {
	k := &checker{}
	k.sockets(c)
	k.hooks(&c.Hooks)
	k.node(&c.Node)
	k.pace(c.Reconnect)
	return k.errs
}

func (k *checker) sockets(c *Proxy) {
	k.socket("endpoint", c.Endpoint)
	k.socket("runtimeEndpoint", c.RuntimeEndpoint)
	if c.ImageEndpoint != "" {
		k.socket("imageEndpoint", c.ImageEndpoint)
	}
	if c.ListenPath() == c.RuntimePath() || c.ListenPath() == c.ImagePath() {
		k.fail("endpoint", c.Endpoint, "another socket than the runtime's: the proxy would call itself")
	}
	k.oneOf("backendMode", string(c.BackendMode), string(BackendContainerd), string(BackendDocker))
	if c.BackendMode == BackendDocker && c.ImageEndpoint != "" {
		k.fail("imageEndpoint", c.ImageEndpoint, "nothing in mode Docker, which has one socket")
	}
}

func (k *checker) socket(key, endpoint string) {
	p := socketPath(endpoint)
	if !cleanAbsolute(p) || len(p) > maxSocketPath {
		k.fail(key, endpoint, fmt.Sprintf("/path or unix:///path of at most %d bytes without ..", maxSocketPath))
	}
}

func (k *checker) hooks(h *ProxyHooks) {
	if h.Dir != "" && !cleanAbsolute(h.Dir) {
		k.fail("hooks.dir", h.Dir, "an absolute path without .., or nothing")
	}
	if h.ServerKey == "" || strings.ContainsAny(h.ServerKey, " \t\n\x00") {
		k.fail("hooks.serverKey", h.ServerKey, "a label's name")
	}
	k.oneOf("hooks.merge", string(h.Merge), string(HookYields), string(HookReplaces))
	for _, name := range slices.Sorted(maps.Keys(h.Servers)) {
		if name == "" || len(name) > 63 || strings.ContainsFunc(name, notNameRune) {
			k.fail("hooks.servers", name, "the name of a hook server's file without .json: letters, digits, . _ and -")
			continue
		}
		k.oneOf("hooks.servers."+name, string(h.Servers[name]), string(HookYields), string(HookReplaces))
	}
	if h.Timeout != 0 {
		k.within("hooks.timeout", h.Timeout, 10*time.Millisecond, 2*time.Minute)
	}
}
