// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"fmt"
	"testing"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/api/protocol"
)

// A creation that is decided out of memory is decided where its call is, without the two switches to somebody who is watched: no
// deadline can then be too short for it.
func TestCreateIsDecidedWhereItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pod := r.pod("LS", nil)
	r.engine.SetDeadline(1)
	for i := range 20 {
		id := r.id(r.do("POST", fmt.Sprintf("/containers/create?name=c%d", i), body(pod)))
		r.mu.Lock()
		labels := r.records[id]["Config"].(map[string]any)["Labels"].(map[string]any)
		r.mu.Unlock()
		if labels[adapt.AnnotationPrefix+protocol.AnnotationApplied] == nil {
			t.Errorf("creation %d has no mark", i)
		}
	}
}
