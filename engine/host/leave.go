// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
)

// leaving marks this program's lock and looks for another one with an engine, which has a status file, that holds its lock
// unmarked. The mark comes first: of two programs that leave together at least one sees the other's, and takes the sums
// back. Without another the ledgers tell what they all have written.
func (h *Host) leaving() (others bool, left *engine.Past) {
	if err := h.run.leave(); err != nil {
		h.o.Log.Error("tell the other programs that we leave", "err", err)
	}
	writers, err := status.Writers(h.o.Config.RunDir)
	if err != nil {
		h.o.Log.Error("look for other programs", "err", err)
	}
	for _, w := range writers {
		if w != h.o.Writer && lock.Alive(lock.Path(h.o.Config.RunDir, w)) {
			return true, nil
		}
	}
	return false, engine.NewPast(h.readLedger())
}
