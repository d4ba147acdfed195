// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// halfBatchCPU is a request of half a CPU of the node's batch-cpu, and what whoever is to go for what is booked must have.
const (
	halfBatchCPU = `resources: {requests: {` + protocol.ResourceBatchCPU + `: "500"}, limits: {` + protocol.ResourceBatchCPU + `: "500"}}`
	agreed       = protocol.LabelQoSClass + `: BE, ` + protocol.LabelPriorityClass + `: koord-batch, ` + protocol.LabelEvictionEnabled + `: "true"`
)

// The pods of guarded offer themselves before all others, and their budget bears that none of two goes.
const guarded = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded, namespace: batch}
spec: {minAvailable: 2, selector: {matchLabels: {app: guarded}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: batch}
spec:
  replicas: 2
  selector: {matchLabels: {app: guarded}}
  template:
    metadata:
      labels: {app: guarded, ` + agreed + `}
      annotations: {` + protocol.AnnotationEvictionPriority + `: "-5"}
    spec:
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: ` + parts.ImageRef + `, imagePullPolicy: Never, ` + halfBatchCPU + `}]
`

// budget: batch pods request all of the batch-cpu, where the node may bear what two of three do. The two that a budget covers, whose status
// kube-controller-manager computes, are asked for first and refused, and the third goes. Where one of the two is too many, koordlet waits, until there is
// a third one again, of the budget's.
func (n *governed) budget(t *testing.T) {
	ctx, admin := t.Context(), n.c.Admin()
	const deployment = "/apis/apps/v1/namespaces/batch/deployments/guarded"
	room := map[string]any{protocol.ResourceBatchCPU: "1500"} // as koord-manager would
	if _, err := admin.Patch(ctx, "/api/v1/nodes/"+n.k.Node+"/status", cluster.StrategicPatch, map[string]any{
		"status": map[string]any{"capacity": room, "allocatable": room},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Apply(ctx, "lab", false, []byte(guarded)); err != nil {
		t.Fatal(err)
	}
	// Else new pods come while the node is taken down.
	t.Cleanup(func() {
		if err := admin.Delete(n.outer.Context(), deployment+"?propagationPolicy=Foreground", -1); err != nil {
			t.Error(err)
		}
		eventually(t, soon, func() error {
			if _, err := admin.Get(n.outer.Context(), deployment); !cluster.Refused(err, "NotFound") {
				return fmt.Errorf("the Deployment is left: %w", err)
			}
			return nil
		})
	})
	n.create(t, "spare", "labels: {"+agreed+"}", halfBatchCPU)
	n.ready(t, "spare")
	n.computed(t, 0, 2)
	two := n.covered(t)
	n.start(t)
	n.sees(t, `koord_rt_koordlet_source_state\{source="node",state="active"\} 1`)
	object := cluster.Object{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": map[string]any{"name": n.k.Node},
		"spec": threshold(map[string]any{
			"enable": true, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 100,
			"cpuAllocatableEvictThresholdPercent": 90, "cpuAllocatableEvictLowerPercent": 70, "allocatableEvictPriorityThreshold": 5999,
		}),
	}
	if _, err := admin.Create(ctx, slos, object); err != nil {
		t.Fatal(err)
	}
	n.gone(t, "spare")
	n.refused(t, two)
	if got, want := n.evictionAnswers(t, two), []string{"guarded 429", "spare 201"}; !slices.Equal(got, want) {
		t.Errorf("evictions %q, want %q", got, want)
	}

	// Now one of the two is too many, and there is nobody else.
	asked := len(n.asksToEvict(t))
	n.patch(t, threshold(map[string]any{"cpuAllocatableEvictThresholdPercent": 50, "cpuAllocatableEvictLowerPercent": 40}))
	eventually(t, 2*time.Minute, func() error { // each of them, again
		if got := len(n.asksToEvict(t)); got < asked+2 {
			return fmt.Errorf("koordlet has asked for %d evictions, want 2 more than %d", got, asked)
		}
		return nil
	})
	if got, want := n.evictionAnswers(t, two), []string{"guarded 429", "spare 201", "guarded 429"}; !slices.Equal(got, want) {
		t.Errorf("evictions %q, want %q", got, want)
	}
	n.refused(t, two)
	if _, err := admin.Patch(ctx, deployment, cluster.MergePatch, map[string]any{"spec": map[string]any{"replicas": 3}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error {
		if got := n.evictionAnswers(t, n.covered(t)); !slices.Contains(got, "guarded 201") {
			return fmt.Errorf("evictions %q: nobody of the budget's has gone, although one may", got)
		}
		return nil
	})
	n.patch(t, threshold(map[string]any{"enable": false}))
	n.inForce(t)
	n.computed(t, 1, 3)
}

// refused: the budget's pods run, and koordlet has told of each that it was refused.
func (n *governed) refused(t *testing.T, covered map[string]string) {
	t.Helper()
	for name, uid := range covered {
		eventually(t, soon, func() error { return n.told(t, name, "EvictionRefused", "Normal", "CPUAllocatableEvict") })
		n.untouched(t, name)
		if got := n.ready(t, name).Str("metadata", "uid"); got != uid {
			t.Errorf("%s is another pod: %s, want %s", name, got, uid)
		}
	}
	n.sees(t, `koord_rt_koordlet_evictions_total\{feature="CPUAllocatableEvict",outcome="refused"\} [1-9]\d*`)
}

// computed waits until kube-controller-manager has found so many pods of the budget, of which so many may go.
func (n *governed) computed(t *testing.T, allowed, healthy int) {
	t.Helper()
	eventually(t, 90*time.Second, func() error {
		o, err := n.c.Admin().Get(t.Context(), budgets+"guarded")
		if err != nil {
			return err
		}
		status := func(field string) int { return o.Int("status", field) }
		if status("observedGeneration") < 1 || status("disruptionsAllowed") != allowed || status("currentHealthy") != healthy || status("expectedPods") != healthy {
			return fmt.Errorf("budget %s, want %d of %d pods to be free to go", o.Compact("status"), allowed, healthy)
		}
		return nil
	})
}

// covered are the UIDs of the budget's pods, by name.
func (n *governed) covered(t *testing.T) map[string]string {
	t.Helper()
	list, err := n.c.Admin().Items(t.Context(), strings.TrimSuffix(batchPods, "/")+"?labelSelector=app%3Dguarded")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, pod := range list {
		out[pod.Str("metadata", "name")] = pod.Str("metadata", "uid")
	}
	return out
}

// asksToEvict are koordlet's evictions.
func (n *governed) asksToEvict(t *testing.T) []call {
	t.Helper()
	return n.audit.calls(t, func(c *call) bool { return c.what() == "create pods/eviction" && !c.dry() })
}

// evictionAnswers are those to koordlet's evictions, one line for what comes one after the other; the budget's pods are "guarded". A refusal is for what was
// computed, and not for want of it.
func (n *governed) evictionAnswers(t *testing.T, covered map[string]string) (out []string) {
	t.Helper()
	for _, c := range n.asksToEvict(t) {
		name := c.Object.Name
		if uid := covered[name]; uid != "" {
			if got := c.body(t).Str("deleteOptions", "preconditions", "uid"); got != uid {
				t.Errorf("eviction of %s for UID %q, want %q", name, got, uid)
			}
		}
		if c.Response.Code == 429 && !strings.Contains(c.Response.Message, "violate the pod's disruption budget") {
			t.Errorf("eviction of %s was refused since %s", name, c.Response.Message)
		}
		if strings.HasPrefix(name, "guarded-") {
			name = "guarded"
		}
		if line := fmt.Sprintf("%s %d", name, c.Response.Code); len(out) == 0 || out[len(out)-1] != line {
			out = append(out, line)
		}
	}
	return out
}
