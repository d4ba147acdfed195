// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// try creates or changes an object as an administrator, by a dry run.
func (a *admitted) try(ctx context.Context, text string) error {
	o, err := cluster.ParseObject([]byte(text))
	if err != nil {
		return err
	}
	return a.tryObject(ctx, o)
}

func (a *admitted) tryObject(ctx context.Context, o cluster.Object) error {
	path, err := a.c.Admin().Path(ctx, o)
	if err != nil {
		return err
	}
	q := url.Values{"fieldManager": {"user"}, "fieldValidation": {"Strict"}, "force": {"true"}, "dryRun": {"All"}}
	_, err = a.c.Admin().Patch(ctx, path+"?"+q.Encode(), "application/apply-patch+yaml", o)
	return err
}

// quotaText is a quota of 10 to 50 CPUs in batch; the parent of none is no parent.
func quotaText(name, parent string) string {
	labels := `{quota.scheduling.koordinator.sh/is-parent: "true"}`
	if parent != "" {
		labels = "{quota.scheduling.koordinator.sh/parent: " + parent + "}"
	}
	return "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: ElasticQuota\nmetadata: {name: " + name + ", namespace: batch, labels: " + labels +
		"}\nspec: {min: {cpu: 10}, max: {cpu: 50}}\n"
}

const quotaPath = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/batch/elasticquotas/"

// quotas: a parent and its child come in one file; what does not fit is refused in words that say what to do.
func (a *admitted) quotas(t *testing.T) {
	ctx := t.Context()
	refused(t, "a child without its parent", func() error { return a.try(ctx, quotaText("child", "company")) }, "there is no quota company: create it first")
	a.user(t, quotaText("company", "")+"---\n"+quotaText("child", "company"))
	o, err := a.c.Admin().Get(ctx, quotaPath+"company")
	if err != nil || o.Str("metadata", "labels", protocol.LabelQuotaParent) != protocol.QuotaRoot {
		t.Errorf("the parent has no parent: %v, %s", err, o.Compact("metadata"))
	}
	refused(t, "a second child", func() error { return a.try(ctx, quotaText("second", "company")) },
		"the children of quota company (child, second) are guaranteed 20 cpu together, it has 10", "denied the request")
	refused(t, "a child of a leaf", func() error { return a.try(ctx, quotaText("second", "child")) }, "quota child takes no children")
	// Deletions are dry runs: one that passes because a cache is behind would leave nothing that could be refused.
	removes := func(name string) func() error {
		return func() error { return a.c.Admin().Delete(ctx, quotaPath+name+"?dryRun=All", -1) }
	}
	refused(t, "the parent deleted", removes("company"), "has children (child)")
	a.pod(t, "batch", "counted", "", "default")
	label := map[string]any{"metadata": map[string]any{"labels": map[string]any{protocol.LabelQuotaName: "child"}}}
	if _, err := a.c.Admin().Patch(ctx, batchPods+"counted", cluster.MergePatch, label); err != nil {
		t.Fatal(err)
	}
	a.user(t, `
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuota
metadata: {name: team, namespace: batch}
spec: {min: {cpu: 1}, max: {cpu: 2}}
`)
	refused(t, "a second quota of the namespace", func() error {
		return a.try(ctx, "apiVersion: koordinator.sh/v1alpha1\nkind: ElasticQuota\nmetadata: {name: more, namespace: batch}\nspec: {min: {cpu: 1}, max: {cpu: 2}}")
	}, "namespace batch has the quota team of quota.koordinator.sh already")
	refused(t, "a quota with pods deleted", removes("child"), "quota child has pods (batch/counted)")
	// What a scheduler writes every second is not looked at.
	passes(t, "what is used", func() error {
		used := map[string]any{"status": map[string]any{"used": map[string]any{"cpu": 1}}}
		_, err := a.c.Admin().Patch(ctx, quotaPath+"child/status", cluster.MergePatch, used)
		return err
	})
	refused(t, "a profile", func() error {
		return a.try(ctx, "apiVersion: quota.koordinator.sh/v1alpha1\nkind: ElasticQuotaProfile\nmetadata: {name: p, namespace: batch}\n"+
			"spec: {quotaName: koordinator-root-quota, nodeSelector: {}}")
	}, "scheduler's own")
}

