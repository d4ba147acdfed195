// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// managerUsers are the names under which the managers ask the API server.
var managerUsers = map[string]string{wayOurs: cluster.ManagerUser, wayUpstream: "upstream-manager"}

// Parts of a simulated node.
const (
	nodeCores  = 32
	nodeMemory = 128 // GiB
	fillers    = 16  // clients that make objects or report, at once
)

// world is a control plane with nodes and pods that nobody runs.
type world struct {
	b *bench
	// of is the benchmark that it is for.
	of      string
	dir     string
	cluster *cluster.Cluster
	audit   string
	parts   *parts.Cache
	// managers that were started.
	managers []*process
	reports  *reporter
}

// newWorld starts etcd and the API server for a benchmark, without a node; more are parts that it needs besides.
func (b *bench) newWorld(ctx context.Context, of string, more ...string) (_ *world, err error) {
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	for _, p := range append([]string{parts.Etcd, parts.KubeAPIServer}, more...) {
		if _, err := cache.Get(ctx, p); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "koord-bench")
	if err != nil {
		return nil, fmt.Errorf("create folder of the cluster: %w", err)
	}
	w := &world{b: b, of: of, dir: dir, audit: filepath.Join(dir, "audit.log"), parts: cache}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy(managerUsers[wayOurs], managerUsers[wayUpstream])), 0o600); err != nil {
		return nil, fmt.Errorf("write audit policy: %w", err)
	}
	w.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Cache: cache, APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + w.audit,
			// The load of all simulated nodes comes from one user, which would wait for itself.
			"--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false"},
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(w.cluster.ApplyFolder(ctx, "packaging/crds"), w.cluster.Namespace(ctx, namespace)); err != nil {
		return nil, err
	}
	return w, w.cluster.InstallManager(ctx, "packaging/manifests")
}

func (w *world) close() error {
	var errs []error
	if w.reports != nil {
		w.reports.stop()
	}
	for _, p := range w.managers {
		errs = append(errs, p.stop())
	}
	if w.cluster != nil {
		errs = append(errs, w.cluster.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// fill makes nodes, pods and the strategy.
func (w *world) fill(ctx context.Context) error {
	o := w.b.o.manager
	begun := time.Now()
	if err := w.each(ctx, fillers, o.nodes, func(ctx context.Context, i int) error {
		_, err := w.cluster.Admin().Create(ctx, "/api/v1/nodes", simulatedNode(i))
		return err
	}); err != nil {
		return fmt.Errorf("make nodes: %w", err)
	}
	w.b.say("%s: %d nodes after %s", w.of, o.nodes, time.Since(begun).Round(time.Second))
	if err := w.each(ctx, fillers, o.pods, func(ctx context.Context, i int) error {
		_, err := w.cluster.Admin().Create(ctx, podsPath, simulatedPod(i, o.nodes))
		return err
	}); err != nil {
		return fmt.Errorf("make pods: %w", err)
	}
	w.b.say("%s: %d pods after %s", w.of, o.pods, time.Since(begun).Round(time.Second))
	if err := w.cluster.TellManager(ctx, map[string]string{
		"colocation-config": fmt.Sprintf(`{"enable": true, "metricReportIntervalSeconds": %d, "updateTimeThresholdSeconds": %d}`,
			int(o.every.Seconds()), int(o.after.Seconds())),
		"resource-threshold-config": spreadConfig(65),
	}); err != nil {
		return err
	}
	return nil
}

// spreadConfig is resource-threshold-config with one value by which a NodeSLO tells that it has it.
func spreadConfig(threshold int) string {
	return fmt.Sprintf(`{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": %d}}`, threshold)
}

// each does n things, as many at once as there are workers, and ends with the first error.
func (w *world) each(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// simulatedNode is a node as its kubelet registers it.
func simulatedNode(i int) cluster.Object {
	amounts := map[string]any{"cpu": fmt.Sprint(nodeCores), "memory": fmt.Sprintf("%dGi", nodeMemory), "pods": "110", "ephemeral-storage": "200Gi"}
	return cluster.Object{
		"metadata": map[string]any{"name": nodeName(i), "labels": map[string]any{
			"kubernetes.io/hostname": nodeName(i), "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
			"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3), "node.kubernetes.io/instance-type": "simulated",
		}},
		"status": map[string]any{
			"capacity": amounts, "allocatable": amounts,
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
			"nodeInfo": map[string]any{
				"architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.12.0", "osImage": "simulated", "kubeletVersion": "v1.36.3",
				"containerRuntimeVersion": "containerd://2.4.2", "machineID": "m", "systemUUID": "s", "bootID": "b", "kubeProxyVersion": "",
			},
		},
	}
}

// classOf is the class of a node's nth pod: six of ten are LS.
func classOf(nth int) string {
	if nth%10 >= 6 {
		return "BE"
	}
	return "LS"
}

// podName is that of a node's nth pod.
func podName(node, nth int) string { return fmt.Sprintf("app-%03d-%05d-%03d", node%500, node, nth) }

// simulatedPod is pod i of a cluster, on one node after the other: a Deployment's as the scheduler leaves it, of the size of an ordinary
// one, LS or BE with batch resources.
func simulatedPod(i, nodes int) cluster.Object {
	node, nth := i%nodes, i/nodes
	class, amounts := classOf(nth), map[string]any{"cpu": "2", "memory": "4Gi"}
	labels := map[string]any{"app": fmt.Sprintf("app-%03d", node%500), "pod-template-hash": fmt.Sprintf("%08x", node%500), "koordinator.sh/qosClass": class}
	if class == "BE" {
		amounts = map[string]any{"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "2Gi"}
		labels["koordinator.sh/priority-class"] = "koord-batch"
	}
	var env []any
	for n := range 12 {
		env = append(env, map[string]any{"name": fmt.Sprintf("SETTING_%d", n), "value": fmt.Sprintf("https://service-%d.example.com/path/%d", n, i)})
	}
	return cluster.Object{
		"metadata": map[string]any{"name": podName(node, nth), "labels": labels, "annotations": map[string]any{"example.com/owner": "team"}},
		"spec": map[string]any{
			"nodeName": nodeName(node), "terminationGracePeriodSeconds": 30,
			"containers": []any{map[string]any{
				"name": "main", "image": "registry.example.com/team/app:1.2.3", "env": env,
				"resources": map[string]any{"requests": amounts, "limits": amounts}, "ports": []any{map[string]any{"containerPort": 8080}},
				"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/ready", "port": 8080}},
			}},
		},
	}
}
