// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestClusterComponents: with the stock scheduler and controller manager a Deployment runs on the node, in a
// namespace that nobody prepared.
func TestClusterComponents(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	h := startHost(ctx, t, parts.Kubelet, parts.KubeScheduler, parts.KubeControllers)
	c := start(t, filepath.Join(h.Dir, "cluster"))
	k, err := c.StartKubelet(ctx, cluster.KubeletOptions{Runtime: h.Socket, CgroupRoot: h.Cgroup})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, part := range []string{parts.KubeControllers, parts.KubeScheduler} {
		if err := c.StartComponent(ctx, part); err != nil {
			t.Fatal(err)
		}
	}
	const text = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: ` + parts.ImageRef + `, imagePullPolicy: Never}]
`
	begun := time.Now()
	if _, err := c.Admin().Apply(ctx, "lab", false, []byte(text)); err != nil {
		t.Fatal(err)
	}
	wait, stop := context.WithTimeout(ctx, 90*time.Second)
	defer stop()
	const path = "/apis/apps/v1/namespaces/shop/deployments/web"
	_, err = c.Admin().Wait(wait, path, "deployment", func(d cluster.Object) bool { return d.Int("status", "availableReplicas") == 2 })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("two replicas available after %s", time.Since(begun).Round(time.Millisecond))
	// Else new pods come while the node is taken down.
	if err := c.Admin().Delete(ctx, path+"?propagationPolicy=Foreground", -1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().Wait(wait, path, "end of deployment", func(d cluster.Object) bool { return d == nil }); err != nil {
		t.Fatal(err)
	}
}
