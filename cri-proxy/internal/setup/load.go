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
	"io/fs"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine/host"
)

// DefaultConfig is read when no path is given; it may be absent.
const DefaultConfig = "/etc/koord-rt/proxy.yaml"

// Loaded is a configuration with the strategy that was found beside it.
type Loaded struct {
	Config config.Proxy
	// Path of the configuration file, "" when defaults hold.
	Path string
	// Strategy is nil when neither file has one. Source names where it stands; Inline says that it is the
	// configuration file itself.
	Strategy *strategy.Spec
	Source   string
	Inline   bool
}

// Load reads the configuration at path, or at DefaultConfig when path is empty, and the strategy file it names; given are
// the flags of the command line, which win over the file. A missing strategy file is none; a broken one is an error here,
// because at start there is no last good one.
func Load(path string, given map[string]string) (Loaded, error) {
	out := Loaded{Config: config.DefaultProxy(), Path: path}
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
		if out.Config, out.Strategy, err = config.LoadProxy(data); err != nil {
			return out, fmt.Errorf("configuration %s: %w", out.Path, err)
		}
	}
	for _, f := range out.Config.Flags() {
		if v, ok := given[f.Name]; ok {
			*f.Value = v
		}
	}
	if errs := out.Config.Validate(); len(errs) > 0 {
		return out, fmt.Errorf("command line: %w", errors.Join(errs...))
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
