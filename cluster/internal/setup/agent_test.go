// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/cluster/webhook"
)

// rights are "group verb resource".
func rights(rules []rbacv1.PolicyRule) []string {
	out := map[string]bool{}
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, verb := range r.Verbs {
				for _, resource := range r.Resources {
					out[group+" "+verb+" "+resource] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// TestAgentsRights: koordlet is granted what TestClusterNodeKoordlet shows that it uses, of every node instead of one, and nothing else.
// TestClusterManager shows that it is enough.
func TestAgentsRights(t *testing.T) {
	t.Parallel()
	var granted []rbacv1.PolicyRule
	for _, r := range pick[*rbacv1.ClusterRole](manifests(t)) {
		if r.Name == "koordlet" {
			granted = r.Rules
		}
	}
	text, err := os.ReadFile("../../../test/lab/cluster/testdata/koordlet/install/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shown rbacv1.ClusterRole
	first, _, _ := strings.Cut(string(text), "\n---")
	if err := yaml.UnmarshalStrict([]byte(first), &shown); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rights(shown.Rules), rights(granted)); d != "" || len(granted) == 0 {
		t.Errorf("shown to be used (-), granted (+):\n%s", d)
	}
}

// TestAgentsPolicy: the policy fails closed, is about the account that the webhook of evictions is about, and covers whatever the agent
// may write; events say nothing of a node, and evictions are the webhook's.
func TestAgentsPolicy(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	policies, bindings := pick[*admissionregistrationv1.ValidatingAdmissionPolicy](all), pick[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](all)
	if len(policies) != 1 || len(bindings) != 1 || bindings[0].Spec.PolicyName != policies[0].Name || bindings[0].Spec.MatchResources != nil ||
		!slices.Equal(bindings[0].Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
		t.Fatalf("%v, %v", policies, bindings)
	}
	p := policies[0].Spec
	agents := webhook.Default(installed, installed, "", nil).Eviction.Agents
	if *p.FailurePolicy != admissionregistrationv1.Fail || len(p.MatchConditions) != 1 || len(agents) != 1 ||
		p.MatchConditions[0].Expression != "request.userInfo.username == '"+agents[0]+"'" {
		t.Errorf("%+v, agents %v", p, agents)
	}
	covered := map[string]bool{}
	for _, r := range p.MatchConstraints.ResourceRules {
		for _, resource := range r.Resources {
			for _, o := range r.Operations {
				covered[r.APIGroups[0]+" "+string(o)+" "+resource] = true
			}
		}
	}
	for _, r := range pick[*rbacv1.ClusterRole](all) {
		if r.Name != "koordlet" {
			continue
		}
		for _, right := range rights(r.Rules) {
			part := strings.Split(right, " ")
			operation := map[string]string{"create": "CREATE", "patch": "UPDATE", "update": "UPDATE", "delete": "DELETE"}[part[1]]
			elsewhere := right == "events.k8s.io create events" || right == " create pods/eviction"
			reads := slices.Contains([]string{"get", "list", "watch"}, part[1])
			if covered[part[0]+" "+operation+" "+part[2]] == (elsewhere || reads) {
				t.Errorf("right %q: covered by the policy %t", right, !(elsewhere || reads))
			}
		}
	}
}
