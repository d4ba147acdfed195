// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/capacity"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// amplified: a kubelet finds that its node says more than it has and says its own again, every time; the node keeps what the ratios of CPU and memory
// make of that, also by a kubelet that starts and registers it anew, and has its own amounts as soon as there is no ratio.
func (m *managed) amplified(t *testing.T) {
	path := "/api/v1/nodes/" + m.k.Node
	node, err := m.c.Admin().Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	own, has := amountsAt(t, node, "status", "allocatable"), amountsAt(t, node, "status", "capacity")
	is := func(want capacity.Amounts, amplified bool) (cluster.Object, error) {
		o, err := m.c.Admin().Get(t.Context(), path)
		if err != nil {
			return nil, err
		}
		raw := o.Str("metadata", "annotations", protocol.AnnotationRawAllocatable)
		got, whole := amountsAt(t, o, "status", "allocatable"), amountsAt(t, o, "status", "capacity")
		if got != want || (raw != "") != amplified || whole != has {
			return nil, fmt.Errorf("allocatable %+v, want %+v; raw-allocatable %q; capacity %+v, was %+v", got, want, raw, whole, has)
		}
		return o, nil
	}
	// follows waits for amounts, and then through some of the kubelet's reports, in none of which they may differ. Where the API server has gone
	// on without the webhook, which has a second, the kubelet's own stand until its next report, and they are waited for again.
	excused := 0
	follows := func(what string, want capacity.Amounts, amplified bool) {
		t.Helper()
		reports, last, passed := -1, "", 0.0
		eventually(t, 30*time.Second, func() error {
			o, err := is(want, amplified)
			if err == nil && reports < 0 { // what was passed over until now excuses nothing that is seen from now on
				passed = m.passedOver(t)
				o, err = is(want, amplified)
			}
			switch {
			case err == nil && heartbeat(o) != last:
				reports, last = reports+1, heartbeat(o)
			case err != nil && reports >= 0 && excused < lab.MostExcused && m.passedOver(t) > passed:
				excused++
				t.Logf("%s, after %d reports, since the API server went on without a webhook: %v", what, reports, err)
				reports, last = -1, ""
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
	m.tell(t, map[string]string{keyAmplification: `{"enable": true, "resourceAmplificationRatio": {"cpu": 2, "memory": 1.5}}`})
	more := capacity.Amounts{CPU: own.CPU * 2, Memory: own.Memory * 3 / 2}
	follows("with ratios", more, true)
	if err := m.k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	follows("after the kubelet's start", more, true)
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
