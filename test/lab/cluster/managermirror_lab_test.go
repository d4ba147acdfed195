// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const (
	mirrorOfM4  = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas/test-quota"
	sourceM4    = "/apis/koordinator.sh/v1alpha1/namespaces/default/koordelasticquotas/test-quota"
	mirrorOfM11 = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/team-a/elasticquotas/team-a-quota"
	sourceM11   = "/apis/quota.koordinator.sh/v1alpha1/namespaces/team-a/teamelasticquotas/team-a-quota"
	mirrorOfM12 = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/critical-team/elasticquotas/critical-team-quota"
	sourceM12   = "/apis/quota.koordinator.sh/v1alpha1/namespaces/critical-team/teamelasticquotas/critical-team-quota"
	mirrorOfM13 = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/batch-team/elasticquotas/batch-team-quota"
	sourceM13   = "/apis/quota.koordinator.sh/v1alpha1/namespaces/batch-team/teamelasticquotas/batch-team-quota"
)

// reads waits until an object has a value.
func (a *admitted) reads(t *testing.T, path, want string, steps ...any) cluster.Object {
	t.Helper()
	var o cluster.Object
	eventually(t, 3*time.Minute, func() (err error) {
		if o, err = a.c.Admin().Get(t.Context(), path); err != nil {
			return err
		}
		if got := o.Compact(steps...); got != want {
			return fmt.Errorf("%v of %s is %s, want %s", steps, path, got, want)
		}
		return nil
	})
	return o
}

