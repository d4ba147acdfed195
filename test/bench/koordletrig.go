// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// users are the names under which the agents ask the API server.
var users = map[string]string{wayOurs: "koord-rt-koordlet", wayUpstream: "upstream-koordlet"}

const (
	// namespace of the pods.
	namespace = "bench"
	// podsAtOnce are made before those before them run.
	podsAtOnce = 10
	// podsPath lists them.
	podsPath = "/api/v1/namespaces/" + namespace + "/pods"
	sloPath  = "/apis/slo.koordinator.sh/v1alpha1"
)

// agentStrategy is the NodeSLO of both agents: suppression, eviction at a level that the pods do not reach, and burst. The
// burst is one that a mainline kernel takes (at most the quota); upstream's default of 1000 % would fail each time.
const (
	agentStrategy = `{"resourceUsedThresholdWithBE": ` + agentThreshold + `, "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 100}}`
	// agentThreshold is its part about best effort.
	agentThreshold = `{"enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 95}`
)

// labNode is a real kubelet with its control plane on a containerd of the lab.
type labNode struct {
	b *bench
	// of is the benchmark that it is for.
	of      string
	rig     *rig
	parts   *parts.Cache
	cluster *cluster.Cluster
	kubelet *cluster.Kubelet
	// audit is the API server's log of what the agents ask.
	audit string
}

// newNode starts all of it for a benchmark, with the kubelet's own defaults where the lab has quicker ones for tests. more are parts that it
// needs besides.
func (b *bench) newNode(ctx context.Context, of string, more ...string) (_ *labNode, err error) {
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	for _, p := range append([]string{parts.Etcd, parts.KubeAPIServer, parts.Kubelet}, more...) {
		if _, err := cache.Get(ctx, p); err != nil {
			return nil, err
		}
	}
	o, err := cluster.WithCNI(ctx, cache, host.Options{Cache: cache, DropIns: map[string]string{"bench.toml": noTaskMetrics}})
	if err != nil {
		return nil, err
	}
	h, err := host.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	n := &labNode{b: b, of: of, rig: &rig{host: h}, parts: cache, audit: filepath.Join(h.Dir, "audit.log")}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	policy := filepath.Join(h.Dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy(users[wayOurs], users[wayUpstream])), 0o600); err != nil {
		return nil, fmt.Errorf("write audit policy: %w", err)
	}
	n.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(h.Dir, "cluster"), Cache: cache, APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + n.audit},
	})
	if err != nil {
		return nil, err
	}
	n.kubelet, err = n.cluster.StartKubelet(ctx, cluster.KubeletOptions{Runtime: h.Socket, CgroupRoot: h.Cgroup, Config: map[string]any{
		"syncFrequency": "1m", "nodeStatusUpdateFrequency": "10s", "nodeStatusReportFrequency": "5m",
	}})
	return n, err
}

