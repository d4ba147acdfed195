// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// byHand: somebody deletes the node's NodeSLO and NodeMetric. The manager makes them again with what they said, the node keeps its last good
// strategy meanwhile, and the next report arrives (B5 of the documents). The manager hangs at first, so that some ticks of koordlet see no object.
func (m *managed) byHand(t *testing.T) {
	kept := func() error {
		return errors.Join(m.quotaIs(50, 55), m.held(m.ls, "cpu", "cpu.cfs_burst_us=10000", "cpu.max.burst=10000"))
	}
	eventually(t, 60*time.Second, kept)
	// while waits for something; what the kernel has must not change until then.
	while := func(limit time.Duration, check func() error) {
		t.Helper()
		eventually(t, limit, func() error {
			t.Helper()
			if err := kept(); err != nil {
				t.Fatalf("the node does not keep its strategy: %v", err)
			}
			return check()
		})
	}
	paths := []string{slos + "/" + m.k.Node, reports + "/" + m.k.Node}
	m.inForce(t)
	before := map[string]cluster.Object{}
	for _, path := range paths {
		o, err := m.c.Admin().Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		before[path] = o
	}
	goOn := m.replicas[0].hang(t)
	defer goOn()
	for _, path := range paths {
		if err := m.c.Admin().Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
	}
	until := m.ticked(t) + 5
	while(2*time.Minute, func() error {
		if now := m.ticked(t); now < until {
			return fmt.Errorf("koordlet has ticked %v times, want %v", now, until)
		}
		return nil
	})
	for _, path := range paths {
		if o, err := m.c.Admin().Get(t.Context(), path); !cluster.Refused(err, "NotFound") {
			t.Fatalf("%s was there without the manager: %v, %s", path, err, o.Compact("metadata"))
		}
	}
	goOn()
	again := time.Now()
	for _, path := range paths {
		while(60*time.Second, func() error {
			o, err := m.c.Admin().Get(t.Context(), path)
			if err != nil {
				return err
			}
			old := before[path]
			if o.Str("metadata", "uid") == old.Str("metadata", "uid") || o.Compact("spec") != old.Compact("spec") {
				return fmt.Errorf("%s was %s and is %s", path, old.Compact(), o.Compact())
			}
			return nil
		})
	}
	t.Logf("made again after %s", time.Since(again).Round(time.Millisecond))
	while(90*time.Second, func() error { // the interval is 30 s
		o, err := m.c.Admin().Get(t.Context(), reports+"/"+m.k.Node)
		if err == nil && o.Str("status", "updateTime") == "" {
			err = errors.New("no report has come")
		}
		return err
	})
	t.Logf("the next report after %s", time.Since(again).Round(time.Millisecond))
	m.described(t, m.inForce(t), "cpu-suppress")
}
