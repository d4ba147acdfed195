// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// A creation that is decided out of memory is decided where its call is, without the two switches to somebody who is watched: no
// deadline can then be too short for it. TestLateDecision has one that is watched: its pod demands a guarantee.
func TestCreateIsDecidedWhereItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.engine.SetDeadline(1)
	create := func(name string) (marked bool) {
		id, cfg := r.pod(t, name, "LS", nil)
		reply, err := r.CreateContainer(t.Context(), createOf(id, cfg))
		must(t, err)
		st, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: reply.ContainerId})
		must(t, err)
		_, err = protocol.ParseApplied(st.Status.Annotations[protocol.AnnotationApplied])
		return err == nil
	}
	for i := range 20 {
		if !create(fmt.Sprintf("p%d", i)) {
			t.Errorf("creation %d has no mark", i)
		}
	}
}
