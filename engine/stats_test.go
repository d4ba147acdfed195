// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// Of more failed proofs than are kept the newest are, and the last word on each container holds.
func TestNewestProofsAreKept(t *testing.T) {
	t.Parallel()
	s := &stats{changed: make(chan struct{}, 1)}
	at := func(sec int) status.ProofFailure { return status.ProofFailure{Time: time.Unix(int64(sec), 0)} }
	for i := range status.MaxProofFailures {
		s.keepProof(fmt.Sprint(i), at(i))
	}
	s.keepProof("1", at(1000))
	s.keepProof("new", at(1001))
	for id, want := range map[string]int64{"1": 1000, "2": 2, "new": 1001} {
		if f, ok := s.proofs[id]; !ok || f.Time.Unix() != want {
			t.Errorf("%s: kept %v, of %v", id, ok, f.Time)
		}
	}
	if _, kept := s.proofs["0"]; kept || len(s.proofs) != status.MaxProofFailures {
		t.Errorf("%d are kept, the oldest among them: %v", len(s.proofs), kept)
	}
}
