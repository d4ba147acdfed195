// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// MaxFileBytes is the longest file that is parsed.
const MaxFileBytes = 1 << 20

// Errors of file parsing, wrapped with path and line.
var (
	// ErrEmpty means that there is no document: an empty or half written file.
	ErrEmpty = errors.New("file holds no document")
	// ErrTooLarge means that the file or what its aliases expand to is beyond the bounds.
	ErrTooLarge = errors.New("document too large")
	// ErrUnknownKey means that a key is not part of the schema.
	ErrUnknownKey = errors.New("unknown key")
	// ErrDuplicateKey means that a mapping holds a key twice.
	ErrDuplicateKey = errors.New("duplicate key")
	// ErrValue means that a value has the wrong type or form.
	ErrValue = errors.New("bad value")
)

// Document is one document of a YAML stream, or a JSON object, with the line numbers of the file.
type Document struct {
	node *yaml.Node
}

// Documents splits a stream. Empty documents are dropped; a stream without any other is [ErrEmpty]. A syntax error
// anywhere refuses the whole stream.
func Documents(data []byte) ([]Document, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), MaxFileBytes)
	}
	if root, is := jsonTree(data); is {
		return []Document{{node: root}}, nil
	}
	var docs []Document
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("parse document %d: %w", len(docs)+1, err)
		}
		root := &node
		if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
			root = root.Content[0]
		}
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			continue
		}
		docs = append(docs, Document{node: root})
	}
	if len(docs) == 0 {
		return nil, ErrEmpty
	}
	return docs, nil
}

// Line is the line of the document's first node.
func (d Document) Line() int { return d.node.Line }

// Header is the document's apiVersion and kind, empty where missing.
func (d Document) Header() (apiVersion, kind string) {
	return d.text("apiVersion"), d.text("kind")
}

// text is a top-level scalar.
func (d Document) text(key string) string {
	if d.node.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(d.node.Content); i += 2 {
		if d.node.Content[i].Value == key && d.node.Content[i+1].Kind == yaml.ScalarNode {
			return d.node.Content[i+1].Value
		}
	}
	return ""
}

// Decode writes the document into out, a pointer to a struct with json tags. Keys outside the schema, keys given
// twice, values of the wrong type and keys without a value are errors that name path and line; all of them are joined.
// Fields that the document does not name keep their value. On error out is undefined.
func (d Document) Decode(out any) error { return decodeInto(d.node, out) }

// Manifest is a whole NodeSLO.
type Manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Metadata and Status are accepted and not used.
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
	Spec     *Wire                      `json:"spec"`
	Status   map[string]json.RawMessage `json:"status,omitempty"`
}

// Identity of the NodeSLO kind.
const (
	APIVersion  = "slo.koordinator.sh/v1alpha1"
	KindNodeSLO = "NodeSLO"
)

// Parse reads a strategy file: a bare spec or a whole NodeSLO, YAML or JSON, in either spelling. It returns the spec as
// written, without defaults, and checks the ranges with [Validate]. On error, including an empty, cut or multi-document
// file, the spec is empty: never a part of it. (A file cut exactly between two settings is a complete shorter file;
// writers therefore rename.)
func Parse(data []byte) (Spec, error) {
	docs, err := Documents(data)
	if err != nil {
		return Spec{}, err
	}
	if len(docs) > 1 {
		return Spec{}, fmt.Errorf("line %d: %w: one strategy document wanted, have %d", docs[1].Line(), ErrValue, len(docs))
	}
	return docs[0].Spec()
}

// Spec reads the document as [Parse] does.
func (d Document) Spec() (Spec, error) {
	apiVersion, kind := d.Header()
	var wire Wire
	if apiVersion == "" && kind == "" {
		if err := d.Decode(&wire); err != nil {
			return Spec{}, err
		}
		return wire.Checked()
	}
	if apiVersion != APIVersion || kind != KindNodeSLO {
		return Spec{}, fmt.Errorf("line %d: %w: want %s %s, have %.80q %.80q", d.Line(), ErrValue, APIVersion, KindNodeSLO,
			apiVersion, kind)
	}
	var manifest Manifest
	if err := d.Decode(&manifest); err != nil {
		return Spec{}, err
	}
	if manifest.Spec == nil {
		return Spec{}, fmt.Errorf("line %d: %w: %s has no spec", d.Line(), ErrValue, KindNodeSLO)
	}
	return manifest.Spec.Checked()
}

// Checked is the canonical spec after [Normalise] and [Validate]; empty on error.
func (w Wire) Checked() (Spec, error) {
	spec, err := Normalise(w)
	if err != nil {
		return Spec{}, err
	}
	if errs := Validate(spec); len(errs) > 0 {
		return Spec{}, errors.Join(errs...)
	}
	return spec, nil
}