// quotaPods: a pod that could never run by its quota, and one of a parent, are refused; others come, and to the nodes of their tree. The quotas
// of [admitted.quotas] stand: company with its child, 50 CPUs each, and team with 2 for all pods of batch.
func (a *admitted) quotaPods(t *testing.T) {
	ctx := t.Context()
	try := func(namespace, scheduler, quota, cpu string) (cluster.Object, error) {
		labels := map[string]any{}
		if quota != "" {
			labels[protocol.LabelQuotaName] = quota
		}
		return a.c.Admin().Create(ctx, "/api/v1/namespaces/"+namespace+"/pods?dryRun=All", cluster.Object{
			"metadata": map[string]any{"generateName": "big-", "labels": labels},
			"spec": map[string]any{"schedulerName": scheduler, "containers": []any{map[string]any{
				"name": "main", "image": "x", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}},
			}}},
		})
	}
	pod := func(scheduler, quota, cpu string) func() error {
		return func() error {
			_, err := try("batch", scheduler, quota, cpu)
			return err
		}
	}
	const stock, ours = "default-scheduler", "koord-scheduler"
	refused(t, "more than max", pod(stock, "child", "60"), "requests.cpu: 60 in all, above the 50 of spec.max of quota batch/child", "denied the request")
	refused(t, "a pod of a parent", pod(stock, "company", "1"), "quota batch/company is a parent")
	refused(t, "more than the namespace's quota", pod(ours, "", "3"), "3 in all, above the 2 of spec.max of quota batch/team")
	for _, c := range [][3]string{{stock, "child", "50"}, {stock, "later", "60"}, {ours, "", "2"}, {stock, "", "60"}} {
		if err := pod(c[0], c[1], c[2])(); err != nil {
			t.Errorf("a pod of %q: %v", c, err)
		}
	}
	refused(t, "a pod that joins a parent", func() error {
		label := map[string]any{"metadata": map[string]any{"labels": map[string]any{protocol.LabelQuotaName: "company"}}}
		_, err := a.c.Admin().Patch(ctx, batchPods+"counted?dryRun=All", cluster.MergePatch, label)
		return err
	}, "quota batch/company is a parent")
	a.store(t, "batch", "metadata: {name: grows, labels: {quota.scheduling.koordinator.sh/name: child}}\nspec: {containers: [{name: main, image: x, resources: {requests: {cpu: 1}}}]}")
	resize := func(cpu string) func() error {
		return func() error {
			requests := map[string]any{"requests": map[string]any{"cpu": cpu}}
			_, err := a.c.Admin().Patch(ctx, batchPods+"grows/resize?dryRun=All", cluster.StrategicPatch,
				map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "resources": requests}}}})
			return err
		}
	}
	refused(t, "a pod that grows above max", resize("60"), "60 in all, above the 50 of spec.max of quota batch/child: the pod can never grow so far", "vpod-resize")
	if err := resize("50")(); err != nil {
		t.Errorf("a pod that grows up to max: %v", err)
	}
	a.user(t, `
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: pool-a, namespace: batch, labels: {quota.scheduling.koordinator.sh/tree-id: t1}}
spec: {quotaName: pool-a-root, nodeSelector: {matchLabels: {pool: a}}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: pooled, namespace: batch, labels: {quota.scheduling.koordinator.sh/tree-id: t1}}
spec: {min: {cpu: 1}, max: {cpu: 4}}
`)
	passes(t, "a pod of a tree", func() error {
		o, err := try("batch", stock, "pooled", "1")
		const want = `{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"pool","operator":"In","values":["a"]}]}]}}`
		if got := o.Compact("spec", "affinity", "nodeAffinity"); err == nil && got != want {
			return fmt.Errorf("affinity %s, want %s", got, want)
		}
		return err
	})
}

