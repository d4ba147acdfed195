// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/critest"
)

// again kills the proxy and starts it on the same files.
func again(t *testing.T, p *critest.Proxy) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the proxy answers again after %s", time.Since(begun).Round(time.Millisecond))
}

// kill: pods live on while the proxy is dead, and it knows them when it is back.
func (n *colocated) kill(t *testing.T) {
	before := map[string]string{}
	for _, name := range []string{"be", "ls", "lsr"} {
		before[name] = idOf(n.ready(t, name))
	}
	if n.connections(t) == 0 {
		t.Error("the kubelet does not take the runtime's events")
	}
	if err := n.p.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, err := n.c.Kubectl(t.Context(), "-n", "batch", "exec", "ls", "--", "echo", "here"); err == nil {
		t.Errorf("the kubelet answers %q without the proxy: it does not stand between", out)
	}
	again(t, n.p)
	n.wait(t, "ls", "reachable again", func(cluster.Object) bool {
		out, err := n.c.Kubectl(t.Context(), "-n", "batch", "exec", "ls", "--", "echo", "here")
		return err == nil && out == "here\n"
	})
	n.create(t, "later", batchMeta, "resources: {}")
	n.batchHolds(t, n.ready(t, "later"))
	n.lsHolds(t, n.resizeTo(t, "ls", "150m", "400m"), "40000")
	n.lsrHolds(t, n.ready(t, "lsr"))
	for name, id := range before {
		if pod := n.ready(t, name); idOf(pod) != id || pod.Int("status", "containerStatuses", 0, "restartCount") != 0 {
			t.Errorf("%s did not live through it: %s", name, pod.Compact("status", "containerStatuses"))
		}
	}
	n.seesEnds(t, "end-1")
	// The kubelet asks five times at once for a broken stream of events and then lists, as with a runtime that has
	// died; from its next start it takes events again.
	if err := n.k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.wait(t, "ls", "with the runtime's events again", func(cluster.Object) bool { return n.connections(t) > 0 })
	n.seesEnds(t, "end-2")
}

// seesEnds fails unless the kubelet runs a container that ends again.
func (n *colocated) seesEnds(t *testing.T, name string) {
	t.Helper()
	begun := time.Now()
	n.create(t, name, "labels: {}", "command: [/bin/sleep, '1']")
	n.wait(t, name, "run again", func(p cluster.Object) bool { return p.Int("status", "containerStatuses", 0, "restartCount") > 0 })
	t.Logf("the end of a container was seen and it ran again after %s", time.Since(begun).Round(time.Millisecond))
	if err := n.c.Admin().Delete(t.Context(), batchPods+name, 0); err != nil {
		t.Error(err)
	}
}

var connected = regexp.MustCompile(`(?m)^kubelet_evented_pleg_connection_success_count (\d+)`)

// connections counts the kubelet's connections to the runtime's event stream.
func (n *colocated) connections(t *testing.T) int {
	t.Helper()
	text, err := n.k.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := connected.FindStringSubmatch(text)
	if m == nil {
		t.Fatal("the kubelet does not count connections to the runtime's events")
	}
	count, _ := strconv.Atoi(m[1]) // digits by the pattern
	return count
}

// killWhileComing kills the proxy in the middle of pods' creation; the kubelet's retries bring them up.
func (n *colocated) killWhileComing(t *testing.T) {
	for i, event := range []string{"RunPodSandbox", "CreateContainer", "PostStartContainer"} {
		name := fmt.Sprintf("cut-%d", i)
		seen := regexp.MustCompile(`(?m)^koord_rt_cri_event_duration_seconds_count\{event="` + event + `"\} (\d+)`)
		count := func() string {
			text, err := n.p.Metrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(seen.FindStringSubmatch(text), "")
		}
		before := count()
		n.create(t, name, batchMeta, "resources: {}")
		for begun := time.Now(); count() == before; time.Sleep(time.Millisecond) {
			if time.Since(begun) > soon {
				t.Fatalf("no %s came", event)
			}
		}
		again(t, n.p)
		n.batchHolds(t, n.ready(t, name))
	}
}
