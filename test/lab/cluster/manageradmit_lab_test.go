// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// TestClusterManagerAdmission: what koord-manager's webhooks and packaging/manifests/policy-koordlet.yaml refuse at a real API server, and
// what passes. An agent, known by a token of its node, evicts, deletes and writes what is its node's, and koordlet says that it is held to that; quotas, reservations, migration
// jobs and amplified nodes are held to their rules, by one process for each role that has this role's rights alone; with koord-manager gone nobody
// waits for it but the agent, and for one that hangs not for long; a replica whose lease is taken, or that is cut off, goes on admitting, and the other one takes over; and every manifest of the documents and of docs/user passes, that of docs/user/manager.md into the NodeSLOs. The two nodes are objects without a kubelet.
func TestClusterManagerAdmission(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	log := newAuditOf(t, filepath.Join(dir, "audit"), managerPolicy)
	c := start(t, filepath.Join(dir, "cluster"), log.flags()...)
	begun := time.Now()
	a := &admitted{managed: &managed{governed: &governed{colocated: &colocated{c: c}, audit: log, outer: t, dir: dir}}}
	a.prepare(ctx, t)
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"evictions", a.evictions}, {"deletions", a.deletions}, {"writes", a.writes}, {"found out", a.foundOut}, {"quotas", a.quotas}, {"pods of quotas", a.quotaPods},
		{"quota profiles", a.quotaProfiles}, {"mirrors of quotas", a.mirrors},
		{"reservations", a.reservations}, {"rules of reservations", a.reservationRules}, {"profiles of reservations", a.reservationProfiles},
		{"jobs", a.jobs}, {"rules of jobs", a.jobRules}, {"amplification", a.amplification}, {"rules of nodes", a.nodeRules},
		{"strategy", a.strategy}, {"rules of the strategy", a.strategyRules},
		{"new pods", a.newPods}, {"a page", a.bestEffort}, {"pages", a.guide}, {"our scheduler", a.ourScheduler}, {"gates", a.gates}, {"rules of quotas", a.quotaRules},
		{"rights", a.rights}, {"hangs", a.hangs}, {"away", a.away},
		// These make a ConfigMap, by which the manager takes the node's amplification back.
		{"lease taken", a.leaseTaken}, {"leader cut off", a.leaderCutOff}, {"leader ended", a.leaderEnded}, {"misspelt before", a.misspeltBefore}, {"documents", a.documents},
		{"page of strategies", a.strategiesPage},
	} {
		if !t.Run(s.name, s.test) {
			return
		}
	}
	t.Logf("all after %s", time.Since(begun).Round(time.Millisecond))
}

// admitted is a control plane with koord-manager, two nodes a and b, and an agent on each.
type admitted struct {
	*managed
	controllers    *replica // the process with the role slo; that of the role webhook is the only replica, until both are killed
	agentA, agentB *cluster.Client
	unbound        *cluster.Client   // an agent whose token is bound to no node
	uid            map[string]string // of pods
	passed         float64           // how often the API server has gone on without a webhook, at the last look
}

const (
	zones   = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
	devices = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
)

