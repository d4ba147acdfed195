// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
)

// A write that the server takes and whose answer is lost: what stood there before is written again, soon, when it is so again.
func TestTopologyOfALostAnswer(t *testing.T) {
	t.Parallel()
	api := kubetest.New(t)
	api.Serve(topologies)
	want := built(t)
	w := writer(t, api, func() (Topology, bool) {
		return Topology{Annotations: maps.Clone(want.Annotations), Zones: want.Zones}, true
	})
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	look := func(pools string) {
		want.Annotations[protocol.AnnotationCPUSharedPools] = pools
		for range 2 {
			w.look(t.Context(), at)
			at = at.Add(DefaultCheck)
		}
	}
	stands := func() string {
		var got topologyObject
		reread(t, api.Object(topologies, "node-001"), &got)
		return got.Metadata.Annotations[protocol.AnnotationCPUSharedPools]
	}
	look("[1]")
	there := w.o.API
	w.o.API = losing{there}
	look("[2]")
	if stands() != "[2]" || w.State().Err == nil {
		t.Errorf("%s stands there, %v", stands(), w.State().Err)
	}
	w.o.API = there
	look("[1]")
	if stands() != "[1]" || w.State().Err != nil {
		t.Errorf("%s stands there, %v", stands(), w.State().Err)
	}
	asked := w.State().Reads
	if look("[1]"); w.State().Reads != asked {
		t.Error("it is read at each look then")
	}
}

// losing writes, and loses the answer.
type losing struct{ ObjectWriter }

func (l losing) Merge(ctx context.Context, kind kube.Resource, name, manager string, patch any) error {
	return errors.Join(l.ObjectWriter.Merge(ctx, kind, name, manager, patch), errors.New("connection reset by peer"))
}
