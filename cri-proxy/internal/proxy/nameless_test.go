// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// newNameless is a rig whose runtime answers calls before it has told its name: the proxy was not made to wait for that. It asks again
// after an hour, unless somebody has heard of the runtime.
func newNameless(t *testing.T) *rig {
	t.Helper()
	fake := &fakeRuntime{}
	fake.nameless.Store(true)
	r := newRigOf(t, fake, "", node.CgroupV2, nil, func(c *config.Proxy) {
		c.Reconnect = config.Reconnect{Min: config.Duration(time.Hour), Max: config.Duration(time.Hour)}
	})
	eventually(t, "the first question", func() bool { return fake.unnamed.Load() > 0 })
	return r
}

// Where a container's cgroup is follows from the runtime's name. One that is made before that is known is taken in by its start.
func TestCreateBeforeTheName(t *testing.T) {
	t.Parallel()
	r := newNameless(t)
	sandbox, cfg := r.pod(t, "early", "BE", nil)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	eventually(t, "the end of the creation", func() bool { return !r.creating() })
	id := reply.ContainerId
	_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	must(t, err)
	eventually(t, "the direct write", func() bool { n, ok := r.kernel.last(id, plan.SchedPolicy); return ok && n == 5 })
	if _, c, known := r.engine.Known(id); !known || c.Cgroup != "/kubepods/burstable/podearly/"+id || c.Base.Quota.V != 50000 {
		t.Errorf("known %v: %+v", known, c)
	}
	r.kernel.mu.Lock()
	defer r.kernel.mu.Unlock()
	if slices.ContainsFunc(r.kernel.written, func(s plan.Setting) bool { return s.Target.Container == id && s.Target.Cgroup == "" }) {
		t.Error("something was written nowhere")
	}
}

// A runtime that answers a call is asked for its name at once.
func TestAnAnswerEndsTheWait(t *testing.T) {
	t.Parallel()
	r := newNameless(t)
	r.fake.nameless.Store(false)
	sandbox, cfg := r.pod(t, "first", "LS", nil)
	eventually(t, "the connection", r.engine.Connected)
	reply, err := r.CreateContainer(t.Context(), createOf(sandbox, cfg))
	must(t, err)
	eventually(t, "the container's place", func() bool {
		_, c, known := r.engine.Known(reply.ContainerId)
		return known && c.Cgroup == "/kubepods/burstable/podfirst/"+reply.ContainerId
	})
}
