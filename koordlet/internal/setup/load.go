// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package setup puts koordlet together: configuration, host, sources, scanner, loops.
//
// Input is a configuration; output is a daemon that is ready to run. All building is here and nothing else. It may import
// every shared room and the agent's own.
package setup

import (
	"fmt"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine/host"
)

// DefaultConfig is read when no path is given; it may be absent.
const DefaultConfig = "/etc/koord-rt/koordlet.yaml"

// Loaded is the configuration with the strategy that was found beside it.
type Loaded = host.Loaded[config.Koordlet]

// Load reads the configuration at path, or at DefaultConfig when path is empty; given are the flags of the command line,
// which win over the file. notes say which of them have no effect.
func Load(path string, given map[string]string) (l Loaded, notes []string, err error) {
	l, err = host.Load(path, host.Document[config.Koordlet]{
		Path: DefaultConfig, Default: config.DefaultKoordlet(), Parse: config.LoadKoordlet,
		Node: func(c *config.Koordlet) *config.Node { return &c.Node },
		Override: func(c *config.Koordlet) error {
			if len(given) == 0 {
				return nil
			}
			var err error
			if notes, err = c.SetFlags(given); err != nil {
				return fmt.Errorf("command line: %w", err)
			}
			return nil
		},
	})
	return l, notes, err
}
