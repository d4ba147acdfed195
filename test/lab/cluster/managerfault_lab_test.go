// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// admission: what must not be is refused, in words that say what to do.
func (m *managed) admission(t *testing.T) {
	m.hook(t)
	const profile = `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: spark}
spec:
  selector: {matchLabels: {app: spark}}
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 5300
  labels: {from: profile}
`
	if _, err := m.c.Admin().Apply(t.Context(), "lab", false, []byte(profile)); err != nil {
		t.Fatal(err)
	}
	pod := func(meta, spec string) func(context.Context) error {
		return func(ctx context.Context) error {
			o, err := cluster.ParseObject([]byte(podText("wrong", meta, spec, "")))
			if err == nil {
				_, err = m.c.Admin().Create(ctx, strings.TrimSuffix(batchPods, "/")+"?dryRun=All", o)
			}
			return err
		}
	}
	for name, tc := range map[string]struct {
		try  func(context.Context) error
		want string
	}{
		"a wrong key of the ConfigMap": {func(ctx context.Context) error {
			data := map[string]any{"data": map[string]any{keyThreshold: `{"clusterStrategy": {"cpuSuppressThreshold": 65}}`}}
			_, err := m.c.Admin().Patch(ctx, strategies+"?dryRun=All", cluster.MergePatch, data)
			return err
		}, keyThreshold + ": line 1: clusterStrategy.cpuSuppressThreshold: unknown key"},
		"a BE pod of production":     {pod("labels: {koordinator.sh/qosClass: BE}", "priorityClassName: koord-prod"), "koord-prod"},
		"the scheduler's annotation": {pod(`annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"0"}'}`, ""), protocol.AnnotationResourceStatus},
	} {
		// The API server calls a webhook a moment after it was told of it.
		eventually(t, 20*time.Second, func() error {
			err := tc.try(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "denied the request") {
				return fmt.Errorf("%s: %v; want a refusal that names %q", name, err, tc.want)
			}
			t.Logf("%s: %v", name, err)
			return nil
		})
	}
}

// podText is a pod for any node that waits for the scheduler. Nobody takes the taint off the node that it was registered with.
func podText(name, meta, spec, main string) string {
	join := func(s string) string {
		if s == "" {
			return ""
		}
		return s + ", "
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: {" + join(meta) + "name: " + name + ", namespace: batch}\n" +
		"spec: {" + join(spec) + "dnsPolicy: Default, terminationGracePeriodSeconds: 1, tolerations: [{operator: Exists}], containers: [{" +
		join(main) + "name: main, image: " + parts.ImageRef + ", imagePullPolicy: Never}]}\n"
}

const sparkMain = "resources: {requests: {cpu: 500m, memory: 64Mi}, limits: {cpu: 500m, memory: 64Mi}}"

// submit makes a pod of the profile, by whose request the profile has turned it into a batch pod; once more where the API server went on
// without the webhook.
func (m *managed) submit(t *testing.T, name, main string) cluster.Object {
	t.Helper()
	for range 5 {
		passed := m.passedOver(t)
		pod, err := m.submitted(t, name, main)
		if err == nil {
			return pod
		}
		if m.passedOver(t) == passed {
			t.Error(err)
			return pod
		}
		t.Logf("again, since the API server went on without the webhook: %v", err)
		if err := m.c.Admin().Delete(t.Context(), batchPods+name, 0); err != nil {
			t.Fatal(err)
		}
		m.gone(t, name)
	}
	t.Fatalf("the API server goes on without the webhook for every pod %s", name)
	return nil
}

// submitted makes the pod, and tells whether it is a batch pod.
func (m *managed) submitted(t *testing.T, name, main string) (cluster.Object, error) {
	t.Helper()
	if _, err := m.c.Admin().Apply(t.Context(), "user", false, []byte(podText(name, "labels: {app: spark}", "", main))); err != nil {
		t.Fatal(err)
	}
	pod, err := m.c.Admin().Get(t.Context(), batchPods+name)
	if err != nil {
		t.Fatal(err)
	}
	labels := []any{"metadata", "labels"}
	if pod.Str(append(labels, protocol.LabelQoSClass)...) != "BE" || pod.Str(append(labels, protocol.LabelPriority)...) != "5300" ||
		pod.Str(append(labels, "from")...) != "profile" || pod.Int("spec", "priority") != 5000 || pod.Str("spec", "priorityClassName") != "koord-batch" {
		return pod, fmt.Errorf("%s is no batch pod: labels %s, priority %d", name, pod.Compact(labels...), pod.Int("spec", "priority"))
	}
	return pod, nil
}

// profile: a pod that knows nothing of Koordinator becomes a batch pod; the stock scheduler books batch resources for it, and the
// kernel holds it to them. One that asks for more than the node lends waits.
func (m *managed) profile(t *testing.T) {
	if err := m.c.StartComponent(t.Context(), parts.KubeScheduler); err != nil {
		t.Fatal(err)
	}
	m.follows(t, 60*time.Second, 50)
	begun := time.Now()
	pod := m.submit(t, "spark", sparkMain)
	const resources = `{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"},` +
		`"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}}`
	if got := pod.Compact("spec", "containers", 0, "resources"); got != resources {
		t.Errorf("resources %s, want %s", got, resources)
	}
	if got, err := protocol.ParseExtendedResource(pod.Str("metadata", "annotations", protocol.AnnotationExtendedResource)); err != nil ||
		got["main"].Limits.BatchCPU == nil || *got["main"].Limits.BatchCPU != 500 || *got["main"].Requests.BatchMemory != 64<<20 {
		t.Errorf("extended-resource-spec: %s, %v", pod.Compact("metadata", "annotations"), err)
	}
	pod = m.ready(t, "spark")
	if pod.Str("spec", "nodeName") != m.k.Node || pod.Str("status", "qosClass") != "BestEffort" {
		t.Errorf("placed on %q, class %s", pod.Str("spec", "nodeName"), pod.Str("status", "qosClass"))
	}
	m.batchHolds(t, pod)
	t.Logf("a pod of the profile runs within its limits after %s", time.Since(begun).Round(time.Millisecond))
	m.submit(t, "spark-huge", strings.ReplaceAll(sparkMain, "500m", "1000"))
	m.wait(t, "spark-huge", "refused by the scheduler", func(p cluster.Object) bool {
		return p.Condition("PodScheduled") == "False" && strings.Contains(p.Compact("status", "conditions"), "Insufficient kubernetes.io/batch-cpu")
	})
	m.reapplied(t, "spark-huge", "spark")
	if err := m.c.Admin().Delete(t.Context(), batchPods+"spark-huge", 0); err != nil {
		t.Fatal(err)
	}
}

// follows fails unless a change of the ConfigMap reaches the NodeSLO. It leaves suppression off: as long as that is by quota, the class
// has one and its pods have none of their own.
func (m *managed) follows(t *testing.T, limit time.Duration, high int) {
	t.Helper()
	begun := time.Now()
	m.tell(t, map[string]string{keyThreshold: thresholdOff(high)})
	m.slo(t, limit, "NodeSLO after a change", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == high })
	t.Logf("a change is in the NodeSLO after %s", time.Since(begun).Round(time.Millisecond))
}

