// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// term is a registry for one term of office: what was registered through it is taken out when the term ends, so that the next one
// can begin with metrics of its own.
type term struct {
	prometheus.Registerer

	mu   sync.Mutex
	mine []prometheus.Collector
}

// Register is that of the registry below.
func (t *term) Register(c prometheus.Collector) error {
	if err := t.Registerer.Register(c); err != nil {
		return err
	}
	t.mu.Lock()
	t.mine = append(t.mine, c)
	t.mu.Unlock()
	return nil
}

// end takes out what this term brought in.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.mine {
		t.Unregister(c)
	}
	t.mine = nil
}
