// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// rightsElsewhere are what docs/user/admission.md has one write for a ConfigMap in another namespace.
const rightsElsewhere = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: koord-manager-slo, namespace: other}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [mine], verbs: [list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: koord-manager-slo, namespace: other}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: koord-manager-slo}
subjects: [{kind: ServiceAccount, name: koord-manager, namespace: ` + system + `}]
`

// elsewhere: a manager that is told another ConfigMap follows that one alone, with the rights that the guide says, and tells there what is wrong with
// it; told not to be elected it works and leaves the lease alone, and told one controller it runs no other.
func (n *simulated) elsewhere(t *testing.T) {
	n.tell(t, map[string]string{keyThreshold: thresholdConfig(65), keyBurst: burstConfig(400)})
	n.becomes(t, slos+"/"+documented, "NodeSLO by the usual ConfigMap", func(o cluster.Object) bool {
		return percent(o, "cpuSuppressThresholdPercent") == 65 && o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 400
	})
	if err := n.c.Namespace(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	mine := func(threshold string) {
		t.Helper()
		n.put(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: other}\ndata: {%s: %q}\n", keyThreshold, threshold))
	}
	n.put(t, rightsElsewhere)
	mine(thresholdConfig(45))
	n.manager(t, "--config-namespace=other", "--slo-config-name=mine", "--enable-leader-election=false", "--controllers=nodeslo")
	n.becomes(t, slos+"/"+documented, "NodeSLO by the other ConfigMap alone", func(o cluster.Object) bool {
		return percent(o, "cpuSuppressThresholdPercent") == 45 && o.At("spec", "cpuBurstStrategy") == nil
	})
	n.running.shows(t, 30*time.Second, "koordinator_manager_is_leader 1")
	if o, err := n.c.Admin().Get(t.Context(), leases); err != nil || o.Str("spec", "holderIdentity") != "" {
		t.Errorf("lease after a manager that is not to be elected: %v, %s", err, o.Compact("spec"))
	}

	n.node(t, "node-004")
	n.becomes(t, slos+"/node-004", "NodeSLO of a new node", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 45 })
	runs := func(controller string) string {
		return `controller_runtime_max_concurrent_reconciles\{controller="` + controller + `"\} .*`
	}
	n.running.shows(t, 30*time.Second, runs("nodeslo"))
	for _, name := range []string{"nodemetric", "noderesource", "quotamirror", "quotaprofile"} {
		if is, err := n.running.has(t.Context(), runs(name)); is || err != nil {
			t.Errorf("the controller %s runs: %t, %v", name, is, err)
		}
	}
	mine("{")
	n.running.shows(t, 30*time.Second, `koord_rt_manager_config_problems\{key="`+keyThreshold+`"\} 1`)
	eventually(t, 30*time.Second, func() error {
		list, err := n.c.Admin().Items(t.Context(), "/apis/events.k8s.io/v1/namespaces/other/events")
		for _, e := range list {
			if e.Str("reason") == "SLOCfgUnmarshalFailed" && e.Str("regarding", "name") == "mine" {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of the ConfigMap: %v", len(list), err)
	})
	if o, err := n.c.Admin().Get(t.Context(), reports+"/node-004"); !cluster.Refused(err, "NotFound") {
		t.Errorf("NodeMetric by a manager that is to make none: %v, %s", err, o.Compact("metadata"))
	}
}
