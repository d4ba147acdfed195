// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// Keys of the ConfigMap.
const (
	KeyColocation      = "colocation-config"
	KeyThreshold       = "resource-threshold-config"
	KeyQOS             = "resource-qos-config"
	KeyBurst           = "cpu-burst-config"
	KeySystem          = "system-config"
	KeyHostApplication = "host-application-config"
	KeyNormalization   = "cpu-normalization-config"
	KeyAmplification   = "resource-amplification-config"
)

// ErrUnknownKey means that the ConfigMap has a key that nobody reads.
var ErrUnknownKey = errors.New("unknown key")

// Config is the cluster's strategy. It is never written after Parse returned it.
type Config struct {
	colocation    layers[ColocationStrategy]
	normalization layers[NormalizationStrategy]
	amplification layers[AmplificationStrategy]
	// These are one part of a NodeSLO each.
	threshold, qos, burst, system, hosts layers[strategy.Spec]
	// extensions by name; one part of a NodeSLO's extensions each.
	extensions map[string]layers[strategy.Spec]
	// unknown are keys that had a problem ever since the program began.
	unknown map[string]bool
}

// Unknown reports whether nobody knows what a key means: it has a problem, and no other text of it was read since the program
// began. Its default is a guess then, and what was written by it before should be left alone.
func (c *Config) Unknown(key string) bool { return c.unknown[key] }

// Node is what the merge reads of a node.
type Node struct {
	Name                string
	Labels, Annotations map[string]string
}

// Default is the strategy of a cluster that says nothing: colocation and every feature off.
func Default() *Config { return &Config{} }

// Problem is one thing wrong with the ConfigMap, or with an annotation or label of a node.
type Problem struct {
	// Key of the ConfigMap, the annotation or the label.
	Key string
	// Line within the key's text, 0 where there is none; Path of the field, empty where it is the whole.
	Line int
	Path string
	// Err is the reason.
	Err error
}

// Error says all of it: `resource-qos-config: line 3: clusterStrategy.beClass.cpuQos: unknown key`.
func (p Problem) Error() string {
	at := p.Key
	if p.Line > 0 {
		at += fmt.Sprintf(": line %d", p.Line)
	}
	if p.Path != "" {
		at += ": " + p.Path
	}
	return at + ": " + p.Err.Error()
}

// Unwrap is the reason.
func (p Problem) Unwrap() error { return p.Err }
