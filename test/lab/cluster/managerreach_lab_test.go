// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// otherKeys: what the keys say that no other step tells reaches the kernel by NodeSLO and Node too, and is given back when they go: the class of
// best-effort pods and of an application outside of Kubernetes, a parameter of the machine, and the ratio of its CPUs, of whose model koordlet has told.
func (m *managed) otherKeys(t *testing.T) {
	was := keepWatermark(t)
	raised := was%400 + 1 // the smallest step, within what the key takes
	m.application(t)
	m.idle(t, "0")
	m.scaled(t, "10000")
	says := func(what string, identity, watermark int, app string) {
		t.Helper()
		m.slo(t, 60*time.Second, what, func(o cluster.Object) bool {
			return o.Int("spec", "resourceQOSStrategy", "beClass", "cpuQOS", "groupIdentity") == identity &&
				o.Int("spec", "systemStrategy", "watermarkScaleFactor") == watermark && o.Str("spec", "hostApplications", 0, "name") == app
		})
	}
	begun := time.Now()
	m.tell(t, map[string]string{
		keyQOS:    `{"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1}}}}`,
		keySystem: fmt.Sprintf(`{"clusterStrategy": {"watermarkScaleFactor": %d}}`, raised),
		keyHosts: fmt.Sprintf(`{"applications": [{"name": "backup", "qos": "BE", "priority": "koord-batch", "cgroupPath": {"relativePath": %q}}]}`,
			m.h.Cgroup+"/app"),
		keyNormalization: `{"enable": true, "defaultRatio": 1.25}`,
	})
	says("NodeSLO by the other keys", -1, raised, "backup")
	eventually(t, 60*time.Second, func() error { return watermarkIs(t, raised) })
	m.idle(t, "1")
	m.scaled(t, "8000")
	t.Logf("all of it is in the kernel after %s", time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	m.tell(t, map[string]string{keyQOS: "", keySystem: "", keyHosts: "", keyNormalization: ""})
	says("NodeSLO without them", 0, 0, "")
	eventually(t, 60*time.Second, func() error { return watermarkIs(t, was) })
	m.idle(t, "0")
	m.scaled(t, "10000")
	if ratio := m.node(t).Str("metadata", "annotations", protocol.AnnotationNormalizationRatio); ratio != "1.00" {
		t.Errorf("the node's ratio without the key is %q, want 1.00", ratio)
	}
	t.Logf("all of it is given back after %s", time.Since(begun).Round(time.Millisecond))
	m.up(t)
}