func (a *admitted) prepare(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := a.c.ApplyFolder(ctx, definitions); err != nil {
		t.Fatal(err)
	}
	a.install(ctx, t)
	if err := a.c.InstallAgent(ctx, filepath.Dir(manifest(""))); err != nil {
		t.Fatal(err)
	}
	// As if it were granted what the policy alone must refuse: devices and nodes are not koordlet's today.
	a.user(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: more}
rules:
- {apiGroups: [""], resources: [nodes, nodes/status], verbs: [patch, delete]}
- {apiGroups: [scheduling.koordinator.sh], resources: [devices], verbs: [create, delete]}
- {apiGroups: [slo.koordinator.sh], resources: [nodemetrics, nodeslos], verbs: [patch, create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: more}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: more}
subjects: [{kind: ServiceAccount, name: koordlet, namespace: `+system+`}]
`)
	if err := a.c.Namespace(ctx, "batch"); err != nil {
		t.Fatal(err)
	}
	a.uid = map[string]string{}
	for _, node := range []string{"a", "b"} {
		o, err := a.c.Admin().Create(ctx, "/api/v1/nodes", cluster.Object{"metadata": map[string]any{"name": node}})
		if err != nil {
			t.Fatal(err)
		}
		a.uid[node] = o.Str("metadata", "uid")
		for _, kind := range []string{"NodeMetric", "NodeSLO"} {
			eventually(t, 60*time.Second, func() error { // a kind is served a moment after its definition is established
				text := "apiVersion: slo.koordinator.sh/v1alpha1\nkind: " + kind + "\nmetadata: {name: " + node + "}\n"
				_, err := a.c.Admin().Apply(ctx, "lab", true, []byte(text))
				return err
			})
		}
		a.pod(t, "batch", "web-"+node, node, "default")
		a.pod(t, "batch", "db-"+node, node, "default")
		a.pod(t, "batch", "old-"+node, node, "default")
		a.pod(t, "batch", "late-"+node, node, "default")
	}
	a.pod(t, "batch", "nowhere", "", "default")
	a.pod(t, system, "koordlet-b", "b", "koordlet")
	a.agentA = a.agent(t, map[string]any{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": a.uid["a"]})
	a.agentB = a.agent(t, map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "koordlet-b", "uid": a.uid["koordlet-b"]})
	a.unbound = a.agent(t, nil)
	a.front = newFront(t, nil)
	a.apart(ctx, t)
	a.hook(t)
}

// apart starts koord-manager as two processes, each with one role and an account that has the rights of this role alone.
func (a *admitted) apart(ctx context.Context, t *testing.T) {
	t.Helper()
	a.replica(t, a.alone(ctx, t, "webhook")...)
	// Profiles are applied again by the rights of both roles, as the guide says.
	a.controllers = a.manager(t, "controllers", append(a.alone(ctx, t, "slo"), "--feature-gates=ColocationProfileController=false", "--orphan-keep=1s")...)
}

// user applies a text as an administrator.
func (a *admitted) user(t *testing.T, text string) {
	t.Helper()
	if _, err := a.c.Admin().Apply(t.Context(), "user", true, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (a *admitted) pod(t *testing.T, namespace, name, node, account string) {
	t.Helper()
	spec := map[string]any{"serviceAccountName": account, "containers": []any{map[string]any{"name": "main", "image": "x"}}}
	if node != "" {
		spec["nodeName"] = node
	}
	o, err := a.c.Admin().Create(t.Context(), "/api/v1/namespaces/"+namespace+"/pods",
		cluster.Object{"metadata": map[string]any{"name": name}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	a.uid[name] = o.Str("metadata", "uid")
}

// agent is koordlet by a token that is bound to an object.
func (a *admitted) agent(t *testing.T, to map[string]any) *cluster.Client {
	t.Helper()
	token, err := a.c.AgentToken(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	client, err := a.c.WithToken(token)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// evict asks for an eviction of the pod with that uid, by a dry run unless it is meant.
func (a *admitted) evict(ctx context.Context, by *cluster.Client, pod, uid string, meant bool) error {
	o := cluster.Object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": pod, "namespace": "batch"}}
	if uid != "" {
		o["deleteOptions"] = map[string]any{"preconditions": map[string]any{"uid": uid}}
	}
	path := batchPods + pod + "/eviction"
	if !meant {
		path += "?dryRun=All"
	}
	_, err := by.Create(ctx, path, o)
	return err
}

// refused waits for a refusal with these parts: policies and webhooks act a moment after the API server was told of them.
func refused(t *testing.T, what string, try func() error, parts ...string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		err := try()
		if err == nil {
			return fmt.Errorf("%s: passes, want a refusal that says %q", what, parts)
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("%s: %w; want %q", what, err, part)
			}
		}
		t.Logf("%s: %v", what, err)
		return nil
	})
}

// passes waits for a yes: rights are known a moment after they were granted.
func passes(t *testing.T, what string, try func() error) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if err := try(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// evictions: an agent evicts pods of its node, by a token of the node or of a pod there, and nobody else is asked.
func (a *admitted) evictions(t *testing.T) {
	ctx := t.Context()
	try := func(by *cluster.Client, pod, uid string) func() error {
		return func() error { return a.evict(ctx, by, pod, uid, false) }
	}
	refused(t, "another node's pod", try(a.agentA, "web-b", a.uid["web-b"]), "pod batch/web-b is on node b", "agent of node a", "denied the request")
	refused(t, "another node's pod, by a pod's token", try(a.agentB, "web-a", a.uid["web-a"]), "is on node a", "agent of node b")
	refused(t, "a pod on no node", try(a.agentA, "nowhere", a.uid["nowhere"]), "on no node yet")
	refused(t, "a pod that is not said", try(a.agentA, "web-a", ""), "deleteOptions.preconditions.uid")
	refused(t, "a token of no node", try(a.unbound, "web-a", a.uid["web-a"]), "token does not say", "--bound-object-kind Node")
	refused(t, "another pod's uid", try(a.agentA, "web-b", a.uid["web-a"]), "409")
	refused(t, "a pod that is not there", try(a.agentA, "gone", "u"), "404")
	passes(t, "its own", try(a.agentA, "web-a", a.uid["web-a"]))
	passes(t, "its own, by a pod's token", try(a.agentB, "web-b", a.uid["web-b"]))
	passes(t, "an administrator's, without a uid", try(a.c.Admin(), "web-b", ""))
	// The webhook fails closed, and has a second: who hears that it was late has evicted nobody.
	passes(t, "its own, meant", func() error { return a.evict(ctx, a.agentA, "web-a", a.uid["web-a"], true) })
	if o, err := a.c.Admin().Get(ctx, batchPods+"web-a"); err != nil || o.Str("metadata", "deletionTimestamp") == "" {
		t.Errorf("web-a is not evicted: %v, %s", err, o.Compact("metadata"))
	}
}

// deletions: past a budget an agent deletes pods of its node, and no others.
func (a *admitted) deletions(t *testing.T) {
	remove := func(by *cluster.Client, pod string) func() error {
		return func() error { return by.Delete(t.Context(), batchPods+pod, -1) }
	}
	// A dry run: a pod that is deleted before the policy acts stays deleted.
	refused(t, "another node's pod", remove(a.agentA, "db-b?dryRun=All"), "the agent of node a", `pods on node "b" are another agent's`)
	refused(t, "a pod on no node", remove(a.agentA, "nowhere"), "are another agent's")
	refused(t, "a token of no node", remove(a.unbound, "db-a"), "token does not say")
	passes(t, "its own", remove(a.agentA, "old-a"))
	passes(t, "its own, by a pod's token", remove(a.agentB, "old-b"))
	for _, pod := range []string{"old-a", "old-b"} {
		if o, err := a.c.Admin().Get(t.Context(), batchPods+pod); err == nil && o.Str("metadata", "deletionTimestamp") == "" {
			t.Errorf("%s is not deleted: %s", pod, o.Compact("metadata"))
		}
	}
	for _, pod := range []string{"db-a", "db-b", "nowhere"} {
		if o, err := a.c.Admin().Get(t.Context(), batchPods+pod); err != nil || o.Str("metadata", "deletionTimestamp") != "" {
			t.Errorf("%s is deleted: %v", pod, err)
		}
	}
}

