// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// replicaBehind starts one more koord-manager behind a front of its own: the API server sees it come from that address, and it can be cut off.
func (a *admitted) replicaBehind(t *testing.T, from string) {
	t.Helper()
	kubeconfig, err := a.c.Kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	server := newFront(a.outer, &net.TCPAddr{IP: net.ParseIP(from)})
	server.set([]*replica{a.apiServer()})
	own := filepath.Join(a.dir, from+".kubeconfig")
	text := strings.ReplaceAll(read(t, kubeconfig), a.c.URL, "https://"+server.listener.Addr().String())
	if err := os.WriteFile(own, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a.replica(t, "--kubeconfig="+own).server = server
}

// apiServer is the API server as something that a front stands before.
func (a *admitted) apiServer() *replica {
	return &replica{hooks: strings.TrimPrefix(a.c.URL, "https://")}
}

// leaseTime is for how long nobody but the leader may take the lease after it was renewed.
const leaseTime = 15 * time.Second

// leaderCutOff: a leader that lives and does not reach its API server gives up before its lease ends, and so before the other replica begins: they
// never both lead, and nobody writes in between. What was said meanwhile is written by the other one, once, and the first admits pods all the while. When it reaches its API server again it follows.
func (a *admitted) leaderCutOff(t *testing.T) {
	first := a.leader(t)
	other := a.replicas[0]
	if other == first {
		other = a.replicas[1]
	}
	before := a.threshold(t, 62)
	earlier := a.sloWritten(t)
	cut := time.Now()
	first.server.only(&replica{}) // nobody is there
	a.tell(t, map[string]string{keyThreshold: thresholdConfig(63)})
	a.front.only(first)
	passes(t, "a replica that is cut off admits pods", func() error { return a.refusesLabel(t) })
	a.front.set(a.replicas)
	worked := cut // when the first one was asked last and said that it leads
	nobody := cut // when the other one did not lead yet
	eventually(t, 60*time.Second, func() error {
		// Asked before the other one: a leader that ends in between is none of two. Times are of the question, which may be answered late.
		asked := time.Now()
		led, err := first.has(t.Context(), "koordinator_manager_is_leader 1")
		if err != nil {
			return err
		}
		otherAsked := time.Now()
		leads, err := other.has(t.Context(), "koordinator_manager_is_leader 1")
		switch {
		case err != nil:
			return err
		case leads && led:
			t.Fatalf("both lead %s after the cut", time.Since(cut).Round(time.Millisecond))
		case led:
			worked = asked
			return errors.New("the one that is cut off leads")
		}
		if !leads {
			nobody = otherAsked
			return errors.New("nobody leads")
		}
		return nil
	})
	idle := worked.Sub(cut).Round(time.Millisecond)
	if idle >= leaseTime {
		t.Errorf("the one that is cut off still worked after %s, and another may take its lease after %s", idle, leaseTime)
	}
	t.Logf("the one that is cut off led until %s or a little later, the other one leads after %s", idle, time.Since(cut).Round(time.Millisecond))
	if after := a.threshold(t, 63); after != before+1 {
		t.Errorf("one change of the strategy, said while nobody could write it, took the NodeSLO from generation %d to %d", before, after)
	}

	first.server.set([]*replica{a.apiServer()})
	mended := time.Now()
	// It asks for the lease again.
	eventually(t, 30*time.Second, func() error {
		if len(a.audit.read(t, func(c *call) bool {
			return c.Object.Resource == "leases" && c.Verb == "get" && c.At.After(mended) && slices.Equal(c.From, from(first))
		})) == 0 {
			return errors.New("the one that was cut off does not stand for election")
		}
		return nil
	})
	a.tell(t, map[string]string{keyThreshold: thresholdConfig(64)})
	if after := a.threshold(t, 64); after != before+2 {
		t.Errorf("two changes of the strategy took the NodeSLO from generation %d to %d", before, after)
	}
	if err := a.leads(t, 1); err != nil {
		t.Error(err)
	}
	nodes := map[string]int{}
	a.sloWritten(t)
	for _, c := range a.sloWrites(t)[earlier:] {
		if !slices.Equal(c.From, from(other)) {
			t.Errorf("%s %s from %s at %s, and %s leads", c.what(), c.Object.Name, c.From, c.At, from(other))
		}
		// The metric says that a replica leads a moment after it does, which is seconds where it gets no CPU.
		if c.At.Before(worked) || c.At.Before(nobody.Add(-5*time.Second)) {
			t.Errorf("%s %s at %s, and the first one led until %s, nobody until %s", c.what(), c.Object.Name, c.At, worked, nobody)
		}
		nodes[c.Object.Name]++
	}
	for _, name := range []string{"a", "b"} {
		if nodes[name] != 2 {
			t.Errorf("two changes were written of node %s %d times", name, nodes[name])
		}
	}
}

// from is where the API server sees a replica come from.
func from(r *replica) []string { return []string{r.server.from.(*net.TCPAddr).IP.String()} }
