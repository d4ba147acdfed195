// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package exercise

import (
	"context"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const image = parts.ImageRef

// The three pods live through the whole run.
const (
	guaranteed = "guaranteed"
	burstable  = "burstable"
	bestEffort = "besteffort"
)

// web serves its own name on port 8080 and writes one line first.
const web = `command: ["/bin/sh", "-c", "echo hello from $POD; mkdir -p /www; echo served by $POD > /www/index.html; exec httpd -f -p 8080 -h /www"]
env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
`

func (n *node) classes(t *testing.T) {
	begun := time.Now()
	n.create(t, guaranteed, web+"resources: {requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}}")
	n.create(t, burstable, web+"resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 96Mi}}")
	n.create(t, bestEffort, web)
	for name, class := range map[string]string{guaranteed: "Guaranteed", burstable: "Burstable", bestEffort: "BestEffort"} {
		pod := n.ready(t, name)
		if pod.Str("status", "qosClass") != class {
			t.Errorf("%s has class %s, want %s", name, pod.Str("status", "qosClass"), class)
		}
	}
	t.Logf("three pods Ready after %s", time.Since(begun).Round(time.Millisecond))
	g, b, be := n.ready(t, guaranteed), n.ready(t, burstable), n.ready(t, bestEffort)
	n.want(t, g, "cpu", "cpu.cfs_quota_us=20000", "cpu.max=20000 100000")
	n.want(t, g, "memory", "memory.limit_in_bytes=67108864", "memory.max=67108864")
	n.want(t, b, "cpu", "cpu.cfs_quota_us=50000", "cpu.max=50000 100000")
	n.want(t, b, "memory", "memory.limit_in_bytes=100663296", "memory.max=100663296")
	n.want(t, be, "cpu", "cpu.cfs_quota_us=-1", "cpu.max=max 100000")
	if !n.tree.V2() {
		n.want(t, g, "cpu", "cpu.shares=204", "")
		n.want(t, b, "cpu", "cpu.shares=102", "")
		n.want(t, be, "cpu", "cpu.shares=2", "")
	}
}

func (n *node) probes(t *testing.T) {
	n.create(t, "probed", `command: ["/bin/sh", "-c", "touch /tmp/alive; mkdir -p /www; exec httpd -f -p 8080 -h /www"]
livenessProbe: {exec: {command: [/bin/cat, /tmp/alive]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}
readinessProbe: {exec: {command: [/bin/cat, /tmp/ready]}, periodSeconds: 1, timeoutSeconds: 30}
startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 30}`)
	n.wait(t, "probed", "probed started, not ready", func(p object) bool {
		return p.At(status("started")...) == true && p.Condition("Ready") == "False"
	})
	n.kubectl(t, "exec", "probed", "--", "touch", "/tmp/ready")
	first := n.ready(t, "probed")
	n.kubectl(t, "exec", "probed", "--", "rm", "/tmp/alive")
	again := n.wait(t, "probed", "restart of probed", func(p object) bool {
		return p.Int(status("restartCount")...) == 1 && p.At(status("state", "running")...) != nil
	})
	if containerID(first) == containerID(again) {
		t.Errorf("restarted as the same container %s", containerID(first))
	}
	if err := n.c.Admin().Delete(t.Context(), n.path("pods", "probed"), time.Second); err != nil {
		t.Error(err)
	}
}

func (n *node) resize(t *testing.T) {
	before := n.ready(t, burstable)
	patch := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "main", "resources": map[string]any{
			"requests": map[string]any{"cpu": "150m"}, "limits": map[string]any{"cpu": "700m", "memory": "128Mi"},
		},
	}}}}
	begun := time.Now()
	if _, err := n.c.Admin().Patch(t.Context(), n.path("pods", burstable)+"/resize", cluster.StrategicPatch, patch); err != nil {
		t.Fatal(err)
	}
	after := n.wait(t, burstable, "resize of burstable", func(p object) bool {
		return p.Str(status("resources", "limits", "cpu")...) == "700m" && p.Str(status("resources", "limits", "memory")...) == "128Mi" &&
			p.Condition("PodResizeInProgress") != "True"
	})
	t.Logf("resized after %s", time.Since(begun).Round(time.Millisecond))
	n.want(t, after, "cpu", "cpu.cfs_quota_us=70000", "cpu.max=70000 100000")
	n.want(t, after, "memory", "memory.limit_in_bytes=134217728", "memory.max=134217728")
	if !n.tree.V2() {
		n.want(t, after, "cpu", "cpu.shares=153", "")
	}
	if containerID(before) != containerID(after) || after.Int(status("restartCount")...) != 0 {
		t.Errorf("the resize restarted the container: %s", after.Compact("status", "containerStatuses"))
	}
}

func (n *node) remove(t *testing.T) {
	uid := n.ready(t, bestEffort).Str("metadata", "uid")
	for _, name := range []string{guaranteed, burstable, bestEffort} {
		if err := n.c.Admin().Delete(t.Context(), n.path("pods", name), time.Second); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{guaranteed, burstable, bestEffort} {
		n.wait(t, name, "end of "+name, func(p object) bool { return p == nil })
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := n.waitNoCgroup(ctx, uid); err != nil {
		t.Error(err)
	}
}