// thresholdOff is thresholdConfig with suppression off.
func thresholdOff(high int) string {
	return strings.Replace(thresholdConfig(high), `"enable": true`, `"enable": false`, 1)
}

// away: what an API server said before it crashed holds, and when it is back it is followed again, by the second replica too.
func (m *managed) away(t *testing.T) {
	m.replica(t)
	m.serverEnds(t)
	m.serverStarts(t)
	m.working(t)
	m.follows(t, 45*time.Second, 62)
	if got, ok := m.batchCPU(t); !ok {
		t.Errorf("batch-cpu %d (%t) after the API server was away", got, ok)
	}
}

// second: another replica stands by.
func (m *managed) second(t *testing.T) {
	m.replica(t)
	m.working(t)
}

// takeover: one replica leads. When it is killed, the other one takes over what it did, and what every replica does goes on. The lease lasts for
// 15 s, and a machine that has no CPU for it may take more, once.
func (m *managed) takeover(t *testing.T) {
	const most = 40 * time.Second
	took := m.takenOver(t)
	if took > most {
		m.second(t)
		took = min(took, m.takenOver(t))
	}
	if took > most {
		t.Errorf("another replica leads after %s at best, want %s", took, most)
	}
	m.follows(t, 60*time.Second, 58)
	m.submit(t, "spark-after", sparkMain)
	m.batchHolds(t, m.ready(t, "spark-after"))
	m.up(t)
}

// takenOver kills the replica that leads, which is one, and tells how long it takes until another one does.
func (m *managed) takenOver(t *testing.T) time.Duration {
	t.Helper()
	led := 0
	for _, r := range m.replicas {
		ok, err := r.has(t.Context(), "koordinator_manager_is_leader 1")
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			led++
		}
	}
	first := m.leader(t)
	if led > 1 {
		t.Errorf("%d of %d replicas lead", led, len(m.replicas))
	}
	first.kill(t)
	killed := time.Now()
	if second := m.leader(t); second == first {
		t.Fatal("a dead replica leads")
	}
	took := time.Since(killed).Round(time.Millisecond)
	t.Logf("another replica leads after %s", took)
	return took
}

// quietly tells how often the manager has written, by kind, and fails when it writes what has not changed: the node's resources were told
// to change by little things here, the strategy's objects were not.
func (m *managed) quietly(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	count := map[string]int{}
	wrote := func(c *call) bool {
		return c.User.Name == managerUser && c.Stage == "ResponseComplete" && !slices.Contains([]string{"get", "list", "watch"}, c.Verb) && c.Response.Code < 300
	}
	for _, c := range m.audit.read(t, wrote) {
		count[c.what()]++
	}
	t.Logf("writes: %v", count)
	o, err := m.c.Admin().Get(ctx, reports+"/"+m.k.Node)
	if err != nil {
		t.Fatal(err)
	}
	// Made once, made again after somebody has deleted it, and changed by each of the three texts of colocation-config that say what to measure:
	// they say the same.
	if n := count["patch nodemetrics"]; n > 4 {
		t.Errorf("%d writes of the NodeMetric, generation %d", n, o.Int("metadata", "generation"))
	}
}
