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
