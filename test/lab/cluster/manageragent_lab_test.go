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

// evictConfig is resource-threshold-config by which best-effort pods go while more than a part of the memory is used; they keep their CPUs,
// for a pod that has next to none is slow to end.
func evictConfig(percent int) string {
	return fmt.Sprintf(`{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 100,
  "cpuSuppressMinPercent": 90, "memoryEvictThresholdPercent": %d, "memoryEvictLowerPercent": %d}}`, percent, percent-1)
}

// agentCalls are what koordlet's account has asked for, dry runs left out: by them this test and koordlet itself provoke refusals.
func (m *managed) agentCalls(t *testing.T, keep func(*call) bool) []call {
	t.Helper()
	return m.audit.read(t, func(c *call) bool { return c.User.Name == cluster.AgentUser && !c.dry() && keep(c) })
}

// wrote waits until koordlet has written so, and returns the first time that it did since.
func (m *managed) wrote(t *testing.T, limit time.Duration, what string, since time.Time) (first call) {
	t.Helper()
	eventually(t, limit, func() error {
		list := m.agentCalls(t, func(c *call) bool { return c.what() == what && c.Response.Code < 300 && c.At.After(since) })
		if len(list) == 0 {
			return fmt.Errorf("koordlet has not done so: %s", what)
		}
		first = list[0]
		return nil
	})
	return first
}

// agentWrites: koordlet, known by its token, does all that it may: what it has not done yet is brought about. It evicts, which the webhook
// lets pass, tells of it, and mends the NodeResourceTopology when the Node changes. For another node it may do nothing, which it has found out itself.
func (m *managed) agentWrites(t *testing.T) {
	token, err := m.c.AgentToken(t.Context(), m.boundTo(t))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := m.c.WithToken(token)
	if err != nil {
		t.Fatal(err)
	}
	other := cluster.Object{
		"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology", "metadata": map[string]any{"name": "stranger"},
		"topologyPolicies": []any{"None"}, "zones": []any{},
	}
	refused(t, "the zones of another node", func() error {
		_, err := agent.Create(t.Context(), zones+"?dryRun=All", other)
		return err
	}, "the agent of node "+m.k.Node+" writes for its own node only")
	m.sees(t, `koord_rt_koordlet_source_state\{source="own-node",state="active"\} 1`)
	since := time.Now()
	label := map[string]any{"metadata": map[string]any{"labels": map[string]any{protocol.LabelNUMAReservation: "true"}}}
	if _, err := m.c.Admin().Patch(t.Context(), "/api/v1/nodes/"+m.k.Node, cluster.MergePatch, label); err != nil {
		t.Fatal(err)
	}
	half := m.halfOfUse(t)
	m.tell(t, map[string]string{keyThreshold: evictConfig(half)})
	victim := m.wrote(t, 60*time.Second, "create pods/eviction", since).Object.Name
	m.follows(t, 60*time.Second, 61)
	m.gone(t, victim)
	m.wrote(t, 30*time.Second, "create events", since)
	t.Logf("%s is evicted above %d %% of the memory, and told of %s after the strategy", victim, half, time.Since(since).Round(time.Millisecond))
	// It is looked for changes every ten seconds, and what has changed is written when it stands.
	m.wrote(t, 90*time.Second, "patch noderesourcetopologies", since)
}

// halfOfUse is the half of the memory that the node uses, in percent of all.
func (m *managed) halfOfUse(t *testing.T) int {
	t.Helper()
	total, available := memory(t)
	if available < total/10 {
		t.Fatalf("%.0f of %.0f MiB are available: koordlet would take the node for one in danger", available/mib, total/mib)
	}
	return max(2, int((total-available-listed(t))/total*50))
}

// boundTo is the node, as a token is bound to it.
func (m *managed) boundTo(t *testing.T) map[string]any {
	t.Helper()
	return map[string]any{"apiVersion": "v1", "kind": "Node", "name": m.k.Node, "uid": m.node(t).Str("metadata", "uid")}
}

// agentRights: nothing was denied to koordlet by a server that was ready, and it is granted nothing but what it has used, or what it needs
// where this test does not lead.
func (m *managed) agentRights(t *testing.T) {
	used := map[string]bool{}
	for _, c := range m.agentCalls(t, func(*call) bool { return true }) {
		used[c.Object.Group+" "+c.what()] = true
		m.allowed(t, &c)
	}
	for _, part := range []string{"pods", "configz"} {
		used[" get nodes/"+part] = m.audit.granted(t, cluster.AgentUser, "get", part)
	}
	granted, err := cluster.Rights(read(t, manifest("rbac-koordlet")))
	if err != nil {
		t.Fatal(err)
	}
	const away = "while the kubelet does not answer: TestClusterNodeKoordlet"
	for _, problem := range cluster.Compare(granted, used, map[string]string{
		" list pods": away, " watch pods": away,
	}) {
		t.Errorf("rbac-koordlet: %s", problem)
	}
	t.Logf("koordlet has used %d of %d rights", len(used), len(granted))
}
