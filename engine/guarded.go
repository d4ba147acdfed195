// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// Guarded is Guard for an event without a reply; the error is a refusal.
func (g *Engine) Guarded(event metrics.Event, subject string, work func(context.Context) error) error {
	_, err := Guard(g, Call[struct{}]{
		Event: event, Subject: subject,
		Work: func(ctx context.Context) (struct{}, error) { return struct{}{}, work(ctx) },
	})
	return err
}

// Proved is Guarded for the start of container id: one that was late, panicked or failed has proved nothing, so it is refused where
// the pod or the node demands a guarantee (D8), and goes on for everybody else.
func (g *Engine) Proved(event metrics.Event, subject string, sb Sandbox, id string, work func(context.Context) error) error {
	_, err := Guard(g, Call[struct{}]{
		Event: event, Subject: subject,
		Work:   func(ctx context.Context) (struct{}, error) { return struct{}{}, work(ctx) },
		Closed: func(why string) error { return g.unproven(sb, id, why) },
	})
	return err
}
