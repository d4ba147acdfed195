// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"net"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// hangsUp is a runtime that hangs up on everybody, after first, until what it returns is called.
func hangsUp(t *testing.T, socket string, first func(net.Conn)) (end func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			first(conn)
			_ = conn.Close()
		}
	}()
	return func() {
		t.Helper()
		must(t, l.Close())
		<-done
	}
}

// A runtime that dies between registration and configuration must not leave the plugin waiting for ever.
func TestRuntimeDiesBeforeConfigure(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	var tries atomic.Int32
	end := hangsUp(t, h.socket, func(conn net.Conn) {
		tries.Add(1)
		_, _ = conn.Read(make([]byte, 64)) // the registration begins to arrive
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.plugin.Run(ctx)
	}()
	enginetest.Eventually(t, "third try", func() bool { return tries.Load() >= 3 })
	cancel()
	<-ended
	end()
	if h.engine.Connected() {
		t.Error("counts as connected")
	}
}

// A runtime that hangs up on us is tried again later and later, up to the configured longest wait, and never in step with other nodes.
func TestConnectWaits(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	end := hangsUp(t, h.socket, func(net.Conn) {})
	const tries = 24
	var waits []time.Duration
	h.plugin.Sleeping(func(_ context.Context, d time.Duration) bool {
		waits = append(waits, d)
		return len(waits) < tries
	})
	h.plugin.Connect(t.Context())
	end()
	if len(waits) != tries {
		t.Fatalf("%d waits", len(waits))
	}
	plain := 0
	for i, d := range waits {
		want := min(shortestWait<<min(i, 10), longestWait)
		if d < want*3/4 || d > want*5/4 {
			t.Errorf("wait %d is %s, want %s and a quarter less or more", i, d, want)
		}
		if d == want {
			plain++
		}
	}
	if plain > tries/2 {
		t.Errorf("%d of %d waits are the plain ones: %s", plain, tries, waits)
	}
}

// A runtime that is too old is refused, says why, and nothing is changed on its containers.
func TestUnsupportedRuntime(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	_, err := h.plugin.Configure(t.Context(), "", "containerd", "1.7.13")
	if err == nil || !strings.Contains(err.Error(), "older than 1.7.27") {
		t.Errorf("error = %v", err)
	}
	if v := h.views.Load(); len(v.Runtime.Problems) == 0 || v.Runtime.Fields.Unified {
		t.Errorf("runtime = %+v", v.Runtime)
	}
	mask, err := h.plugin.Configure(t.Context(), "", "containerd", "1.7.30")
	if err != nil || int32(mask)&^0x7ff != 0 {
		t.Errorf("1.7.30: mask %#x, %v", int32(mask), err)
	}
}

// oneMore is a CRI that knows a container which NRI has not told.
type oneMore struct {
	pod *workload.Pod
	c   *workload.Container
}

func (o oneMore) Container(context.Context, string, ...*protocol.Applied) (*workload.Pod, *workload.Container, error) {
	return o.pod, o.c, nil
}

// A container that Synchronize missed is found by its cgroup, whatever the runtime calls that, fetched over CRI, and brought to its plan.
func TestRelist(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0123456789abcdef", 4)
	for name, group := range map[string]string{"containerd": id, "CRI-O": "crio-" + id} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := "/kubepods/burstable/podweb"
			more := oneMore{
				pod: &workload.Pod{ID: "sandbox-web", UID: "web", Namespace: "default", Name: "web", Cgroup: dir, KubeQoS: 2, QoSCgroup: "/kubepods/burstable"},
				c: &workload.Container{
					ID: id, Name: "missed", State: workload.StateRunning, Cgroup: path.Join(dir, group),
					Base: workload.Resources{Quota: unit.Some(200000), Period: unit.Some(100000), Shares: unit.Some(1024), MemoryLimit: unit.Some(1 << 30)},
				},
			}
			h := newHostWith(t, "6.1", more)
			h.rt = newRuntime(t, h.socket)
			sb := h.sandbox(t, "web", "LS", nil)
			h.runc(t, &api.Container{Linux: &api.LinuxContainer{CgroupsPath: path.Join(dir, group), Resources: resources(1024, 200000, 1<<30)}}, nil)
			h.rt.add(sb)
			h.run(t)
			enginetest.Eventually(t, "burst of the missed container", func() bool {
				return h.tree.Get(t, path.Join(dir, group), "cpu.max.burst") == "100000"
			})
			enginetest.Eventually(t, "it is counted as one that came without us", func() bool { return h.engine.Status().Counters["unmanaged"] == 1 })
		})
	}
}
