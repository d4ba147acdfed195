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
	"os"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// DefaultConfig is read when no path is given; it may be absent.
const DefaultConfig = "/etc/koord-rt/nri.yaml"

// maxFile bounds a configuration or strategy file.
const maxFile = 1 << 20

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
	data, err := readFile(out.Path)
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
	out.Strategy, err = readStrategy(out.Config.StrategyFile)
	if out.Strategy != nil {
		out.Source = out.Config.StrategyFile
	}
	return out, err
}

// readStrategy reads a strategy file; nil without error when there is none.
func readStrategy(path string) (*strategy.Spec, error) {
	if path == "" {
		return nil, nil
	}
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read strategy: %w", err)
	}
	spec, err := strategy.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("strategy %s: %w", path, err)
	}
	return &spec, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is no regular file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}
