// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"maps"
	"slices"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// Bounds of ratios.
const (
	minRatio         = 1
	maxNormalization = 5
	maxAmplification = 100
)

// NormalizationStrategy is one layer of cpu-normalization-config.
type NormalizationStrategy struct {
	// Enable, default false.
	Enable *bool `json:"enable,omitempty"`
	// DefaultRatio is that of a model that is not listed; 1..5, none by default.
	DefaultRatio *Number `json:"defaultRatio,omitempty"`
	// RatioModel holds ratios by CPU model, as the node reports it.
	RatioModel map[string]ModelRatio `json:"ratioModel,omitempty"`
}

// ModelRatio are the ratios of one CPU model, 1..5.
type ModelRatio struct {
	BaseRatio                    *Number `json:"baseRatio,omitempty"`
	HyperThreadEnabledRatio      *Number `json:"hyperThreadEnabledRatio,omitempty"`
	TurboEnabledRatio            *Number `json:"turboEnabledRatio,omitempty"`
	HyperThreadTurboEnabledRatio *Number `json:"hyperThreadTurboEnabledRatio,omitempty"`
}

// Normalization is what holds for one node.
type Normalization struct {
	Enable bool
	// DefaultRatio is nil where none is given.
	DefaultRatio *float64
	// Models by name; not to be changed.
	Models map[string]ModelRatio
}

// Ratio is that of a model in its present state, false where neither model nor default says one.
func (n Normalization) Ratio(model string, hyperThread, turbo bool) (float64, bool) {
	m := n.Models[model]
	r := m.BaseRatio
	switch {
	case hyperThread && turbo:
		r = m.HyperThreadTurboEnabledRatio
	case hyperThread:
		r = m.HyperThreadEnabledRatio
	case turbo:
		r = m.TurboEnabledRatio
	}
	if r != nil {
		return float64(*r), true
	}
	return or(n.DefaultRatio, 0), n.DefaultRatio != nil
}

// Normalization merges the layers for a node. The node label that switches it is the reader's to follow.
func (c *Config) Normalization(n Node) Normalization {
	s := c.normalization.at(n)
	out := Normalization{Enable: or(s.Enable, false), Models: s.RatioModel}
	if s.DefaultRatio != nil {
		r := float64(*s.DefaultRatio)
		out.DefaultRatio = &r
	}
	return out
}

// normalizationKey is cpu-normalization-config.
type normalizationKey struct {
	NormalizationStrategy
	NodeConfigs []struct {
		profile
		NormalizationStrategy
	} `json:"nodeConfigs,omitempty"`
}

func decodeNormalization(doc strategy.Document) (layers[NormalizationStrategy], []strategy.FieldError, error) {
	var k normalizationKey
	if err := doc.Decode(&k); err != nil {
		return layers[NormalizationStrategy]{}, nil, err
	}
	var nodes []entry[NormalizationStrategy]
	for _, e := range k.NodeConfigs {
		nodes = append(nodes, entry[NormalizationStrategy]{e.profile, e.NormalizationStrategy})
	}
	l, wrong := build(k.NormalizationStrategy, NormalizationStrategy{}, "", "nodeConfigs", nodes, checkNormalization)
	return l, wrong, nil
}

func checkNormalization(s NormalizationStrategy, path string) []strategy.FieldError {
	c := &checker{prefix: path}
	c.ratio("defaultRatio", s.DefaultRatio, minRatio, maxNormalization)
	for _, model := range slices.Sorted(maps.Keys(s.RatioModel)) {
		m := s.RatioModel[model]
		at := "ratioModel." + model + "."
		c.ratio(at+"baseRatio", m.BaseRatio, minRatio, maxNormalization)
		c.ratio(at+"hyperThreadEnabledRatio", m.HyperThreadEnabledRatio, minRatio, maxNormalization)
		c.ratio(at+"turboEnabledRatio", m.TurboEnabledRatio, minRatio, maxNormalization)
		c.ratio(at+"hyperThreadTurboEnabledRatio", m.HyperThreadTurboEnabledRatio, minRatio, maxNormalization)
	}
	return c.errs
}

// AmplificationStrategy is one layer of resource-amplification-config.
type AmplificationStrategy struct {
	// Enable, default false.
	Enable *bool `json:"enable,omitempty"`
	// ResourceAmplificationRatio by resource name, at least 1.
	ResourceAmplificationRatio map[string]Number `json:"resourceAmplificationRatio,omitempty"`
}

// Amplification is what holds for one node.
type Amplification struct {
	Enable bool
	// Ratios by resource name.
	Ratios map[string]float64
}

// Amplification merges the layers for a node.
func (c *Config) Amplification(n Node) Amplification {
	s := c.amplification.at(n)
	out := Amplification{Enable: or(s.Enable, false), Ratios: map[string]float64{}}
	for name, r := range s.ResourceAmplificationRatio {
		out.Ratios[name] = float64(r)
	}
	return out
}

// amplificationKey is resource-amplification-config.
type amplificationKey struct {
	AmplificationStrategy
	NodeConfigs []struct {
		profile
		AmplificationStrategy
	} `json:"nodeConfigs,omitempty"`
}

func decodeAmplification(doc strategy.Document) (layers[AmplificationStrategy], []strategy.FieldError, error) {
	var k amplificationKey
	if err := doc.Decode(&k); err != nil {
		return layers[AmplificationStrategy]{}, nil, err
	}
	var nodes []entry[AmplificationStrategy]
	for _, e := range k.NodeConfigs {
		nodes = append(nodes, entry[AmplificationStrategy]{e.profile, e.AmplificationStrategy})
	}
	l, wrong := build(k.AmplificationStrategy, AmplificationStrategy{}, "", "nodeConfigs", nodes, checkAmplification)
	return l, wrong, nil
}

func checkAmplification(s AmplificationStrategy, path string) []strategy.FieldError {
	c := &checker{prefix: path}
	for _, name := range slices.Sorted(maps.Keys(s.ResourceAmplificationRatio)) {
		r := s.ResourceAmplificationRatio[name]
		c.ratio("resourceAmplificationRatio."+name, &r, minRatio, maxAmplification)
	}
	return c.errs
}
