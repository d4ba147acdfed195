// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile_test

import (
	"reflect"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// TestFindQuota: which of several quotas a pod comes to, in upstream's order, with the documents' quotas after the first of the namespace.
func TestFindQuota(t *testing.T) {
	t.Parallel()
	all := []profile.Quota{
		{Namespace: "koordinator-system", Name: protocol.QuotaDefault},
		{Namespace: "x", Name: "listed", Namespaces: `["web", "team"]`},
		{Namespace: "team", Name: "other"},
		{Namespace: "team", Name: "whole", Whole: true},
		{Namespace: "team", Name: "team"},
	}
	for name, c := range map[string]struct {
		namespace, label, scheduler string
		quotas                      []profile.Quota
		rules                       profile.QuotaRules
		want                        int
	}{
		"by label":                        {"web", "other", "", all, profile.QuotaRules{}, 2},
		"by label, the stock scheduler's": {"team", "other", "default-scheduler", all, profile.QuotaRules{}, 2},
		"a label that nobody has":         {"team", "nobody", "k", all, profile.QuotaRules{}, -1},
		"by its namespace's name":         {"team", "", "k", all, profile.QuotaRules{}, 4},
		"by a quota of the documents":     {"team", "", "k", all[:4], profile.QuotaRules{}, 3},
		"by the annotation":               {"team", "", "k", all[:3], profile.QuotaRules{}, 1},
		"by a part of a name":             {"tea", "", "k", all, profile.QuotaRules{NoDefault: true}, -1},
		"by default":                      {"tea", "", "k", all, profile.QuotaRules{}, 0},
		"the stock scheduler's":           {"team", "", "default-scheduler", all, profile.QuotaRules{}, -1},
		"without a scheduler":             {"team", "", "", all, profile.QuotaRules{}, -1},
		"an annotation that is no list":   {"web", "", "k", []profile.Quota{{Name: "a", Namespaces: "web"}}, profile.QuotaRules{}, -1},
	} {
		p := profile.Pod{Namespace: c.namespace, SchedulerName: c.scheduler, Labels: map[string]string{protocol.LabelQuotaName: c.label}}
		if got, named := profile.FindQuota(&p, c.quotas, c.rules); got != c.want || named != c.label {
			t.Errorf("%s: quota %d by label %q, want %d", name, got, named, c.want)
		}
	}
}

func TestCheckQuota(t *testing.T) {
	t.Parallel()
	type r = profile.Resources
	pod := func(requests r) profile.Pod {
		return profile.Pod{Main: []profile.Container{asks("a", requests, nil), asks("b", requests, nil)}, Overhead: r{"cpu": "500m"}}
	}
	quota := func(most, hard r) profile.Quota {
		return profile.Quota{Namespace: "ns", Name: "q", Max: most, Hard: hard}
	}
	parent := quota(nil, nil)
	parent.Parent = true
	const never = ": the pod could never run: ask for less, or raise "
	for name, c := range map[string]struct {
		pod   profile.Pod
		quota profile.Quota
		rules profile.QuotaRules
		want  []string
	}{
		"all of it":          {pod(r{"cpu": "2"}), quota(r{"cpu": "4500m"}, nil), profile.QuotaRules{}, nil},
		"more":               {pod(r{"cpu": "2"}), quota(r{"cpu": "4"}, nil), profile.QuotaRules{}, []string{"spec.containers[*].resources.requests.cpu: 4500m in all, above the 4 of spec.max of quota ns/q" + never + "spec.max"}},
		"without overhead":   {pod(r{"cpu": "2"}), quota(r{"cpu": "4"}, nil), profile.QuotaRules{NoOverhead: true}, nil},
		"hard is lower":      {pod(r{"memory": "1Gi"}), quota(r{"memory": "4Gi"}, r{"memory": "1536Mi"}), profile.QuotaRules{}, []string{"requests.memory: 2Gi in all, above the 1536Mi of spec.hard"}},
		"max is lower":       {pod(r{"memory": "1Gi"}), quota(r{"memory": "1"}, r{"memory": "1Gi"}), profile.QuotaRules{}, []string{"2Gi in all, above the 1 of spec.max"}},
		"not limited":        {pod(r{"memory": "1Gi"}), quota(r{"cpu": "4"}, nil), profile.QuotaRules{}, nil},
		"two":                {pod(r{"cpu": "9", "memory": "1Gi"}), quota(r{"memory": "1Gi"}, r{"cpu": "1"}), profile.QuotaRules{}, []string{"requests.cpu: 18500m", "requests.memory: 2Gi"}},
		"a quota of no pods": {pod(nil), quota(r{"pods": "0", "cpu": "1"}, nil), profile.QuotaRules{}, []string{"requests.pods: 1 in all, above the 0"}},
		"a cap of no end":    {pod(r{"cpu": "9"}), quota(r{"cpu": "1844674407370955161"}, nil), profile.QuotaRules{}, nil},
		"a parent":           {pod(nil), parent, profile.QuotaRules{}, []string{"label quota.scheduling.koordinator.sh/name: quota ns/q is a parent"}},
		"a parent with pods": {pod(nil), parent, profile.QuotaRules{Parents: true}, nil},
	} {
		expect(t, name, profile.CheckQuota(&c.pod, &c.quota, c.rules), c.want...)
	}
}

// A resize is held to the cap in what grows.
func TestCheckResize(t *testing.T) {
	t.Parallel()
	pod := func(cpu, memory strategy.Quantity) profile.Pod {
		return profile.Pod{Main: []profile.Container{asks("a", profile.Resources{"cpu": cpu, "memory": memory}, nil)}}
	}
	quota := profile.Quota{Namespace: "ns", Name: "q", Parent: true, Max: profile.Resources{"cpu": "2", "memory": "1Gi", "pods": "0"}}
	for name, c := range map[string]struct {
		now, was profile.Pod
		want     []string
	}{
		"within":                  {pod("2", "1Gi"), pod("1", "1Gi"), nil},
		"above":                   {pod("3", "1Gi"), pod("1", "1Gi"), []string{"requests.cpu: 3 in all, above the 2 of spec.max of quota ns/q"}},
		"above as before":         {pod("3", "512Mi"), pod("3", "1Gi"), nil},
		"less, and still above":   {pod("3", "1Gi"), pod("4", "1Gi"), nil},
		"less of one, more of it": {pod("3", "2Gi"), pod("4", "1Gi"), []string{"requests.memory: 2Gi in all, above the 1Gi of spec.max"}},
	} {
		expect(t, name, profile.CheckResize(&c.now, &c.was, &quota, profile.QuotaRules{}), c.want...)
	}
}

func TestTreeNodes(t *testing.T) {
	t.Parallel()
	pool := func(name, tree string, nodes *profile.Selector) profile.QuotaProfile {
		return profile.QuotaProfile{Name: name, Tree: tree, Nodes: nodes}
	}
	gpu := profile.Expression{Key: "gpu", Operator: "Exists"}
	is := func(key, value string) profile.Expression {
		return profile.Expression{Key: key, Operator: "In", Values: []string{value}}
	}
	b := pool("b", "t", &profile.Selector{Labels: map[string]string{"z": "1", "pool": "b"}, Expressions: []profile.Expression{gpu}})
	for name, c := range map[string]struct {
		tree     string
		profiles []profile.QuotaProfile
		want     [][]profile.Expression
		broken   []string
	}{
		"one":        {"t", []profile.QuotaProfile{b, pool("c", "other", b.Nodes)}, [][]profile.Expression{{is("pool", "b"), is("z", "1"), gpu}}, nil},
		"two":        {"t", []profile.QuotaProfile{b, pool("a", "t", &profile.Selector{Labels: map[string]string{"pool": "a"}})}, [][]profile.Expression{{is("pool", "a")}, {is("pool", "b"), is("z", "1"), gpu}}, nil},
		"one of all": {"t", []profile.QuotaProfile{b, pool("c", "t", &profile.Selector{})}, nil, nil},
		"no tree":    {"", []profile.QuotaProfile{pool("a", "", b.Nodes)}, nil, nil},
		"broken":     {"t", []profile.QuotaProfile{pool("a", "t", &profile.Selector{Expressions: []profile.Expression{{Key: "a", Operator: "Is"}}})}, nil, []string{"ElasticQuotaProfile a: nodeSelector: unknown operator"}},
	} {
		got, problems := profile.TreeNodes(c.tree, c.profiles)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		expect(t, name, problems, c.broken...)
	}
}
