// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// gatedFlags turn on what is off by default, and have changed profiles applied again to pods that wait, soon.
func gatedFlags() []string {
	return []string{"--feature-gates=ColocationProfileController=true,MultiQuotaTree=true,ReservationMutatingWebhook=true", "--colocation-profile-reconcile-interval=2s"}
}

// reapplyRights are what docs/user/admission.md has the administrator grant.
const reapplyRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: koord-manager-reapply}
rules: [{apiGroups: [""], resources: [pods], verbs: [patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: koord-manager-reapply}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: koord-manager-reapply}
subjects: [{kind: ServiceAccount, name: koord-manager, namespace: ` + system + `}]
`

// reapplied: a profile that is kept up is changed. A pod that waits gets its labels, one that runs stays as it is, and neither is made
// another class.
func (m *managed) reapplied(t *testing.T, waits, runs string) {
	t.Helper()
	if _, err := m.c.Admin().Apply(t.Context(), "lab", false, []byte(reapplyRights)); err != nil {
		t.Fatal(err)
	}
	change := func(kept any, from, qos string) {
		t.Helper()
		patch := map[string]any{
			"metadata": map[string]any{"labels": map[string]any{protocol.LabelControllerManaged: kept}},
			"spec":     map[string]any{"labels": map[string]any{"from": from}, "qosClass": qos},
		}
		if _, err := m.c.Admin().Patch(t.Context(), "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/spark", cluster.MergePatch, patch); err != nil {
			t.Fatal(err)
		}
	}
	label := func(p cluster.Object, key string) string { return p.Str("metadata", "labels", key) }
	change("true", "changed", "LS")
	m.wait(t, waits, "given what the profile says now", func(p cluster.Object) bool { return label(p, "from") == "changed" })
	for name, from := range map[string]string{waits: "changed", runs: "profile"} {
		p, err := m.c.Admin().Get(t.Context(), batchPods+name)
		if err != nil {
			t.Fatal(err)
		}
		if label(p, "from") != from || label(p, protocol.LabelQoSClass) != "BE" || label(p, "app") != "spark" {
			t.Errorf("labels of %s: %s", name, p.Compact("metadata", "labels"))
		}
	}
	change(nil, "profile", "BE")
}
