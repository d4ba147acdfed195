// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"errors"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Record is the runtime's record of a container, to be read with the marks that are known of it, newest first.
func (l *Lister) Record(ctx context.Context, id string) (func(known ...*protocol.Applied) *workload.Container, error) {
	raw, err := l.Status(ctx, id)
	if err != nil {
		return nil, err
	}
	of, _, err := l.record(ctx, raw)
	return of, err
}

// IsGone reports whether an error says that the runtime does not have what was asked for.
func (l *Lister) IsGone(err error) bool { return errors.Is(err, ErrNotFound) }
