// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package setup puts koord-nri together: configuration, probe, ledger, plugin and endpoints, as components of one run
// group.
//
// Input is a configuration file's path; output is a group that is ready to run. All building is here and nothing else;
// the deciding, writing and talking is done by the rooms it connects.
package setup

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine/host"
)

// DefaultConfig is read when no path is given; it may be absent.
const DefaultConfig = "/etc/koord-rt/nri.yaml"

// Loaded is a configuration with the strategy that was found beside it.
type Loaded struct {
	Config config.NRI
	// Path of the configuration file, "" when defaults hold.
	Path string
	// Strategy is nil when neither file has one. Source names where it stands; Inline says that it is the
	// configuration file itself.
	Strategy *strategy.Spec
	Source   string
	Inline   bool
}

// Load reads the configuration at path, or at DefaultConfig when path is empty, and the strategy file it names. A NodeSLO
// manifest alone is a configuration: defaults and that strategy. A missing strategy file is none; a broken one is an
// error here, because at start there is no last good one.
func Load(path string) (Loaded, error) {
	out := Loaded{Config: config.Default(), Path: path}
	if path == "" {
		out.Path = DefaultConfig
	}
	data, err := host.ReadFile(out.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == "":
		out.Path = ""
	case err != nil:
		return out, fmt.Errorf("read configuration: %w", err)
	default:
		cfg, spec, err := config.LoadNRI(data)
		if err != nil {
			return out, fmt.Errorf("configuration %s: %w", out.Path, err)
		}
		out.Config, out.Strategy = cfg, spec
	}
	if out.Strategy != nil {
		out.Source, out.Inline = out.Path, true
		return out, nil
	}
	out.Strategy, err = host.ReadStrategy(out.Config.StrategyFile)
	if out.Strategy != nil {
		out.Source = out.Config.StrategyFile
	}
	return out, err
}
