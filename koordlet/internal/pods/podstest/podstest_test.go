// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package podstest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All objects are there at once, read as the API server's are, and nothing goes on afterwards.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := podstest.Snapshot(t,
		`{"metadata":{"uid":"u1","namespace":"default","name":"a","labels":{"koordinator.sh/qosClass":"BE"}},"status":{"phase":"Running"}}`,
		`{"metadata":{"uid":"u2","namespace":"batch","name":"b"},"status":{"phase":"Succeeded"}}`,
	)
	if s.Generation == 0 || len(s.Pods) != 2 {
		t.Fatalf("generation %d, %d pods", s.Generation, len(s.Pods))
	}
	a, ok := s.Pod("u1")
	if !ok || a.Name != "a" || a.QoS != protocol.QoSBE || a.Finished() {
		t.Errorf("u1: %+v", a)
	}
	if b, ok := s.Pod("u2"); !ok || b.Namespace != "batch" || !b.Finished() {
		t.Errorf("u2: %+v", b)
	}
}
