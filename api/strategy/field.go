// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"fmt"
	"strconv"
	"strings"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// FieldError is one thing wrong with one field. Errors of [Document.Decode] and of [Validate] are such, joined.
type FieldError struct {
	// Line of the document, 0 where there is none: see [Document.LineOf].
	Line int
	// Path of the field, as in cpuBurstStrategy.policy or hostApplications[0].name.
	Path string
	// Err is the reason.
	Err error
}

// Error says all three.
func (e FieldError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s: %v", e.Line, e.Path, e.Err)
	}
	return e.Path + ": " + e.Err.Error()
}

// Unwrap is the reason.
func (e FieldError) Unwrap() error { return e.Err }

// LineOf is the line of the field at path, in the form of [FieldError], or of the deepest of its parents that the document has.
func (d Document) LineOf(path string) int {
	node, line := d.node, d.node.Line
	for _, step := range steps(path) {
		node = follow(node)
		next, at := child(node, step)
		if next == nil {
			break
		}
		node, line = next, at
	}
	return line
}

// steps cuts "a.b[3].c" into a, b, [3], c.
func steps(path string) []string {
	return strings.FieldsFunc(strings.ReplaceAll(path, "[", ".["), func(r rune) bool { return r == '.' })
}

// child is the value that a step leads to, and the line of its key.
func child(node *yaml.Node, step string) (*yaml.Node, int) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		i, err := strconv.Atoi(strings.Trim(step, "[]"))
		if err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	}
	return nil, 0
}

// follow is what an alias stands for.
func follow(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	return node
}
