// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/engine"
)

// An update is decided on the goroutine of its request: two switches to another one cost more than a decision, and one at which nothing falls
// needs nobody else.
func TestUpdateIsDecidedWhereItIsAsked(t *testing.T) {
	t.Parallel()
	var here, elsewhere atomic.Int64
	h := newHostWith(t, "6.1", nil, func(_ *host, o *engine.Options) {
		o.Now = func() time.Time {
			switch stack := string(debug.Stack()); {
			case !strings.Contains(stack, ").DecideUpdate("):
			case strings.Contains(stack, "engine.(*crew)"):
				elsewhere.Add(1)
			default:
				here.Add(1)
			}
			return time.Now()
		}
	})
	h.run(t)
	sb := h.pod(t, "web", "LS", nil)
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	must(t, h.start(t, sb, ctr))
	_, err := h.rt.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: sb, Container: ctr, LinuxResources: resources(512, 150000, 1<<30)})
	must(t, err)
	if here.Load() == 0 || elsewhere.Load() > 0 {
		t.Errorf("decided %d times where it was asked, %d times elsewhere", here.Load(), elsewhere.Load())
	}
}
