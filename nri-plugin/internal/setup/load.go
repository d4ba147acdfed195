// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package setup puts koord-nri together: configuration, probe, ledger, plugin and endpoints, as components of one run
// group.
//
// Input is a configuration file's path; output is a group that is ready to run. All building is here and nothing else;
// the deciding, writing and talking is done by the rooms it connects.
package setup

import (
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine/host"
)

// DefaultConfig is read when no path is given; it may be absent.
const DefaultConfig = "/etc/koord-rt/nri.yaml"

// Loaded is a configuration with the strategy that was found beside it.
type Loaded = host.Loaded[config.NRI]

// Load reads the configuration at path, or at DefaultConfig when path is empty, and the strategy file it names; see
// host.Load.
func Load(path string) (Loaded, error) {
	return host.Load(path, host.Document[config.NRI]{
		Path: DefaultConfig, Default: config.Default(), Parse: config.LoadNRI,
		Node: func(c *config.NRI) *config.Node { return &c.Node },
	})
}