// reservationProfiles: with the gate a profile acts on a new Reservation as on a pod, and leaves its requests.
func (a *admitted) reservationProfiles(t *testing.T) {
	ctx := t.Context()
	a.user(t, `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: rooms}
spec: {selector: {matchLabels: {app: room}}, qosClass: BE, schedulerName: koord-scheduler, patch: {spec: {terminationGracePeriodSeconds: 7}}}
`)
	passes(t, "a reservation of a profile", func() error {
		o, err := a.c.Admin().Create(ctx, "/apis/scheduling.koordinator.sh/v1alpha1/reservations?dryRun=All", cluster.Object{
			"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": map[string]any{"name": "profiled"},
			"spec": map[string]any{
				"ttl": "10m", "owners": []any{map[string]any{"labelSelector": map[string]any{"matchLabels": map[string]any{"app": "room"}}}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "room"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "2"}}}}},
				},
			},
		})
		if err != nil {
			return err
		}
		spec := func(keys ...any) string { return o.Compact(append([]any{"spec", "template", "spec"}, keys...)...) }
		if o.Str("metadata", "labels", protocol.LabelQoSClass) != "BE" || o.Str("metadata", "annotations", protocol.AnnotationProfiles) != "rooms" ||
			spec("schedulerName") != `"koord-scheduler"` || spec("terminationGracePeriodSeconds") != "7" ||
			spec("containers", 0, "resources", "requests") != `{"cpu":"2"}` {
			return fmt.Errorf("the profile does not act: %s, %s", o.Compact("metadata"), spec())
		}
		return nil
	})
	if err := a.c.Admin().Delete(ctx, "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/rooms", -1); err != nil {
		t.Error(err)
	}
	a.unseenNamespace(t)
}

// unseenNamespace: a namespace that the manager's cache does not have, here because there is none, is asked of the API server; the profile that
// selects by it does not act, and the object passes.
func (a *admitted) unseenNamespace(t *testing.T) {
	ctx := t.Context()
	a.user(t, `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: unseen}
spec: {namespaceSelector: {matchLabels: {pool: unseen}}, selector: {matchLabels: {app: room}}, qosClass: BE}
`)
	text := `{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, metadata: {name: unseen}, spec: {ttl: 10m, owners: [{labelSelector: {matchLabels: {app: room}}}],
  template: {metadata: {namespace: unseen, labels: {app: room}}, spec: {containers: [{resources: {requests: {cpu: 2}}}]}}}}`
	passes(t, "a reservation of a namespace that nobody has seen", func() error {
		if err := a.try(ctx, text); err != nil {
			return err
		}
		if n := len(a.audit.read(t, func(c *call) bool {
			return c.User.Name == webhookUser && c.what() == "get namespaces" && c.Object.Name == "unseen"
		})); n == 0 {
			return errors.New("the API server was not asked for the namespace")
		}
		return nil
	})
	if err := a.c.Admin().Delete(ctx, "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/unseen", -1); err != nil {
		t.Error(err)
	}
}

// spelling: in a template, which the definition leaves open, a misspelt field is refused, and of one that nobody knows there is a warning. text is
// an object whose pod has a field of that name.
func (a *admitted) spelling(t *testing.T, at string, text func(field string) string) {
	t.Helper()
	ctx := t.Context()
	refused(t, "a misspelt field", func() error { return a.try(ctx, text("conatiners")) }, at+".conatiners: unknown field: write containers", "denied the request")
	cmd, err := a.c.KubectlCommand(ctx, "create", "--dry-run=server", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = strings.NewReader(text("podsOfTomorrow"))
	out, err := cmd.CombinedOutput()
	if want := "Warning: koord-manager: " + at + ".podsOfTomorrow: unknown field, which is kept"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("a field of tomorrow: %v, %s; want %q", err, out, want)
	}
}