// writes: an agent writes the objects of its node, and no others.
func (a *admitted) writes(t *testing.T) {
	ctx := t.Context()
	patch := func(by *cluster.Client, path string, body any) func() error {
		return func() error {
			_, err := by.Patch(ctx, path, cluster.MergePatch, body)
			return err
		}
	}
	create := func(by *cluster.Client, path, version, kind, name string) func() error {
		return func() error {
			o := cluster.Object{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}}
			if kind == "NodeResourceTopology" {
				o["topologyPolicies"], o["zones"] = []any{"None"}, []any{}
			}
			_, err := by.Create(ctx, path+"?dryRun=All", o)
			return err
		}
	}
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}}
	seen := map[string]any{"status": map[string]any{"updateTime": "2026-11-22T12:00:00Z"}}
	applied := map[string]any{"status": map[string]any{"observedGeneration": 1}}
	const topology, scheduling = "topology.node.k8s.io/v1alpha1", "scheduling.koordinator.sh/v1alpha1"
	for name, of := range map[string]func(by *cluster.Client, node string) func() error{
		"nodemetrics": func(by *cluster.Client, node string) func() error { return patch(by, reports+"/"+node+"/status", seen) },
		"nodeslos":    func(by *cluster.Client, node string) func() error { return patch(by, slos+"/"+node+"/status", applied) },
		"nodes": func(by *cluster.Client, node string) func() error {
			return patch(by, "/api/v1/nodes/"+node+"/status?dryRun=All", labels)
		},
		"noderesourcetopologies": func(by *cluster.Client, node string) func() error {
			return create(by, zones, topology, "NodeResourceTopology", node)
		},
		"devices": func(by *cluster.Client, node string) func() error {
			return create(by, devices, scheduling, "Device", node)
		},
	} {
		refused(t, "another node's "+name, of(a.agentA, "b"), "the agent of node a writes for its own node only", name+` "b" is another node's`)
		refused(t, "a token of no node, "+name, of(a.unbound, "a"), "token does not say")
		passes(t, "its own "+name, of(a.agentA, "a"))
		passes(t, "its own "+name+", by a pod's token", of(a.agentB, "b"))
		passes(t, "an administrator's "+name, of(a.c.Admin(), "b"))
	}
	refused(t, "another node's report taken away", func() error { return a.agentA.Delete(ctx, reports+"/b", -1) }, `nodemetrics "b" is another node's`)
}

