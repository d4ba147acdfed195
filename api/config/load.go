// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"

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
	doc := document{NRI: Default()}
	spec, err := stream(data, KindNRI, &doc, func() []error { return doc.NRI.Validate() }, &doc.Strategy)
	if err != nil {
		return NRI{}, nil, err
	}
	return doc.NRI, spec, nil
}

// stream reads a program's document of that kind into doc, validates it, and returns the strategy of the stream: the
// NodeSLO document's or the bare one that has been read into bare, never both.
func stream(data []byte, kind string, doc any, validate func() []error, bare **strategy.Wire) (*strategy.Spec, error) {
	spec, err := read(data, kind, doc)
	if err == nil {
		spec, err = oneStrategy(*bare, spec)
	}
	if err == nil {
		err = errors.Join(validate()...)
	}
	if err != nil {
		return nil, fmt.Errorf("load configuration: %w", err)
	}
	return spec, nil
}

func read(data []byte, kind string, doc any) (spec *strategy.Spec, err error) {
	docs, err := strategy.Documents(data)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, 2)
	for _, d := range docs {
		version, this := d.Header()
		if seen[this] {
			return nil, fmt.Errorf("line %d: %w: second %.60q", d.Line(), ErrDocument, this)
		}
		seen[this] = true
		switch {
		case version == APIVersion && this == kind:
			err = d.Decode(doc)
		case version == strategy.APIVersion && this == strategy.KindNodeSLO:
			spec, err = nodeSLO(d)
		default:
			err = fmt.Errorf("line %d: %w: %.60q %.60q, want %s %s or %s %s", d.Line(), ErrDocument, version, this,
				APIVersion, kind, strategy.APIVersion, strategy.KindNodeSLO)
		}
		if err != nil {
			return nil, err
		}
	}
	return spec, nil
}

// nodeSLO reads a NodeSLO document.
func nodeSLO(d strategy.Document) (*strategy.Spec, error) {
	spec, err := d.Spec()
	if err != nil {
		return nil, err
	}
	return &spec, nil
}

// oneStrategy is the NodeSLO document's spec or the bare one.
func oneStrategy(bare *strategy.Wire, spec *strategy.Spec) (*strategy.Spec, error) {
	if bare == nil {
		return spec, nil
	}
	if spec != nil {
		return nil, fmt.Errorf("%w: the strategy is given under strategy and as %s; keep one", ErrDocument,
			strategy.KindNodeSLO)
	}
	checked, err := bare.Checked()
	if err != nil {
		return nil, fmt.Errorf("strategy: %w", err)
	}
	return &checked, nil
}

// ModeOf is the mode of a feature, active when it is not named.
func (c Node) ModeOf(f protocol.Feature) Mode {
	if mode, ok := c.Features[f.String()]; ok {
		return mode
	}
	return ModeActive
}