// newPeersNode is newNode for our agent and upstream's by turns: their objects are made, and pods run.
func (b *bench) newPeersNode(ctx context.Context, r *report, pods, containers int) (_ *labNode, err error) {
	n, err := b.newNode(ctx, r.name, parts.UpstreamKoordlet)
	if err != nil {
		return nil, err
	}
	if err = n.objects(ctx); err == nil {
		err = n.startPods(ctx, pods, containers)
	}
	var versions map[string]string
	if err == nil {
		versions, err = lab.Versions()
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	r.note("upstream's koordlet %s, kubelet and API server %s; %d pods of %d containers, LS and BE by turns",
		versions["UPSTREAM_KOORDINATOR"], versions["KUBERNETES"], pods, containers)
	return n, nil
}

// define makes the definitions of a folder, the namespace of the pods, and room for batch pods.
func (n *labNode) define(ctx context.Context, crds string) error {
	if err := errors.Join(n.cluster.ApplyFolder(ctx, crds), n.cluster.Namespace(ctx, namespace)); err != nil {
		return err
	}
	room := map[string]any{"kubernetes.io/batch-cpu": "64000", "kubernetes.io/batch-memory": "64Gi"}
	_, err := n.cluster.Admin().Patch(ctx, "/api/v1/nodes/"+n.kubelet.Node+"/status", cluster.StrategicPatch,
		map[string]any{"status": map[string]any{"capacity": room, "allocatable": room}})
	return err
}

// objects makes what koord-manager and its webhook would: definitions, which are upstream's here, NodeSLO, NodeMetric, and room for batch pods.
func (n *labNode) objects(ctx context.Context) error {
	part, err := n.parts.Get(ctx, parts.UpstreamKoordlet)
	if err != nil {
		return err
	}
	if err := n.define(ctx, filepath.Join(part, "crds")); err != nil {
		return err
	}
	meta := fmt.Sprintf(`apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: %[1]s}
spec: %[2]s
---
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata: {name: %[1]s}
spec: {metricCollectPolicy: {aggregateDurationSeconds: 300, reportIntervalSeconds: %[3]d}}
`, n.kubelet.Node, agentStrategy, int(reportInterval/time.Second))
	_, err = n.cluster.Admin().Apply(ctx, "bench", true, []byte(meta))
	return err
}

// close removes the pods first: the lab's kubelet waits for a few only.
func (n *labNode) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	var errs []error
	for _, p := range n.rig.plugins {
		errs = append(errs, p.stop())
	}
	if n.kubelet != nil {
		n.b.say("%s: remove the pods", n.of)
		errs = append(errs, n.removePods(ctx), n.kubelet.Close(ctx))
	}
	if n.cluster != nil {
		errs = append(errs, n.cluster.Close())
	}
	return errors.Join(append(errs, n.rig.close())...)
}

func (n *labNode) removePods(ctx context.Context) error {
	pods, err := n.cluster.Admin().Items(ctx, podsPath)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if err := n.cluster.Admin().Delete(ctx, podsPath+"/"+p.Str("metadata", "name"), time.Second); err != nil {
			return err
		}
	}
	return eventually(ctx, 5*time.Minute, time.Second, func() error {
		left, err := n.cluster.Admin().Items(ctx, podsPath)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d pods are left", len(left))
		}
		return err
	})
}

