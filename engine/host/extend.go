// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// Extension is what a program tells beside the engine.
type Extension struct {
	// Collectors join the engine's at /metrics, Routes /metrics itself.
	Collectors []prometheus.Collector
	Routes     []metrics.Route
	// Agent is a section of the status file, called whenever it is written; may be nil.
	Agent func() *status.Agent
	// Hung is why the program's own loops do not go on, for /healthz; Dead the same for the watchdog, once it has lasted so long that a start
	// anew is better. Both may be nil.
	Hung, Dead func() error
}

// Registry is where the program's own counters are registered.
func (h *Host) Registry() prometheus.Registerer { return h.reg }

// Extend adds what the program tells. Call it once, before Run.
func (h *Host) Extend(e Extension) error {
	for _, c := range e.Collectors {
		if err := h.reg.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	h.more = e
	return nil
}
