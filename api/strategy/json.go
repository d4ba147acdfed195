// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// jsonTree reads one JSON object as the tree that YAML would make of it, with lines. Not all JSON is YAML: YAML folds U+0085 into a space,
// and refuses other characters, surrogate pairs and keys above 1024 bytes. What is no JSON, and what is nested deeper than is decoded, is
// left to YAML, which says what is wrong with it.
func jsonTree(data []byte) (*yaml.Node, bool) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !utf8.Valid(data) || !json.Valid(data) {
		return nil, false
	}
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.decoder.UseNumber()
	root, ok := r.value(0)
	if !ok {
		return nil, false
	}
	_, err := r.decoder.Token()
	return root, errors.Is(err, io.EOF)
}

// jsonReader counts lines up to the token that was read last.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	at      int
	line    int
}

// value reads the next value; false at the end of a list or mapping too.
func (r *jsonReader) value(depth int) (*yaml.Node, bool) {
	token, err := r.decoder.Token()
	if err != nil || depth > maxDepth+1 {
		return nil, false
	}
	end := int(r.decoder.InputOffset())
	raw := r.data[r.at:end]
	r.line += bytes.Count(raw, []byte("\n")) // tokens have none within
	r.at = end
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch v := token.(type) {
	case nil:
		node.Tag, node.Value = "!!null", "null"
	case bool:
		node.Tag, node.Value = "!!bool", "false"
		if v {
			node.Value = "true"
		}
	case json.Number:
		if _, err := v.Float64(); err != nil {
			return nil, false // YAML takes it for a string
		}
		node.Value = v.String() // resolved as YAML's plain scalars are
	case string:
		if strings.ContainsRune(v, utf8.RuneError) && !saysReplacement(raw) {
			return nil, false // half of a surrogate pair, which YAML refuses
		}
		node.Tag, node.Value = "!!str", v
	case json.Delim:
		if v == '}' || v == ']' {
			return nil, false
		}
		node.Kind = yaml.SequenceNode
		if v == '{' {
			node.Kind = yaml.MappingNode
		}
		for r.decoder.More() {
			child, ok := r.value(depth + 1)
			if !ok {
				return nil, false
			}
			node.Content = append(node.Content, child)
		}
		if _, err := r.decoder.Token(); err != nil {
			return nil, false
		}
	}
	return node, true
}

// saysReplacement reports whether a token has U+FFFD itself, or its escape.
func saysReplacement(raw []byte) bool {
	return bytes.ContainsRune(raw, utf8.RuneError) || bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`))
}
