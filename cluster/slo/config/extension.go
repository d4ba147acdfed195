// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// PrefixExtension begins the keys of the ConfigMap that belong to others: what extension.NAME says of a node stands under NAME in the
// extensions of its NodeSLO, where the programs of its author read it.
const PrefixExtension = "extension."

// errExtension is the reason of every extension that says nothing.
var errExtension = errors.New("nothing is said")

// extensionKey is such a key. Nobody here knows what a strategy means: it is passed on as it is, and a node entry's replaces the cluster's.
type extensionKey struct {
	ClusterStrategy map[string]json.RawMessage `json:"clusterStrategy,omitempty"`
	NodeStrategies  []struct {
		profile
		NodeStrategy map[string]json.RawMessage `json:"nodeStrategy,omitempty"`
	} `json:"nodeStrategies,omitempty"`
}

// extensionsOf reads all keys of extensions.
func extensionsOf(r *reader) map[string]layers[strategy.Spec] {
	var out map[string]layers[strategy.Spec]
	for _, key := range slices.Sorted(maps.Keys(r.data)) {
		name, is := strings.CutPrefix(key, PrefixExtension)
		if !is || name == "" {
			continue
		}
		var l layers[strategy.Spec]
		if r.before != nil {
			l = r.before.extensions[name]
		}
		read(r, key, &l, func(doc strategy.Document) (layers[strategy.Spec], []strategy.FieldError, error) {
			return decodeExtension(doc, name)
		})
		if out == nil {
			out = map[string]layers[strategy.Spec]{}
		}
		out[name] = l
	}
	return out
}

func decodeExtension(doc strategy.Document, name string) (layers[strategy.Spec], []strategy.FieldError, error) {
	var k extensionKey
	if err := doc.Decode(&k); err != nil {
		return layers[strategy.Spec]{}, nil, err
	}
	spec := func(s map[string]json.RawMessage) (strategy.Spec, error) {
		if s == nil {
			return strategy.Spec{}, nil
		}
		text, err := json.Marshal(s)
		return strategy.Spec{Extensions: map[string]json.RawMessage{name: text}}, err
	}
	cluster, err := spec(k.ClusterStrategy)
	if err != nil {
		return layers[strategy.Spec]{}, nil, err
	}
	var nodes []entry[strategy.Spec]
	var wrong []strategy.FieldError
	for i, e := range k.NodeStrategies {
		one, err := spec(e.NodeStrategy)
		if err != nil {
			return layers[strategy.Spec]{}, nil, err
		}
		if e.NodeStrategy == nil {
			wrong = append(wrong, strategy.FieldError{Path: "nodeStrategies" + index(i) + ".nodeStrategy", Err: errExtension})
		}
		nodes = append(nodes, entry[strategy.Spec]{e.profile, one})
	}
	l, more := build(cluster, strategy.Spec{}, "clusterStrategy.", "nodeStrategies", nodes, func(strategy.Spec, string) []strategy.FieldError { return nil })
	return l, append(wrong, more...), nil
}

// UnknownExtensions reports whether some extension has never been read, see [Config.Unknown].
func (c *Config) UnknownExtensions() bool {
	for key := range c.unknown {
		if strings.HasPrefix(key, PrefixExtension) {
			return true
		}
	}
	return false
}