// startPods makes LS and BE pods by turns and waits until all run.
func (n *labNode) startPods(ctx context.Context, pods, containers int) error {
	n.b.say("%s: start %d pods of %d containers", n.of, pods, containers)
	for first := 0; first < pods; first += podsAtOnce {
		for i := first; i < min(first+podsAtOnce, pods); i++ {
			if _, err := n.cluster.Admin().Create(ctx, podsPath, agentPod(n.kubelet.Node, i, containers)); err != nil {
				return err
			}
		}
		err := eventually(ctx, 3*time.Minute, 500*time.Millisecond, func() error {
			all, err := n.cluster.Admin().Items(ctx, podsPath)
			for _, p := range all {
				if p.Condition("Ready") != "True" {
					return errors.Join(err, fmt.Errorf("pod %s is not ready: %s", p.Str("metadata", "name"), p.Compact("status")))
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// batchAmounts are the resources of a BE container.
const batchAmounts = `{"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "64Mi"}`

// agentPod is a pod as the scheduler and Koordinator's webhook leave it: sleeping containers in the node's network, LS with
// limits or BE with batch resources.
func agentPod(onNode string, i, containers int) cluster.Object {
	class, annotations := "LS", map[string]any{}
	labels := map[string]any{"app": "agent", "koordinator.sh/qosClass": class}
	resources := map[string]any{
		"requests": map[string]any{"cpu": "1m", "memory": "16Mi"}, "limits": map[string]any{"cpu": "1", "memory": "64Mi"},
	}
	if i%2 == 1 {
		class = "BE"
		labels["koordinator.sh/qosClass"], labels["koordinator.sh/priority-class"] = class, "koord-batch"
		batch := json.RawMessage(batchAmounts)
		resources = map[string]any{"requests": batch, "limits": batch}
	}
	var list []any
	var specs []string
	for c := range containers {
		name := fmt.Sprintf("c%d", c)
		specs = append(specs, fmt.Sprintf(`"%[1]s": {"requests": %[2]s, "limits": %[2]s}`, name, batchAmounts))
		list = append(list, map[string]any{"name": name, "image": parts.ImageRef, "imagePullPolicy": "Never", "resources": resources})
	}
	if class == "BE" {
		annotations["node.koordinator.sh/extended-resource-spec"] = `{"containers": {` + strings.Join(specs, ", ") + `}}`
	}
	return cluster.Object{
		"metadata": map[string]any{"name": fmt.Sprintf("%s-%d", strings.ToLower(class), i), "labels": labels, "annotations": annotations},
		"spec": map[string]any{
			"nodeName": onNode, "hostNetwork": true, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1,
			"enableServiceLinks": false, "containers": list,
		},
	}
}

// startAgent starts one of the two by its name; helper is koord-nri beside ours, 0 for upstream's.
func (n *labNode) startAgent(ctx context.Context, name string) (pid, helper int, end func() error, err error) {
	if name == wayOurs {
		return n.startOurs(ctx)
	}
	pid, end, err = n.startUpstream(ctx)
	return pid, 0, end, err
}

// startOurs starts koordlet and, as on a node, koord-nri beside it, on empty folders.
func (n *labNode) startOurs(ctx context.Context) (pid, helper int, end func() error, err error) {
	run, err := runDir()
	if err != nil {
		return 0, 0, nil, err
	}
	dir, err := os.MkdirTemp(n.rig.host.Dir, wayOurs)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("create folder of the agent: %w", err)
	}
	nri, err := n.b.launchOurs(ctx, n.rig, "koord-nri", run, dir, map[string]any{
		"kind": "NRIConfig", "socket": n.rig.host.NRISocket, "metrics": map[string]any{"address": "unix:" + filepath.Join(run, "nri-metrics.sock")},
	})
	if err != nil {
		return 0, 0, nil, err
	}
	config, err := n.cluster.Kubeconfig(users[wayOurs], "system:masters")
	if err != nil {
		return 0, 0, nil, err
	}
	identity := strings.TrimSuffix(config, ".kubeconfig")
	agent, err := n.b.launchOurs(ctx, n.rig, "koordlet", run, dir, map[string]any{
		"kind": "KoordletConfig", "nodeName": n.kubelet.Node, "runtimeEndpoint": "unix://" + n.rig.host.Socket,
		"metrics":   map[string]any{"address": "unix:" + filepath.Join(run, "koordlet-metrics.sock")},
		"apiServer": map[string]any{"kubeconfig": config},
		"kubelet": map[string]any{
			"endpoint": "https://" + n.kubelet.IP + ":" + strconv.Itoa(n.kubelet.Port), "caFile": n.cluster.CA, "tokenFile": "",
			"certFile": identity + ".crt", "keyFile": identity + ".key",
		},
	})
	if err != nil {
		return 0, 0, nil, err
	}
	return agent.cmd.Process.Pid, nri.cmd.Process.Pid, func() error { return errors.Join(agent.stop(), nri.stop(), os.RemoveAll(run)) }, nil
}

// launchOurs starts a program of ours and waits until its status file says that it is connected.
func (b *bench) launchOurs(ctx context.Context, r *rig, name, run, dir string, more map[string]any) (*process, error) {
	config := map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "runDir": run, "stateDir": filepath.Join(dir, name), "strategyFile": filepath.Join(dir, "none.yaml"),
		"host": map[string]any{"kubepodsRoot": "/" + r.host.Cgroup, "cdiDirs": []string{r.host.CDI}},
	}
	for k, v := range more {
		config[k] = v
	}
	text, err := yaml.Marshal(config)
	path := filepath.Join(dir, name+".yaml")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, name), 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", name, err)
	}
	p := &process{name: name, run: run, exited: make(chan struct{}), log: filepath.Join(dir, name+".log")}
	p.cmd = exec.Command(filepath.Join(b.o.bin, name), "--config", path)
	p.ready = p.connected
	if err := p.start(); err != nil {
		return nil, err
	}
	r.plugins = append(r.plugins, p)
	return p, p.wait(ctx)
}
