// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// ErrDocument means that the stream holds a document that does not belong there.
var ErrDocument = errors.New("unexpected document")

// document is the NRIConfig document.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	NRI
	// Strategy is a bare NodeSLO spec.
	Strategy *strategy.Wire `json:"strategy"`
}

// LoadNRI reads a YAML stream of at most one NRIConfig and at most one NodeSLO document; the strategy may instead stand
// as a bare spec under the NRIConfig's key strategy. What the stream does not say is [Default]; the strategy is nil when
// it holds none, and as written otherwise (without defaults). Unknown keys, keys given twice, wrong types, values out of
// range and an empty or cut file are errors that name line and path; nothing is returned then.
func LoadNRI(data []byte) (NRI, *strategy.Spec, error) {
	docs, err := strategy.Documents(data)
	if err != nil {
		return NRI{}, nil, fmt.Errorf("load configuration: %w", err)
	}
	doc := document{NRI: Default()}
	var spec *strategy.Spec
	seen := make(map[string]bool, 2)
	for _, d := range docs {
		apiVersion, kind := d.Header()
		if seen[kind] {
			return NRI{}, nil, fmt.Errorf("load configuration: line %d: %w: second %.60q", d.Line(), ErrDocument, kind)
		}
		seen[kind] = true
		switch {
		case apiVersion == APIVersion && kind == KindNRI:
			err = d.Decode(&doc)
		case apiVersion == strategy.APIVersion && kind == strategy.KindNodeSLO:
			spec, err = nodeSLO(d)
		default:
			err = fmt.Errorf("line %d: %w: %.60q %.60q, want %s %s or %s %s", d.Line(), ErrDocument, apiVersion, kind,
				APIVersion, KindNRI, strategy.APIVersion, strategy.KindNodeSLO)
		}
		if err != nil {
			return NRI{}, nil, fmt.Errorf("load configuration: %w", err)
		}
	}
	if spec, err = doc.strategy(spec); err != nil {
		return NRI{}, nil, fmt.Errorf("load configuration: %w", err)
	}
	if errs := doc.NRI.Validate(); len(errs) > 0 {
		return NRI{}, nil, fmt.Errorf("load configuration: %w", errors.Join(errs...))
	}
	return doc.NRI, spec, nil
}

// nodeSLO reads a NodeSLO document.
func nodeSLO(d strategy.Document) (*strategy.Spec, error) {
	spec, err := d.Spec()
	if err != nil {
		return nil, err
	}
	return &spec, nil
}

// strategy is the spec of the stream: the NodeSLO document's or the bare one, never both.
func (d document) strategy(spec *strategy.Spec) (*strategy.Spec, error) {
	if d.Strategy == nil {
		return spec, nil
	}
	if spec != nil {
		return nil, fmt.Errorf("%w: the strategy is given under strategy and as %s; keep one", ErrDocument,
			strategy.KindNodeSLO)
	}
	bare, err := d.Strategy.Checked()
	if err != nil {
		return nil, fmt.Errorf("strategy: %w", err)
	}
	return &bare, nil
}

// ModeOf is the mode of a feature, active when it is not named.
func (c Node) ModeOf(f protocol.Feature) Mode {
	if mode, ok := c.Features[f.String()]; ok {
		return mode
	}
	return ModeActive
}

// FailsClosed reports whether f is in FailClosed.
func (c Node) FailsClosed(f protocol.Feature) bool { return slices.Contains(c.FailClosed, f.String()) }

// Cedes reports whether a knob is left to another plugin.
func (c Node) Cedes(knob string) bool { return slices.Contains(c.Cede, knob) }
