// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"errors"
	"fmt"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// Bounds of a file of another program. They leave room for a kubeconfig of thousands of clusters; the length of one mapping is bounded
// besides, because the YAML library compares each of its keys with each.
const (
	maxLooseNodes = 200_000
	maxLooseKeys  = 1024
	maxLooseDepth = 100
)

// Loose reads the first document of data into out, a pointer to a struct with yaml tags, and passes over keys that out does not name:
// files of other programs hold more than is read here. No document at all leaves out as it is. Keys given twice where out has a field, or very
// often anywhere, and a file that is too large itself or by its aliases, are errors; their text is short whatever the file.
func Loose(data []byte, out any) error {
	if len(data) > MaxFileBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), MaxFileBytes)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil || root.Kind == 0 {
		return err
	}
	var w looseWalk
	if err := w.check(&root, 0); err != nil {
		return err
	}
	err := root.Decode(out)
	var typed *yaml.TypeError
	if errors.As(err, &typed) && len(typed.Errors) > maxErrors {
		return &yaml.TypeError{Errors: typed.Errors[:maxErrors]}
	}
	return err
}

// looseWalk counts what the typed decoder will meet, aliases as often as they are used.
type looseWalk struct {
	nodes, bytes int
}

func (w *looseWalk) check(node *yaml.Node, depth int) error {
	node = follow(node)
	w.nodes++
	w.bytes += len(node.Value)
	if w.nodes > maxLooseNodes || w.bytes > MaxFileBytes || depth > maxLooseDepth {
		return fmt.Errorf("line %d: %w", node.Line, ErrTooLarge)
	}
	if node.Kind == yaml.MappingNode {
		if err := looseKeys(node); err != nil {
			return err
		}
	}
	for _, child := range node.Content {
		if err := w.check(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// looseKeys finds in one pass keys that are given again and again. A few are left to the library, which minds only what is read: programs
// take such files of their own.
func looseKeys(node *yaml.Node) error {
	if len(node.Content)/2 > maxLooseKeys {
		return fmt.Errorf("line %d: %w: a mapping of %d keys, at most %d", node.Line, ErrTooLarge, len(node.Content)/2, maxLooseKeys)
	}
	type written struct {
		kind yaml.Kind
		text string
	}
	seen, again := make(map[written]int, len(node.Content)/2), 0
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		line, twice := seen[written{key.Kind, key.Value}]
		if twice {
			again++
		}
		if again > maxErrors {
			return fmt.Errorf("line %d: %w: %.60q, first in line %d", key.Line, ErrDuplicateKey, key.Value, line)
		}
		seen[written{key.Kind, key.Value}] = key.Line
	}
	return nil
}
