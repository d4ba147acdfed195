// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"errors"
	"fmt"

	"github.com/koord-rt/koord-rt/adapt/unary"
)

// maxMessage is kubelet's limit of one CRI message.
const maxMessage = 16 << 20

// call asks the runtime; what it does not have or does not know is ErrNotFound or ErrUnimplemented.
func (l *Lister) call(ctx context.Context, method string, message []byte) ([]byte, error) {
	reply, err := l.conn.Call(ctx, method, message)
	var s *unary.Status
	if errors.As(err, &s) {
		switch s.Code {
		case unary.CodeNotFound:
			err = fmt.Errorf("%w: %w", err, ErrNotFound)
		case unary.CodeUnimplemented:
			err = fmt.Errorf("%w: %w", err, ErrUnimplemented)
		}
	}
	return reply, err
}
