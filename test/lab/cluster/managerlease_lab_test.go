// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/" + system + "/leases/koordinator-manager"
	// otherManager is who takes the lease: Koordinator's own manager would, for it is the same one.
	otherManager = "koordinator's"
)

// leaseTaken: of two replicas one leads. When another takes its lease, its controllers end and the process goes on: nobody leads,
// nothing of the strategy is written, and either replica admits pods all the same. When the lease is given back one of them leads
// again and writes what was missed, once.
func (a *admitted) leaseTaken(t *testing.T) {
	// The lease of the one that was killed would hold for a while.
	if err := a.c.Admin().Delete(t.Context(), leases, -1); err != nil {
		t.Fatal(err)
	}
	a.replicas = nil
	a.replicaBehind(t, "127.0.0.2")
	a.replicaBehind(t, "127.0.0.3")
	a.working(t)
	first := a.leader(t)
	a.tell(t, map[string]string{keyThreshold: thresholdConfig(61)})
	before := a.threshold(t, 61)

	back := a.takeLease(t)
	eventually(t, 60*time.Second, func() error { return a.leads(t, 0) })
	written := a.sloWritten(t)
	a.tell(t, map[string]string{keyThreshold: thresholdConfig(62)})
	for _, r := range a.replicas {
		a.front.only(r)
		passes(t, "a replica that does not lead admits pods", func() error { return a.refusesLabel(t) })
	}
	// Longer than a leader takes to follow.
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := a.leads(t, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(a.sloWrites(t)); n != written {
		t.Errorf("%d writes of NodeSLOs without the lease", n-written)
	}

	back()
	eventually(t, 60*time.Second, func() error { return a.leads(t, 1) })
	if after := a.threshold(t, 62); after != before+1 {
		t.Errorf("one change of the strategy took the NodeSLO from generation %d to %d", before, after)
	}
	second := a.leader(t)
	t.Logf("the lease is back with the same replica: %t", second == first)
}

// leaderEnded: a leader that is asked to end gives its lease to the other.
func (a *admitted) leaderEnded(t *testing.T) {
	second := a.leader(t)
	before := a.threshold(t, 64)
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-second.done
	second.killed = true
	a.front.set(a.replicas) // it passes over the one that has ended
	if code := second.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("a leader that was asked to end has ended with %d:\n%s", code, logEnd(second.log))
	}
	a.leader(t)
	a.tell(t, map[string]string{keyThreshold: thresholdConfig(65)})
	if after := a.threshold(t, 65); after != before+1 {
		t.Errorf("one change of the strategy took the NodeSLO from generation %d to %d", before, after)
	}
}

// takeLease takes the lease and keeps it until the returned function gives it back, as a manager that ends does.
func (a *admitted) takeLease(t *testing.T) (back func()) {
	t.Helper()
	hold := func(ctx context.Context, who string) error {
		now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		spec := map[string]any{"holderIdentity": who, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
		_, err := a.c.Admin().Patch(ctx, leases, cluster.MergePatch, map[string]any{"spec": spec})
		return err
	}
	if err := hold(t.Context(), otherManager); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var kept sync.WaitGroup
	kept.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			if err := hold(ctx, otherManager); err != nil && ctx.Err() == nil {
				t.Errorf("keep the lease: %v", err)
			}
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		kept.Wait()
	})
	t.Cleanup(end)
	return func() {
		end()
		o, err := a.c.Admin().Get(t.Context(), leases)
		if err == nil && o.Str("spec", "holderIdentity") != otherManager {
			err = fmt.Errorf("somebody else has it: %s", o.Compact("spec"))
		}
		if err == nil {
			err = hold(t.Context(), "")
		}
		if err != nil {
			t.Fatalf("give the lease back: %v", err)
		}
	}
}

// leads is an error unless so many replicas lead, and all work.
func (a *admitted) leads(t *testing.T, want int) error {
	t.Helper()
	n := 0
	for _, r := range a.replicas {
		if err := r.alive(); err != nil {
			t.Fatal(err)
		}
		ok, err := r.has(t.Context(), "koordinator_manager_is_leader 1")
		if err != nil {
			return err
		}
		if ok {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("%d of %d replicas lead, want %d", n, len(a.replicas), want)
	}
	return nil
}

// threshold waits until the NodeSLOs of both nodes have one, which are written in any order, and returns the generation of that of node a.
func (a *admitted) threshold(t *testing.T, want int) (generation int) {
	t.Helper()
	for _, node := range []string{"b", "a"} {
		eventually(t, 30*time.Second, func() error {
			o, err := a.c.Admin().Get(t.Context(), slos+"/"+node)
			if err == nil && percent(o, "cpuSuppressThresholdPercent") != want {
				err = fmt.Errorf("NodeSLO %s of node %s, want %d", o.Compact("spec"), node, want)
			}
			generation = o.Int("metadata", "generation")
			return err
		})
	}
	return generation
}

// sloWrites are what koord-manager has written of NodeSLOs.
func (a *admitted) sloWrites(t *testing.T) []call {
	t.Helper()
	return a.audit.read(t, func(c *call) bool {
		return c.User.Name == managerUser && c.Stage == "ResponseComplete" && c.Object.Resource == "nodeslos" && !slices.Contains([]string{"get", "list", "watch"}, c.Verb)
	})
}

// sloWritten is how many writes of NodeSLOs there are, once no more come: one stands in the audit log a moment after the object is there.
func (a *admitted) sloWritten(t *testing.T) int {
	t.Helper()
	return atRest(t, func() int { return len(a.sloWrites(t)) })
}

// refusesLabel is an error unless a batch pod with an order of production is refused by the webhook.
func (a *admitted) refusesLabel(t *testing.T) error {
	t.Helper()
	return a.admit(t, &podCase{
		in: "batch", meta: `{labels: {koordinator.sh/priority: "9100"}}`,
		spec: "{priorityClassName: koord-batch, containers: [{name: main, image: x}]}", refused: []string{"9100", "denied the request"},
	})
}
