// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package setup puts koord-runtime-proxy together: configuration, host, decisions, hook servers and sockets.
//
// Input is a configuration and the command line's settings; output is a daemon that is ready to run. All building is here
// and nothing else. It may import every shared room and the proxy's own.
package setup

import (
	"errors"
	"fmt"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine/host"
)

// DefaultConfig is read when no path is given; it may be absent.
const DefaultConfig = "/etc/koord-rt/proxy.yaml"

// Loaded is a configuration with the strategy that was found beside it.
type Loaded = host.Loaded[config.Proxy]

// Load reads the configuration at path, or at DefaultConfig when path is empty, and the strategy file it names, see
// host.Load; given are the flags of the command line, which win over the file.
func Load(path string, given map[string]string) (Loaded, error) {
	return host.Load(path, host.Document[config.Proxy]{
		Path: DefaultConfig, Default: config.DefaultProxy(), Parse: config.LoadProxy,
		Node:     func(c *config.Proxy) *config.Node { return &c.Node },
		Override: func(c *config.Proxy) error { return override(c, given) },
	})
}

func override(c *config.Proxy, given map[string]string) error {
	for _, f := range c.Flags() {
		if v, ok := given[f.Name]; ok {
			*f.Value = v
		}
	}
	if errs := c.Validate(); len(errs) > 0 {
		return fmt.Errorf("command line: %w", errors.Join(errs...))
	}
	return nil
}
