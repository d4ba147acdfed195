// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// errSelector is the reason of every selector that cannot be used.
var errSelector = errors.New("bad node selector")

// layers is one key: what holds for the cluster, and for nodes of some labels.
type layers[T any] struct {
	cluster T
	nodes   []layer[T]
}

// layer is one node entry.
type layer[T any] struct {
	selector labels.Selector
	strategy T
}

// at merges for a node: the first entry that matches counts, and only that one.
func (l layers[T]) at(n Node) T {
	for _, e := range l.nodes {
		if e.selector.Matches(labels.Set(n.Labels)) {
			return strategy.Overlay(l.cluster, e.strategy)
		}
	}
	var nothing T
	return strategy.Overlay(nothing, l.cluster)
}

// profile begins every node entry.
type profile struct {
	// Name is for people and tools.
	Name string `json:"name,omitempty"`
	// NodeSelector says which nodes; it must say something.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// names finds entries of one name.
type names map[string]int

// selector makes what matches; path is that of the entry. An entry without selector matches nothing and one that is empty
// matches everything: neither is what its author wants, the cluster's strategy is there for that.
func (p profile) selector(path string, i int, seen names) (labels.Selector, []strategy.FieldError) {
	var errs []strategy.FieldError
	if first, twice := seen[p.Name]; twice && p.Name != "" {
		errs = append(errs, strategy.FieldError{Path: path + ".name",
			Err: fmt.Errorf("%w: entry %d is named %.60q too", strategy.ErrDuplicateKey, first, p.Name)})
	} else {
		seen[p.Name] = i
	}
	s := p.NodeSelector
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, append(errs, strategy.FieldError{Path: path + ".nodeSelector",
			Err: fmt.Errorf("%w: it selects nothing in particular; give matchLabels or matchExpressions, or use the cluster's strategy", errSelector)})
	}
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		errs = append(errs, strategy.FieldError{Path: path + ".nodeSelector", Err: fmt.Errorf("%w: %w", errSelector, err)})
	}
	return out, errs
}

// entry is a node entry as it was decoded.
type entry[T any] struct {
	profile  profile
	strategy T
}

// build makes layers and checks them: the cluster's by itself, each node's together with the cluster's, because that is what will
// hold. Of the cluster's, beside is what an entry's fields are checked against: none where each field is checked by itself, and no long
// lists, which would be walked again for each entry. list is the path of the entries, top that of the cluster's strategy ("" where it is
// not nested).
func build[T any](cluster, beside T, top, list string, entries []entry[T], check func(T, string) []strategy.FieldError) (layers[T], []strategy.FieldError) {
	out := layers[T]{cluster: cluster}
	errs := check(cluster, top)
	sound := len(errs) == 0
	seen := names{}
	for i, e := range entries {
		path := list + index(i)
		selector, wrong := e.profile.selector(path, i, seen)
		whole := e.strategy
		if sound {
			whole = strategy.Overlay(beside, e.strategy)
		}
		errs = append(append(errs, wrong...), check(whole, path+".")...)
		out.nodes = append(out.nodes, layer[T]{selector: selector, strategy: e.strategy})
	}
	return out, errs
}

// index is "[3]".
func index(i int) string { return fmt.Sprintf("[%d]", i) }
