// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// Loaded is a program's configuration with the strategy that was found beside it.
type Loaded[C any] struct {
	Config C
	// Path of the configuration file, "" when defaults hold.
	Path string
	// Strategy is nil when neither file has one. Source names where it stands; Inline says that it is the
	// configuration file itself.
	Strategy *strategy.Spec
	Source   string
	Inline   bool
	// Again reads the file's content as it is later; nil without a file.
	Again Again
}

// Again reads what a configuration file holds after the start: the strategy in it, nil for none, and the keys that say something else than at the
// start, by their dotted names and in order.
type Again func(data []byte) (spec *strategy.Spec, changed []string, err error)

// Document is how the configuration of one program is read. All fields are required unless a comment says otherwise.
type Document[C any] struct {
	// Path is read when no other is given; it may be absent.
	Path string
	// Default is the configuration of an empty file.
	Default C
	// Parse is api/config's function for the document: it returns the strategy of the stream too, nil for none.
	Parse func([]byte) (C, *strategy.Spec, error)
	// Node is the part of the configuration that names the strategy file.
	Node func(*C) *config.Node
	// Override changes what was read, as the command line says; may be nil.
	Override func(*C) error
}

// Load reads the configuration at path, or at the document's own when path is empty, and the strategy file it names. A
// NodeSLO manifest alone is a configuration: defaults and that strategy. A missing strategy file is none; a broken one is
// an error here, because at start there is no last good one.
func Load[C any](path string, d Document[C]) (Loaded[C], error) {
	out := Loaded[C]{Config: d.Default, Path: path}
	if path == "" {
		out.Path = d.Path
	}
	data, err := ReadFile(out.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == "":
		out.Path = ""
	case err != nil:
		return out, fmt.Errorf("read configuration: %w", err)
	default:
		cfg, spec, err := d.Parse(data)
		if err != nil {
			return out, fmt.Errorf("configuration %s: %w", out.Path, err)
		}
		out.Config, out.Strategy = cfg, spec
		first, err := treeOf(cfg)
		if err != nil {
			return out, err
		}
		out.Again = func(data []byte) (*strategy.Spec, []string, error) {
			cfg, spec, err := d.Parse(data)
			if err != nil {
				return nil, nil, err
			}
			now, err := treeOf(cfg)
			return spec, differing("", first, now), err
		}
	}
	if d.Override != nil {
		if err := d.Override(&out.Config); err != nil {
			return out, err
		}
	}
	if out.Strategy != nil {
		out.Source, out.Inline = out.Path, true
		return out, nil
	}
	file := d.Node(&out.Config).StrategyFile
	if out.Strategy, err = ReadStrategy(file); out.Strategy != nil {
		out.Source = file
	}
	return out, err
}
