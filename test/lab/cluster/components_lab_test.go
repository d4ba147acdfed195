// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestClusterComponents: with the stock scheduler and controller manager a Deployment runs on the node, in a
// namespace that nobody prepared, koordlet's evictions follow a budget whose status is computed, and the mirror of a quota that koord-manager has
// made goes with the quota.
func TestClusterComponents(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	h := startHost(ctx, t, parts.Kubelet, parts.KubeScheduler, parts.KubeControllers)
	log := newAudit(t, filepath.Join(h.Dir, "audit"))
	c := start(t, filepath.Join(h.Dir, "cluster"), log.flags()...)
	k, err := c.StartKubelet(ctx, cluster.KubeletOptions{Runtime: h.Socket, CgroupRoot: h.Cgroup})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	// The collector of garbage looks for new kinds twice a minute.
	if err := c.ApplyFolder(ctx, definitions); err != nil {
		t.Fatal(err)
	}
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
	wait, stop := context.WithTimeout(ctx, 2*soon)
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

	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	n := &governed{colocated: &colocated{c: c, k: k, h: h, tree: tree}, audit: log, outer: t}
	n.prepare(ctx, t)
	n.configure(t)
	t.Run("budget", n.budget)
	t.Run("wobbles", n.wobbles)
	t.Run("mirror", func(t *testing.T) { mirrorGoes(t, c) })
}

// mirrorGoes: Kubernetes' garbage collector deletes the mirror of a quota that has been deleted, and nobody makes it again.
func mirrorGoes(t *testing.T, c *cluster.Cluster) {
	ctx := t.Context()
	if err := c.InstallManager(ctx, filepath.Dir(manifest(""))); err != nil {
		t.Fatal(err)
	}
	m := &managed{governed: &governed{colocated: &colocated{c: c}, outer: t, dir: t.TempDir()}}
	m.manager(t, "manager", "--roles=slo")
	const source, mirror = "/apis/koordinator.sh/v1alpha1/namespaces/shop/koordelasticquotas/team", "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/shop/elasticquotas/team"
	const text = "apiVersion: koordinator.sh/v1alpha1\nkind: ElasticQuota\nmetadata: {name: team, namespace: shop}\nspec: {min: {cpu: 1}, max: {cpu: 2}}\n"
	if _, err := c.Admin().Apply(ctx, "user", true, []byte(text)); err != nil {
		t.Fatal(err)
	}
	wait, stop := context.WithTimeout(ctx, 2*soon)
	defer stop()
	if _, err := c.Admin().Wait(wait, mirror, "mirror", func(o cluster.Object) bool { return o != nil }); err != nil {
		t.Fatal(err)
	}
	if err := c.Admin().Delete(ctx, source, -1); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if _, err := c.Admin().Wait(wait, mirror, "end of the mirror", func(o cluster.Object) bool { return o == nil }); err != nil {
		t.Fatal(err)
	}
	t.Logf("the mirror went %s after its source", time.Since(begun).Round(time.Millisecond))
	time.Sleep(3 * time.Second)
	if _, err := c.Admin().Get(ctx, mirror); !cluster.Refused(err, "NotFound") {
		t.Errorf("a mirror without its source: %v", err)
	}
}