// misspeltRoom is a Reservation of so many CPUs with a field that no pod has.
func misspeltRoom(name, cpu, field string) string {
	return "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Reservation\nmetadata: {name: " + name + ", finalizers: [koord-rt.dev/lab]}\n" +
		"spec: {ttl: 10m, owners: [{labelSelector: {matchLabels: {app: spark}}}], template: {spec: {containers: [{resources: {requests: {cpu: " + cpu + "}}}], " + field + ": []}}}\n"
}

// misspeltBefore: what was stored misspelt while nobody looked can change in all else, and be deleted.
func (a *admitted) misspeltBefore(t *testing.T) {
	ctx := t.Context()
	const path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/stored"
	refused(t, "a new one", func() error { return a.try(ctx, misspeltRoom("new", "1", "conatiners")) }, "conatiners: unknown field: write containers")
	for what, text := range map[string]string{
		"a longer life":  strings.Replace(misspeltRoom("stored", "1", "conatiners"), "10m", "20m", 1),
		"another amount": misspeltRoom("stored", "2", "conatiners"),
	} {
		if err := a.try(ctx, text); err != nil {
			t.Errorf("%s of one that was stored: %v", what, err)
		}
	}
	patch := func(path, text string) error {
		o, err := cluster.ParseObject([]byte(text))
		if err == nil {
			_, err = a.c.Admin().Patch(ctx, path, cluster.MergePatch, o)
		}
		return err
	}
	err := a.answered(t, func() error {
		err := patch(path+"?dryRun=All", "spec: {template: {spec: {hostnaem: x}}}")
		if err == nil || !strings.Contains(err.Error(), "hostnaem: unknown field: write hostname") || strings.Contains(err.Error(), "conatiners") {
			return fmt.Errorf("one more misspelling: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := patch(path+"/status", "status: {phase: Available, nodeName: a}"); err != nil {
		t.Errorf("its status: %v", err)
	}
	if err := a.c.Admin().Delete(ctx, path, -1); err != nil {
		t.Errorf("its deletion: %v", err)
	}
	if err := patch(path, "metadata: {finalizers: null}"); err != nil {
		t.Errorf("its finalizer: %v", err)
	}
	if _, err := a.c.Admin().Get(ctx, path); !cluster.Refused(err, "NotFound") {
		t.Errorf("it is deleted: %v", err)
	}
}

// reservations: what nobody could use is refused, and what is booked does not change.
func (a *admitted) reservations(t *testing.T) {
	ctx := t.Context()
	text := func(cpu, more string) string {
		return "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Reservation\nmetadata: {name: room" + more + "}\nspec:\n  ttl: 10m\n" +
			"  owners: [{labelSelector: {matchLabels: {app: spark}}}]\n" +
			"  template: {spec: {containers: [{resources: {requests: {cpu: " + cpu + "}}}]}}\n"
	}
	refused(t, "an amount that means nothing", func() error { return a.try(ctx, text("much", "")) }, "cannot be decoded")
	refused(t, "a negative amount", func() error { return a.try(ctx, text("-1", "")) }, "spec.template.spec.containers[0].resources.requests: cpu is -1")
	refused(t, "the scheduler's word", func() error {
		return a.try(ctx, text("8", `, annotations: {scheduling.koordinator.sh/resource-status: "{}"}`))
	}, protocol.AnnotationResourceStatus, "only the scheduler may set")
	a.spelling(t, "spec.template.spec", func(field string) string { return misspeltRoom("spelt", "8", field) })
	a.user(t, text("8", ""))
	passes(t, "changed before it is placed", func() error { return a.try(ctx, text("9", "")) })
	status := map[string]any{"status": map[string]any{"nodeName": "a", "phase": "Available"}}
	if _, err := a.c.Admin().Patch(ctx, "/apis/scheduling.koordinator.sh/v1alpha1/reservations/room/status", cluster.MergePatch, status); err != nil {
		t.Fatal(err)
	}
	refused(t, "changed when it is placed", func() error { return a.try(ctx, text("9", "")) }, "spec.template: cannot change", "booked on node a")
}

// jobs: a job names its pod, and keeps it.
func (a *admitted) jobs(t *testing.T) {
	ctx := t.Context()
	text := func(ref string) string {
		return "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: PodMigrationJob\nmetadata: {name: move}\nspec: {podRef: " + ref + "}\n"
	}
	refused(t, "no name", func() error { return a.try(ctx, text("{namespace: batch}")) }, "give both name and namespace of the pod")
	a.spelling(t, "spec.reservationOptions.template.spec.template.spec", func(field string) string {
		return text("{namespace: batch, name: db-a}, reservationOptions: {template: {spec: {template: {spec: {" + field + ": []}}}}}")
	})
	a.user(t, text("{namespace: batch, name: db-a}"))
	refused(t, "another pod", func() error { return a.try(ctx, text("{namespace: batch, name: db-b}")) }, "spec.podRef: cannot change")
	passes(t, "the same pod", func() error { return a.try(ctx, text("{namespace: batch, name: db-a}")) })
}

// allocatable is a kubelet's word.
func allocatable(cpu string) map[string]any {
	return map[string]any{"status": map[string]any{"allocatable": map[string]any{"cpu": cpu, "memory": "4Gi"}}}
}

// amplification: by the ConfigMap's ratio what a kubelet says is multiplied, however often it says so, and becomes what it was when the
// ratio goes; memory by one of its own.
func (a *admitted) amplification(t *testing.T) {
	ctx := t.Context()
	const node, key = "/api/v1/nodes/a", "resource-amplification-config"
	is := func(want, raw string) error {
		o, err := a.c.Admin().Get(ctx, node)
		if err != nil {
			return err
		}
		got, kept := o.Str("status", "allocatable", "cpu")+" "+o.Str("status", "allocatable", "memory"), o.Str("metadata", "annotations", protocol.AnnotationRawAllocatable)
		if got != want || kept != raw {
			return fmt.Errorf("allocatable %s, raw-allocatable %s; want %s and %s", got, kept, want, raw)
		}
		return nil
	}
	// says is a kubelet that says what CPUs it has, and what the node has of it, CPU and memory, at once.
	says := func(own, want, raw string) {
		t.Helper()
		err := a.answered(t, func() error {
			if _, err := a.c.Admin().Patch(ctx, node+"/status", cluster.MergePatch, allocatable(own)); err != nil {
				return err
			}
			return is(want, raw)
		})
		if err != nil {
			t.Error(err)
		}
	}
	follows := func(config, want, raw string) {
		t.Helper()
		a.tell(t, map[string]string{key: config})
		eventually(t, 20*time.Second, func() error { return is(want, raw) })
	}
	refused(t, "a ratio that means nothing", func() error {
		wrong := map[string]any{"metadata": map[string]any{"annotations": map[string]any{protocol.AnnotationAmplificationRatio: `{"cpu":0.5}`}}}
		_, err := a.c.Admin().Patch(ctx, node+"?dryRun=All", cluster.MergePatch, wrong)
		return err
	}, `ratio 0.5 of "cpu"`, "vnode.koordinator.sh")
	const kept10, kept8 = `{"cpu":"10","memory":"4Gi"}`, `{"cpu":"8","memory":"4Gi"}`
	says("10", "10 4Gi", "")
	follows(`{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}`, "15 4Gi", kept10)
	for range 2 {
		says("10", "15 4Gi", kept10)
	}
	follows(`{"enable": true, "resourceAmplificationRatio": {"cpu": 2, "memory": 1.5}}`, "20 6Gi", kept10)
	says("8", "16 6Gi", kept8)
	follows(`{"enable": true, "resourceAmplificationRatio": {"memory": 1.25}}`, "8 5Gi", kept8)
	follows(`{"enable": false}`, "8 4Gi", "")
	says("8", "8 4Gi", "")
	follows(`{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}`, "12 4Gi", kept8)
}
