// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// TestClusterUpstreamKoordlet: upstream's koordlet runs on a node of the lane, registers its hook server,
// reads the pods of the kubelet, reports, and repairs a batch pod's control group below the lab's root; and it serves the metrics whose names we have
// taken over.
func TestClusterUpstreamKoordlet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	h := startHost(ctx, t, parts.Kubelet, parts.UpstreamKoordlet)
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
	be := runBatchPod(ctx, t, c, k)
	begun := time.Now()
	u, err := c.StartUpstream(ctx, k, cluster.UpstreamOptions{ReportSeconds: 3, Gates: "BEMemoryEvict=true"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("upstream's koordlet has its hook server up after %s; resident %d MiB",
		time.Since(begun).Round(time.Millisecond), cluster.ResidentMiB(u.Pid()))
	checkRegistration(t, u)
	checkBatchPod(t, k, be)
	checkNodeMetric(ctx, t, c, k)
	checkMetrics(ctx, t, c, k, u)
	t.Logf("resident after the work: %d MiB", cluster.ResidentMiB(u.Pid()))
}

func checkRegistration(t *testing.T, u *cluster.Upstream) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(u.HookDir, "koordlet.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Endpoint string   `json:"remote-endpoint"`
		Policy   string   `json:"failure-policy"`
		Hooks    []string `json:"runtime-hooks"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("registered: %+v", got)
	if got.Endpoint != u.HookSocket || got.Policy != "Ignore" || !slices.Contains(got.Hooks, "PreCreateContainer") {
		t.Errorf("registration %s", data)
	}
}

func runBatchPod(ctx context.Context, t *testing.T, c *cluster.Cluster, k *cluster.Kubelet) cluster.Object {
	t.Helper()
	if err := c.Namespace(ctx, "batch"); err != nil {
		t.Fatal(err)
	}
	const spec = `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"},` +
		`"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}}}`
	pod := cluster.Object{
		"metadata": map[string]any{
			"name": "be", "labels": map[string]any{"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"},
			"annotations": map[string]any{"node.koordinator.sh/extended-resource-spec": spec},
		},
		"spec": map[string]any{
			"nodeName": k.Node, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1,
			"containers": []any{map[string]any{
				"name": "main", "image": parts.ImageRef, "imagePullPolicy": "Never",
				"resources": map[string]any{
					"requests": map[string]any{"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"},
					"limits":   map[string]any{"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"},
				},
			}},
		},
	}
	// As koord-manager would: without it the kubelet refuses the pod.
	room := map[string]any{"status": map[string]any{
		"capacity":    map[string]any{"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"},
		"allocatable": map[string]any{"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"},
	}}
	if _, err := c.Admin().Patch(ctx, "/api/v1/nodes/"+k.Node+"/status", cluster.StrategicPatch, room); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().Create(ctx, "/api/v1/namespaces/batch/pods", pod); err != nil {
		t.Fatal(err)
	}
	wait, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	got, err := c.Admin().Wait(wait, "/api/v1/namespaces/batch/pods/be", "be", func(p cluster.Object) bool { return p.Condition("Ready") == "True" })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func checkBatchPod(t *testing.T, k *cluster.Kubelet, pod cluster.Object) {
	t.Helper()
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	mount, file, want := tree.Controllers["cpu"], "cpu.cfs_quota_us", "50000"
	if tree.V2() {
		mount, file, want = tree.Unified, "cpu.max", "50000 100000"
	}
	dir := filepath.Join(mount, k.CgroupRoot, "kubepods/besteffort/pod"+pod.Str("metadata", "uid"))
	begun := time.Now()
	for value := ""; value != want; time.Sleep(100 * time.Millisecond) {
		if value, err = cgroups.Read(dir, file); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) > soon {
			t.Fatalf("%s of the batch pod is %s, want %s", file, value, want)
		}
	}
	t.Logf("upstream's reconciler wrote %s after %s", file, time.Since(begun).Round(time.Millisecond))
}

func checkNodeMetric(ctx context.Context, t *testing.T, c *cluster.Cluster, k *cluster.Kubelet) {
	t.Helper()
	begun := time.Now()
	wait, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	got, err := c.Admin().Wait(wait, "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/"+k.Node, "node metric", func(m cluster.Object) bool {
		return m.Str("status", "updateTime") != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("node metric after %s: %s", time.Since(begun).Round(time.Millisecond), got.Compact("status", "nodeMetric"))
}
