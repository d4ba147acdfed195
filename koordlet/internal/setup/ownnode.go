// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"fmt"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/ownnode"
)

var (
	errNotAsked = errors.New(status.NotAskedYet)
	errNotHeld  = errors.New("the API server does not hold koordlet to its node: it would let it make the NodeResourceTopology of another node")
)

// ownNodeSource says whether the API server holds koordlet to its node; nothing without one.
func ownNodeSource(w *ownnode.Watch) []status.Source {
	if w == nil {
		return nil
	}
	return []status.Source{heldTo(w.State())}
}

// heldTo says so of a state. One that was known is still told while the server does not answer.
func heldTo(s *ownnode.State) status.Source {
	const name = "own-node"
	switch {
	case s.Verdict == ownnode.Held:
		return source(name, nil, s.Since)
	case s.Verdict == ownnode.Loose:
		return source(name, errNotHeld, s.Since)
	case s.Err != nil:
		return source(name, fmt.Errorf(status.NotKnown+"%w", s.Err), s.Since)
	}
	return source(name, errNotAsked, time.Time{})
}
