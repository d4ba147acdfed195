// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// proxyDocument is the ProxyConfig document.
type proxyDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Proxy
	// Strategy is a bare NodeSLO spec.
	Strategy *strategy.Wire `json:"strategy"`
}

// LoadProxy reads a YAML stream of at most one ProxyConfig and at most one NodeSLO document; the strategy may instead
// stand as a bare spec under the ProxyConfig's key strategy. What the stream does not say is [DefaultProxy]; the strategy
// is nil when it holds none, and as written otherwise (without defaults). Unknown keys, keys given twice, wrong types,
// values out of range and an empty or cut file are errors that name line and path; nothing is returned then.
func LoadProxy(data []byte) (Proxy, *strategy.Spec, error) {
	c, spec, err := loadProxy(data)
	if err != nil {
		return Proxy{}, nil, fmt.Errorf("load configuration: %w", err)
	}
	return c, spec, nil
}

func loadProxy(data []byte) (Proxy, *strategy.Spec, error) {
	docs, err := strategy.Documents(data)
	if err != nil {
		return Proxy{}, nil, err
	}
	doc := proxyDocument{Proxy: DefaultProxy()}
	var spec *strategy.Spec
	seen := make(map[string]bool, 2)
	for _, d := range docs {
		apiVersion, kind := d.Header()
		if seen[kind] {
			return Proxy{}, nil, fmt.Errorf("line %d: %w: second %.60q", d.Line(), ErrDocument, kind)
		}
		seen[kind] = true
		switch {
		case apiVersion == APIVersion && kind == KindProxy:
			err = d.Decode(&doc)
		case apiVersion == strategy.APIVersion && kind == strategy.KindNodeSLO:
			spec, err = nodeSLO(d)
		default:
			err = fmt.Errorf("line %d: %w: %.60q %.60q, want %s %s or %s %s", d.Line(), ErrDocument, apiVersion, kind,
				APIVersion, KindProxy, strategy.APIVersion, strategy.KindNodeSLO)
		}
		if err != nil {
			return Proxy{}, nil, err
		}
	}
	if spec, err = (document{Strategy: doc.Strategy}).strategy(spec); err != nil {
		return Proxy{}, nil, err
	}
	if errs := doc.Proxy.Validate(); len(errs) > 0 {
		return Proxy{}, nil, errors.Join(errs...)
	}
	return doc.Proxy, spec, nil
}