// strategy: a key of slo-controller-config that nobody reads, and a field that none of its keys has, are refused by name, with the reason.
func (a *admitted) strategy(t *testing.T) {
	tell := func(key, text string) func() error {
		return func() error {
			_, err := a.c.Admin().Patch(t.Context(), strategies+"?dryRun=All", cluster.MergePatch, map[string]any{"data": map[string]any{key: text}})
			return err
		}
	}
	right := thresholdConfig(65)
	refused(t, "a misspelt key", tell("resource-treshold-config", right),
		"resource-treshold-config: unknown key: nobody reads it; known are ", keyThreshold, "vconfigmap", "denied the request")
	refused(t, "a misspelt field", tell(keyThreshold, "{\n  \"clusterStrategy\": {\n    \"cpuSupressThresholdPercent\": 65\n  }\n}"),
		keyThreshold+": line 3: clusterStrategy.cpuSupressThresholdPercent: unknown key", "denied the request")
	passes(t, "the same, spelt right", tell(keyThreshold, right))
}

// away: with koord-manager gone the agent's evictions wait for it, and nothing else does.
func (a *admitted) away(t *testing.T) {
	ctx := t.Context()
	a.replicas[0].kill(t)
	a.controllers.kill(t)
	refused(t, "an agent's eviction", func() error { return a.evict(ctx, a.agentA, "db-a", a.uid["db-a"], false) }, "failed calling webhook", "veviction.koordinator.sh")
	if err := a.evict(ctx, a.c.Admin(), "db-a", "", false); err != nil {
		t.Errorf("an administrator's eviction: %v", err)
	}
	if err := a.agentA.Delete(ctx, batchPods+"late-a", -1); err != nil {
		t.Errorf("an agent's deletion of a pod of its node: %v", err)
	}
	a.user(t, misspeltRoom("stored", "1", "conatiners")) // see misspeltBefore
	refused(t, "another node's pod deleted", func() error { return a.agentA.Delete(ctx, batchPods+"late-b", -1) }, "are another agent's")
	if err := a.try(ctx, strings.ReplaceAll(quotaText("child", "company"), "min: {cpu: 10}", "min: {cpu: 40}")); err != nil {
		t.Errorf("a quota that nobody checks: %v", err)
	}
	if _, err := a.c.Admin().Patch(ctx, "/api/v1/nodes/a/status", cluster.MergePatch, allocatable("9")); err != nil {
		t.Errorf("a node's status: %v", err)
	}
	o, err := a.c.Admin().Get(ctx, "/api/v1/nodes/a")
	if err != nil || o.Str("status", "allocatable", "cpu") != "9" || o.Str("metadata", "annotations", protocol.AnnotationAmplificationRatio) == "" {
		t.Errorf("an amplified node without koord-manager: %v, %s", err, o.Compact("status"))
	}
}
