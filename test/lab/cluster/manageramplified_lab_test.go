// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// amplified: a kubelet finds that its node says more than it has and says its own again, every time; the node keeps what the ratio makes of that, also
// by a kubelet that starts and registers it anew, and has its own amounts as soon as there is no ratio.
func (m *managed) amplified(t *testing.T) {
	path := "/api/v1/nodes/" + m.k.Node
	node, err := m.c.Admin().Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	own, capacity := node.Str("status", "allocatable", "cpu"), node.Str("status", "capacity", "cpu")
	both, err := resource.ParseQuantity(own)
	if err != nil {
		t.Fatal(err)
	}
	both.Add(both)
	is := func(cpu string, amplified bool) (cluster.Object, error) {
		o, err := m.c.Admin().Get(t.Context(), path)
		if err != nil {
			return nil, err
		}
		raw := o.Str("metadata", "annotations", protocol.AnnotationRawAllocatable)
		if got := o.Str("status", "allocatable", "cpu"); got != cpu || (raw != "") != amplified || o.Str("status", "capacity", "cpu") != capacity {
			return nil, fmt.Errorf("allocatable %s, want %s; raw-allocatable %q; capacity %s, was %s", got, cpu, raw, o.Str("status", "capacity", "cpu"), capacity)
		}
		return o, nil
	}
	// follows waits for amounts, and then through some of the kubelet's reports, in none of which they may differ.
	follows := func(what, cpu string, amplified bool) {
		t.Helper()
		reports, last := -1, ""
		eventually(t, 30*time.Second, func() error {
			o, err := is(cpu, amplified)
			switch {
			case err == nil && heartbeat(o) != last:
				reports, last = reports+1, heartbeat(o)
			case err != nil && reports >= 0:
				t.Errorf("%s, after %d reports: %v", what, reports, err)
				return nil
			}
			if err == nil && reports < 3 {
				err = fmt.Errorf("the kubelet has reported %d times since", reports)
			}
			return err
		})
	}
	const twice = `{"enable": true, "resourceAmplificationRatio": {"cpu": 2}}`
	m.tell(t, map[string]string{keyAmplification: twice})
	follows("with a ratio", both.String(), true)
	if err := m.k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	follows("after the kubelet's start", both.String(), true)
	m.tell(t, map[string]string{keyAmplification: `{"enable": false}`})
	follows("without a ratio", own, false)
}

// heartbeat is when the node's kubelet has reported last.
func heartbeat(node cluster.Object) string {
	list, _ := node.At("status", "conditions").([]any)
	for i := range list {
		if node.Str("status", "conditions", i, "type") == "Ready" {
			return node.Str("status", "conditions", i, "lastHeartbeatTime")
		}
	}
	return ""
}
