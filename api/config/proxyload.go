// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import "github.com/koord-rt/koord-rt/api/strategy"

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
	doc := proxyDocument{Proxy: DefaultProxy()}
	spec, err := stream(data, KindProxy, &doc, func() []error { return doc.Proxy.Validate() }, &doc.Strategy)
	if err != nil {
		return Proxy{}, nil, err
	}
	return doc.Proxy, spec, nil
}
