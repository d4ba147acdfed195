// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const quotaProfiles = "/apis/quota.koordinator.sh/v1alpha1/namespaces/batch/elasticquotaprofiles/"

// rootQuota waits until the quota is as large as wanted.
func (m *managed) rootQuota(t *testing.T, name string, want map[string]string) cluster.Object {
	t.Helper()
	var o cluster.Object
	eventually(t, 20*time.Second, func() (err error) {
		if o, err = m.c.Admin().Get(t.Context(), quotaPath+name); err != nil {
			return err
		}
		for resource, least := range want {
			if got := o.Str("spec", "min", resource); got != least {
				return fmt.Errorf("min %s of quota %s is %q, want %q: %s", resource, name, got, least, o.Compact("spec"))
			}
		}
		return nil
	})
	return o
}

// rootOfNode: a profile over all nodes makes a quota of the node's CPUs.
func (m *managed) rootOfNode(t *testing.T) {
	ctx := t.Context()
	const text = "apiVersion: quota.koordinator.sh/v1alpha1\nkind: ElasticQuotaProfile\nmetadata: {name: all, namespace: batch}\nspec: {quotaName: all-root, nodeSelector: {}}\n"
	if _, err := m.c.Admin().Apply(ctx, "user", true, []byte(text)); err != nil {
		t.Fatal(err)
	}
	node, err := m.c.Admin().Get(ctx, "/api/v1/nodes/"+m.k.Node)
	if err != nil {
		t.Fatal(err)
	}
	m.rootQuota(t, "all-root", map[string]string{"cpu": node.Str("status", "allocatable", "cpu")})
	for _, path := range []string{quotaProfiles + "all", quotaPath + "all-root"} {
		if err := m.c.Admin().Delete(ctx, path, -1); err != nil {
			t.Error(err)
		}
	}
}

// quotaProfiles: a profile makes the root quota of its nodes, which follows them, is put right when somebody changes it or deletes it, and
// is nobody's once the profile has gone.
func (a *admitted) quotaProfiles(t *testing.T) {
	ctx := t.Context()
	for name, spec := range map[string]map[string]any{"pool-1": {}, "pool-2": {"unschedulable": true}} {
		_, err := a.c.Admin().Create(ctx, "/api/v1/nodes", cluster.Object{
			"metadata": map[string]any{"name": name, "labels": map[string]any{"pool": "c"}}, "spec": spec,
			"status": map[string]any{
				"capacity": map[string]any{"cpu": "8", "memory": "16Gi"}, "allocatable": map[string]any{"cpu": "8", "memory": "16Gi"},
				"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "lab", "message": "", "lastHeartbeatTime": nil, "lastTransitionTime": nil}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	a.user(t, `
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: pool-c, namespace: batch}
spec:
  quotaName: pool-c-root
  quotaLabels: {quota.scheduling.koordinator.sh/is-parent: "true"}
  resourceRatio: "0.75"
  nodeSelector: {matchLabels: {pool: c}}
`)
	begun := time.Now()
	o := a.rootQuota(t, "pool-c-root", map[string]string{"cpu": "12", "memory": "24Gi"})
	t.Logf("the quota was there after %s", time.Since(begun).Round(time.Millisecond))
	p, err := a.c.Admin().Get(ctx, quotaProfiles+"pool-c")
	if err != nil {
		t.Fatal(err)
	}
	const id = "10680615750758776954" // of batch/pool-c
	for key, want := range map[string]string{
		protocol.LabelQuotaTreeID: id, protocol.LabelQuotaIsRoot: "true", protocol.LabelQuotaIsParent: "true", protocol.LabelQuotaProfile: "pool-c",
		protocol.LabelQuotaParent: protocol.QuotaRoot,
	} {
		if got := o.Str("metadata", "labels", key); got != want {
			t.Errorf("label %s of the quota is %q, want %q", key, got, want)
		}
	}
	if got := p.Str("metadata", "labels", protocol.LabelQuotaTreeID); got != id {
		t.Errorf("tree id of the profile %q, want %s", got, id)
	}
	if got := o.Str("spec", "max", "cpu"); got != "4611686018427387" {
		t.Errorf("max cpu %s", got)
	}
	// What nodes lend comes and goes: the annotations are looked at when nothing moves any more.
	for key, want := range map[string]string{protocol.AnnotationQuotaTotal: `{"cpu":"12","memory":"24Gi"}`, protocol.AnnotationQuotaUnschedulable: `{"cpu":"6","memory":"12Gi"}`} {
		eventually(t, 20*time.Second, func() error {
			o, err := a.c.Admin().Get(ctx, quotaPath+"pool-c-root")
			if got := o.Str("metadata", "annotations", key); err == nil && got != want {
				return fmt.Errorf("annotation %s: %s, want %s", key, got, want)
			}
			return err
		})
	}
	// A child of the tree, which the webhook compares with it.
	err = a.answered(t, func() error {
		if a.try(ctx, quotaText("pool-c-child", "pool-c-root")) == nil {
			return errors.New("a child that limits less than its parent passes")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	lower := func(cpu string) {
		t.Helper()
		if _, err := a.c.Admin().Patch(ctx, quotaPath+"pool-c-root", cluster.MergePatch, map[string]any{"spec": map[string]any{"min": map[string]any{"cpu": cpu}}}); err != nil {
			t.Fatal(err)
		}
	}
	lower("1")
	a.rootQuota(t, "pool-c-root", map[string]string{"cpu": "12"})
	if _, err := a.c.Admin().Patch(ctx, "/api/v1/nodes/pool-2/status", cluster.MergePatch, allocatable("4")); err != nil {
		t.Fatal(err)
	}
	a.rootQuota(t, "pool-c-root", map[string]string{"cpu": "9"})
	remove := func(path string) {
		t.Helper()
		if err := a.c.Admin().Delete(ctx, path, -1); err != nil {
			t.Fatal(err)
		}
	}
	remove(quotaPath + "pool-c-root")
	a.rootQuota(t, "pool-c-root", map[string]string{"cpu": "9"})
	writes := func() int {
		return len(a.audit.read(t, func(c *call) bool { return c.User.Name == sloUser && c.what() == "patch elasticquotas" }))
	}
	before := atRest(t, writes) // the quota's own coming is looked at, too
	note := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": "looked at, and nothing to write"}}}
	if _, err := a.c.Admin().Patch(ctx, quotaProfiles+"pool-c", cluster.MergePatch, note); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if after := writes(); after != before || before < 4 {
		t.Errorf("%d writes of the quota, then %d without a change; want at least 4 and as many", before, after)
	}
	remove(quotaProfiles + "pool-c")
	eventually(t, 60*time.Second, func() error { // who hears of the change before the profile's end puts it right, as it should
		lower("1")
		time.Sleep(3 * time.Second)
		o, err := a.c.Admin().Get(ctx, quotaPath+"pool-c-root")
		if least := o.Str("spec", "min", "cpu"); err == nil && least != "1" {
			err = fmt.Errorf("the quota of a profile that has gone is put right to %s", least)
		}
		return err
	})
	remove(quotaPath + "pool-c-root")
	for _, node := range []string{"pool-1", "pool-2"} {
		remove("/api/v1/nodes/" + node)
	}
}