// mirrors: the documents' quotas are canonical objects too, which nobody else changes for long, and say what is said of those. An object that
// somebody has made under the name counts, and the quota says so until it has gone.
func (a *admitted) mirrors(t *testing.T) {
	ctx := t.Context()
	for _, name := range []string{"team-a", "critical-team", "batch-team", "lone"} {
		if err := a.c.Namespace(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"m04-elasticquota-test", "m11-elasticquota-team-a", "m12-elasticquota-critical", "m13-elasticquota-batch"} {
		a.user(t, read(t, "testdata/manifests/"+file+".yaml"))
	}
	for mirror, source := range map[string]string{mirrorOfM4: sourceM4, mirrorOfM11: sourceM11, mirrorOfM12: sourceM12, mirrorOfM13: sourceM13} {
		from, err := a.c.Admin().Get(ctx, source)
		if err != nil {
			t.Fatal(err)
		}
		o := a.reads(t, mirror, from.Compact("spec"), "spec")
		if got, want := o.Str("metadata", "ownerReferences", 0, "uid"), from.Str("metadata", "uid"); got != want {
			t.Errorf("%s goes with %q, want its source %s: %s", mirror, got, want, o.Compact("metadata"))
		}
	}
	if o := a.reads(t, mirrorOfM11, `"quota.koordinator.sh"`, "metadata", "labels", "koord-rt.dev/projected-from"); o.Str("spec", "hard", "cpu") != "100" {
		t.Errorf("M11: %s", o.Compact("spec"))
	}
	for path, spec := range map[string]string{
		mirrorOfM4:  `{"max":{"cpu":"8","memory":"16Gi"},"min":{"cpu":"2","memory":"4Gi"}}`,
		mirrorOfM12: `{"hard":{"cpu":"500","memory":"500Gi"},"max":{"cpu":"500","memory":"500Gi"},"min":{"cpu":"300","memory":"300Gi"},"priority":100}`,
		mirrorOfM13: `{"hard":{"cpu":"200","memory":"200Gi"},"max":{"cpu":"300","memory":"300Gi"},"min":{"cpu":"100","memory":"100Gi"},"priority":10}`,
	} {
		a.reads(t, path, spec, "spec")
	}
	refused(t, "the name of a quota of the documents' other group", func() error {
		return a.try(ctx, "apiVersion: koordinator.sh/v1alpha1\nkind: ElasticQuota\nmetadata: {name: team-a-quota, namespace: team-a}\nspec: {min: {cpu: 1}, max: {cpu: 2}}\n")
	}, "namespace team-a has the quota team-a-quota of quota.koordinator.sh already")
	patch := func(path string, v map[string]any) {
		t.Helper()
		if _, err := a.c.Admin().Patch(ctx, path, cluster.MergePatch, v); err != nil {
			t.Fatal(err)
		}
	}
	status := map[string]any{"used": map[string]any{"cpu": "20"}, "allocatedQuota": map[string]any{"cpu": "100"}, "podAllocatedQuota": map[string]any{"cpu": "19"}}
	patch(mirrorOfM11+"/status", map[string]any{"status": status})
	for field, cpu := range map[string]string{"used": "20", "allocatedQuota": "100", "podAllocatedQuota": "19"} {
		a.reads(t, sourceM11, `{"cpu":"`+cpu+`"}`, "status", field)
	}

	for mirror, source := range map[string]string{mirrorOfM4: sourceM4, mirrorOfM12: sourceM12, mirrorOfM13: sourceM13} {
		status := map[string]any{"used": map[string]any{"cpu": "90"}, "allocatedQuota": map[string]any{"cpu": "160"}, "podAllocatedQuota": map[string]any{"cpu": "80"}}
		patch(mirror+"/status", map[string]any{"status": status})
		for field, cpu := range map[string]string{"used": "90", "allocatedQuota": "160", "podAllocatedQuota": "80"} {
			a.reads(t, source, `{"cpu":"`+cpu+`"}`, "status", field)
		}
	}

	spec := a.reads(t, sourceM11, `50`, "spec", "priority").Compact("spec")
	patch(mirrorOfM11, map[string]any{"spec": map[string]any{"max": map[string]any{"cpu": "300", "ephemeral-storage": "1Gi"}}})
	a.reads(t, mirrorOfM11, spec, "spec")
	patch(sourceM11, map[string]any{"spec": map[string]any{"max": map[string]any{"cpu": "250"}}})
	a.reads(t, mirrorOfM11, `"250"`, "spec", "max", "cpu")

	// A pair is one quota to a pod: it is held to it, and hears of it once.
	err := a.answered(t, func() error {
		_, err := a.c.Admin().Create(ctx, "/api/v1/namespaces/team-a/pods?dryRun=All", cluster.Object{
			"metadata": map[string]any{"name": "big"},
			"spec": map[string]any{"schedulerName": "koord-scheduler", "containers": []any{map[string]any{
				"name": "main", "image": "x", "resources": map[string]any{"requests": map[string]any{"cpu": "101"}},
			}}},
		})
		if err == nil || strings.Count(err.Error(), "spec.hard of quota team-a/team-a-quota") != 1 {
			return fmt.Errorf("a pod above hard: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	// Who comes first has the name.
	a.user(t, strings.ReplaceAll(quotaText("taken", ""), "namespace: batch", "namespace: lone"))
	a.user(t, "apiVersion: koordinator.sh/v1alpha1\nkind: ElasticQuota\nmetadata: {name: taken, namespace: lone}\nspec: {min: {cpu: 1}, max: {cpu: 2}}\n")
	const mirror, source = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/lone/elasticquotas/taken", "/apis/koordinator.sh/v1alpha1/namespaces/lone/koordelasticquotas/taken"
	o := a.reads(t, source, `"True"`, "status", "conditions", 0, "status")
	if text := o.Str("status", "conditions", 0, "message"); !strings.Contains(text, "lone/taken that was not made from this one") {
		t.Errorf("the conflict says %q", text)
	}
	if o := a.reads(t, mirror, `50`, "spec", "max", "cpu"); o.At("metadata", "ownerReferences") != nil {
		t.Errorf("somebody else's was changed: %s", o.Compact("metadata"))
	}
	remove := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			if err := a.c.Admin().Delete(ctx, path, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(mirror)
	a.reads(t, mirror, `"2"`, "spec", "max", "cpu")
	a.reads(t, source, `"False"`, "status", "conditions", 0, "status")

	a.barredMirror(t)

	writes := func() int {
		return len(a.audit.read(t, func(c *call) bool {
			return c.User.Name == sloUser && strings.HasPrefix(c.what(), "patch ") && strings.Contains(c.what(), "elasticquotas")
		}))
	}
	before := atRest(t, writes)
	patch(mirrorOfM4, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": "a scheduler's"}}})
	time.Sleep(2 * time.Second)
	if after := writes(); after != before {
		t.Errorf("%d writes, then %d without a change", before, after)
	}
	// Kubernetes' controller-manager, which deletes what has no owner, is not here (TestClusterComponents has it). Nobody makes the mirror again.
	remove(source, sourceM4, sourceM11, sourceM12, sourceM13)
	atRest(t, writes) // who hears of a mirror's end before its source's makes it again, as it should
	remove(mirror, mirrorOfM4, mirrorOfM11, mirrorOfM12, mirrorOfM13)
	time.Sleep(2 * time.Second)
	for _, path := range []string{mirror, mirrorOfM4, mirrorOfM11, mirrorOfM12, mirrorOfM13} {
		if _, err := a.c.Admin().Get(ctx, path); !cluster.Refused(err, "NotFound") {
			t.Errorf("%s without its source: %v", path, err)
		}
	}
}

// barredMirror: a quota whose mirror a policy of the cluster refuses says so, and why; when the policy has gone the mirror comes, and it says it
// no more.
func (a *admitted) barredMirror(t *testing.T) {
	ctx := t.Context()
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/barred"
	a.user(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: barred}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [scheduling.sigs.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [elasticquotas]}]
  validations: [{expression: "!has(object.metadata.labels) || !('barred' in object.metadata.labels)", message: "barred by the cluster"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: barred}
spec: {policyName: barred, validationActions: [Deny]}
`)
	const mirrors, source = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/barred/elasticquotas", "/apis/koordinator.sh/v1alpha1/namespaces/barred/koordelasticquotas/barred"
	if err := a.c.Namespace(ctx, "barred"); err != nil {
		t.Fatal(err)
	}
	try := cluster.Object{
		"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": map[string]any{"name": "try", "labels": map[string]any{"barred": "yes"}},
		"spec": map[string]any{"min": map[string]any{"cpu": "1"}, "max": map[string]any{"cpu": "2"}},
	}
	refused(t, "a quota that is barred", func() error {
		_, err := a.c.Admin().Create(ctx, mirrors+"?dryRun=All", try)
		return err
	}, "barred by the cluster")
	a.user(t, "apiVersion: koordinator.sh/v1alpha1\nkind: ElasticQuota\nmetadata: {name: barred, namespace: barred, labels: {barred: 'yes'}}\nspec: {min: {cpu: 1}, max: {cpu: 2}}\n")
	o := a.reads(t, source, `"Refused"`, "status", "conditions", 1, "type")
	if text := o.Str("status", "conditions", 1, "message"); !strings.Contains(text, "barred by the cluster") {
		t.Errorf("the refusal says %q", text)
	}
	if err := a.c.Admin().Delete(ctx, policies, -1); err != nil {
		t.Fatal(err)
	}
	if err := a.c.Admin().Delete(ctx, strings.Replace(policies, "policies/", "policybindings/", 1), -1); err != nil {
		t.Fatal(err)
	}
	a.reads(t, mirrors+"/barred", `"2"`, "spec", "max", "cpu")
	a.reads(t, source, `null`, "status", "conditions", 1)
	for _, path := range []string{source, mirrors + "/barred"} {
		if err := a.c.Admin().Delete(ctx, path, -1); err != nil {
			t.Fatal(err)
		}
	}
}
