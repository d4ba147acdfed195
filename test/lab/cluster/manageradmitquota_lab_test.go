// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// ruledQuotas are what the cases go by: a parent with a child that could have children too, two of the scheduler's own, one that takes no pods, one
// above what it may use, and one with a pod. The scheduler's own cannot be deleted again.
const ruledQuotas = `
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: ruled-parent, namespace: ruled, labels: {quota.scheduling.koordinator.sh/is-parent: "true"}}
spec: {min: {cpu: 10, pods: 10}, max: {cpu: 50, pods: 50}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: ruled-child
  namespace: ruled
  labels: {quota.scheduling.koordinator.sh/parent: ruled-parent, quota.scheduling.koordinator.sh/is-parent: "true"}
spec: {min: {cpu: 8, pods: 8}, max: {cpu: 50, pods: 50}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: ` + protocol.QuotaRoot + `, namespace: ruled}
spec: {max: {cpu: 100}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: ` + protocol.QuotaSystem + `, namespace: ruled}
spec: {max: {cpu: 100}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: ruled-empty, namespace: ruled}
spec: {max: {cpu: 4, pods: 0}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: ruled-over, namespace: ruled, annotations: {quota.scheduling.koordinator.sh/max-strict-check-resource-keys: '["cpu"]'}}
spec: {max: {cpu: 20}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: ruled-lone
  namespace: ruled
  annotations:
    quota.scheduling.koordinator.sh/namespaces: '["lent"]'
    quota.scheduling.koordinator.sh/max-strict-check-resource-keys: '["cpu","memory","pods"]'
spec: {min: {cpu: 1}, max: {cpu: 20, memory: 4Gi, pods: 30}}
`

const ruledPath = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/ruled/elasticquotas/"

// quotaRules: what a quota may say, become and leave behind, and that pods are an amount as others are. The default quota of [admitted.gates] stands.
func (a *admitted) quotaRules(t *testing.T) {
	ctx := t.Context()
	if err := a.c.Namespace(ctx, "ruled"); err != nil {
		t.Fatal(err)
	}
	a.user(t, ruledQuotas)
	for name, used := range map[string]map[string]any{"ruled-lone": {"cpu": "12", "memory": "1Gi", "pods": "12"}, "ruled-over": {"cpu": "25"}} {
		status := map[string]any{"status": map[string]any{"used": used}}
		if _, err := a.c.Admin().Patch(ctx, ruledPath+name+"/status", cluster.MergePatch, status); err != nil {
			t.Fatal(err)
		}
	}
	a.store(t, "ruled", "metadata: {name: held, labels: {quota.scheduling.koordinator.sh/name: ruled-lone}}\nspec: {containers: [{name: main, image: x}]}")
	const hook = "velasticquota"
	behind := quotaBehindCases()
	for i := range behind {
		passes(t, behind[i].name, func() error { return a.judge(ctx, hook, &behind[i]) })
	}
	a.judges(t, hook, slices.Concat(quotaNewCases(), quotaFamilyCases(), quotaChangeCases()))
	a.admits(t, []podCase{
		{
			name: "a pod of a quota that takes none", in: "ruled", meta: "{labels: {quota.scheduling.koordinator.sh/name: ruled-empty}}",
			refused: []string{"requests.pods: 1 in all, above the 0 of spec.max of quota ruled/ruled-empty", "vpod-create", "denied the request"},
		},
		{name: "a pod of one that takes some", in: "ruled", meta: "{labels: {quota.scheduling.koordinator.sh/name: ruled-lone}}"},
	})
}

// newQuota is one that is never made; labels and annotations go into its metadata.
func newQuota(meta, spec string) string {
	return "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: ElasticQuota\nmetadata: {name: ruled-new, namespace: ruled" + meta + "}\nspec: " + spec + "\n"
}

// quotaBehindCases are for the webhook's cache, which may not have the last quota and the pod yet.
func quotaBehindCases() []objectCase {
	return []objectCase{
		{
			name:    "another namespace's quota of the name",
			text:    "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: ElasticQuota\nmetadata: {name: ruled-lone, namespace: batch}\nspec: {max: {cpu: 1}}\n",
			refused: []string{"namespace ruled has a quota ruled-lone already, and pods and children know quotas by name alone: choose another name"},
		},
		{
			name: "a parent, with a pod", path: ruledPath + "ruled-lone", change: `metadata: {labels: {quota.scheduling.koordinator.sh/is-parent: "true"}}`,
			refused: []string{"is-parent: the quota has pods (ruled/held), and a parent has none: move them first"},
		},
	}
}

// quotaNewCases: what a new quota says by itself.
func quotaNewCases() []objectCase {
	labels := func(list string) string { return ", labels: {" + list + "}" }
	annotations := func(list string) string { return ", annotations: {" + list + "}" }
	return []objectCase{
		{name: "right", text: newQuota("", "{min: {cpu: 1}, max: {cpu: 1, lab.example/x: 1}, hard: {cpu: 1}}")},
		{name: "a negative max", text: newQuota("", "{max: {cpu: -1}}"), refused: []string{"spec.max: cpu is -1: must not be negative"}},
		{name: "a negative min", text: newQuota("", "{min: {cpu: -1}, max: {cpu: 1}}"), refused: []string{"spec.min: cpu is -1: must not be negative"}},
		{name: "a negative hard", text: newQuota("", "{hard: {pods: -1}}"), refused: []string{"spec.hard: pods is -1: must not be negative"}},
		{
			name: "a negative weight", text: newQuota(annotations(`quota.scheduling.koordinator.sh/shared-weight: '{"cpu":"-1"}'`), "{max: {cpu: 1}}"),
			refused: []string{"annotation quota.scheduling.koordinator.sh/shared-weight: cpu is -1: must not be negative"},
		},
		{
			name: "a negative total", text: newQuota(annotations(`quota.scheduling.koordinator.sh/total-resource: '{"cpu":"-1"}'`), "{max: {cpu: 1}}"),
			refused: []string{"annotation quota.scheduling.koordinator.sh/total-resource: cpu is -1: must not be negative"},
		},
		{
			name: "a weight that is no list", text: newQuota(annotations(`quota.scheduling.koordinator.sh/shared-weight: "40"`), "{max: {cpu: 1}}"),
			refused: []string{`annotation quota.scheduling.koordinator.sh/shared-weight: cannot be read: want JSON as {"cpu":"40"}`},
		},
		{
			name: "a label that says nothing", text: newQuota(labels(`quota.scheduling.koordinator.sh/is-parent: "yes"`), "{max: {cpu: 1}}"),
			refused: []string{`label quota.scheduling.koordinator.sh/is-parent: "yes", want true or false`},
		},
		// The definition compares six resources by name, and not these.
		{
			name: "min above max", text: newQuota("", "{min: {lab.example/x: 2}, max: {lab.example/x: 1}}"),
			refused: []string{"spec.min: lab.example/x is 2, above spec.max with 1"},
		},
		{
			name: "min above hard", text: newQuota("", "{min: {lab.example/x: 2}, max: {lab.example/x: 2}, hard: {lab.example/x: 1}}"),
			refused: []string{"spec.min: lab.example/x is 2, above spec.hard with 1"},
		},
		{name: "min of what is not limited", text: newQuota("", "{min: {memory: 1Gi}, max: {cpu: 1}}"), refused: []string{"spec.min: memory has no spec.max: add it there"}},
		{
			name: "a namespace that is taken", text: newQuota(annotations(`quota.scheduling.koordinator.sh/namespaces: '["free","lent"]'`), "{max: {cpu: 1}}"),
			refused: []string{"annotation quota.scheduling.koordinator.sh/namespaces: namespace lent belongs to quota ruled-lone already"},
		},
		{name: "a namespace that is not", text: newQuota(annotations(`quota.scheduling.koordinator.sh/namespaces: '["free"]'`), "{max: {cpu: 1}}")},
	}
}

// quotaFamilyCases: what a child must have of its parent.
func quotaFamilyCases() []objectCase {
	of := func(parent, more string) string {
		return ", labels: {quota.scheduling.koordinator.sh/parent: " + parent + more + "}"
	}
	const parent, child = ruledPath + "ruled-parent", ruledPath + "ruled-child"
	const forced = `, quota.scheduling.koordinator.sh/allow-force-update: "true"`
	const lower, lowerForced = "spec: {min: {cpu: 5}}", "metadata: {labels: {quota.scheduling.koordinator.sh/allow-force-update: \"true\"}}\nspec: {min: {cpu: 5}}"
	return []objectCase{
		{name: "its own parent", text: newQuota(of("ruled-new", ""), "{max: {cpu: 1}}"), refused: []string{"parent: a quota cannot be its own parent"}},
		{
			name: "below its own child", path: parent, change: "metadata: {labels: {quota.scheduling.koordinator.sh/parent: ruled-child}}",
			refused: []string{"parent: quota ruled-child lies below ruled-parent"},
		},
		{
			name: "of another tree", text: newQuota(of("ruled-parent", ", quota.scheduling.koordinator.sh/tree-id: t2"), "{max: {cpu: 1, pods: 1}}"),
			refused: []string{`quota ruled-new is of tree "t2", its parent ruled-parent of tree "": they must be of one`},
		},
		{
			name: "limits more", text: newQuota(of("ruled-parent", ""), "{max: {cpu: 1, memory: 1Gi, pods: 1}}"),
			refused: []string{"quota ruled-new limits memory, and its parent ruled-parent does not: add it to the parent or leave it out"},
		},
		{
			name: "does not limit its pods", text: newQuota(of("ruled-parent", ""), "{max: {cpu: 1}}"),
			refused: []string{"quota ruled-parent limits pods, and its child ruled-new does not: add it to the child"},
		},
		{
			name: "guarantees more", text: newQuota(of("ruled-parent", ""), "{min: {memory: 1Gi}, max: {cpu: 1, memory: 1Gi, pods: 1}}"),
			refused: []string{"quota ruled-new guarantees memory, and its parent ruled-parent does not"},
		},
		{
			name: "guarantees too many pods", text: newQuota(of("ruled-parent", ""), "{min: {cpu: 1, pods: 3}, max: {cpu: 1, pods: 50}}"),
			refused: []string{"the children of quota ruled-parent (ruled-child, ruled-new) are guaranteed 11 pods together, it has 10"},
		},
		{name: "the same, forced", text: newQuota(of("ruled-parent", forced), "{min: {cpu: 1, pods: 3}, max: {cpu: 1, pods: 50}}")},
		{name: "as many as there are", text: newQuota(of("ruled-parent", ""), "{min: {cpu: 1, pods: 2}, max: {cpu: 1, pods: 50}}")},
		{
			name: "less than the children have", path: parent, change: lower,
			refused: []string{"the children of quota ruled-parent (ruled-child) are guaranteed 8 cpu together, it has 5: lower theirs or raise its own"},
		},
		{name: "less, forced", path: parent, change: lowerForced},
		{
			name: "more than the parent has", path: child, change: "spec: {min: {cpu: 11}}",
			refused: []string{"the children of quota ruled-parent (ruled-child) are guaranteed 11 cpu together, it has 10"},
		},
		{name: "all that it has", path: child, change: "spec: {min: {cpu: 10}}"},
		{
			name: "no parent any more, with a child", path: parent, change: "metadata: {labels: {quota.scheduling.koordinator.sh/is-parent: null}}",
			refused: []string{"is-parent: the quota has children (ruled-child): give them another parent first"},
		},
		{name: "no parent any more, without one", path: child, change: "metadata: {labels: {quota.scheduling.koordinator.sh/is-parent: null}}"},
		{name: "a parent, without a pod", path: ruledPath + "ruled-empty", change: `metadata: {labels: {quota.scheduling.koordinator.sh/is-parent: "true"}}`},
	}
}

// quotaChangeCases: what of a stored quota may change, and whose cannot.
func quotaChangeCases() []objectCase {
	const lone, over = ruledPath + "ruled-lone", ruledPath + "ruled-over"
	const strict = "annotation quota.scheduling.koordinator.sh/max-strict-check-resource-keys forbids: "
	out := []objectCase{
		{
			name: "another tree", path: lone, change: "metadata: {labels: {quota.scheduling.koordinator.sh/tree-id: t9}}",
			refused: []string{`label quota.scheduling.koordinator.sh/tree-id: cannot change from "" to "t9": make a new quota and move the pods`},
		},
		{name: "below what is used", path: lone, change: "spec: {max: {cpu: 11}}", refused: []string{"spec.max: cpu is 11, below the 12 in use, which " + strict + "end pods first"}},
		{name: "fewer pods than there are", path: lone, change: "spec: {max: {pods: 11}}", refused: []string{"spec.max: pods is 11, below the 12 in use, which " + strict}},
		{name: "what is used", path: lone, change: "spec: {max: {cpu: 12, pods: 12}}"},
		{name: "no limit of what is used", path: lone, change: "spec: {max: {memory: null}}", refused: []string{"spec.max: memory is used and not limited, which " + strict + "add it"}},
		{
			name: "below what is used, where nothing forbids it", path: lone,
			change: "metadata: {annotations: {quota.scheduling.koordinator.sh/max-strict-check-resource-keys: null}}\nspec: {max: {cpu: 11, memory: null, pods: 11}}",
		},
		{
			name: "above its max before", path: over, change: "metadata: {labels: {a: b}}", want: "metadata: {labels: {a: b}}",
			warned: []string{"it was wrong before: spec.max: cpu is 20, below the 25 in use"},
		},
		{name: "above its max before, and more so", path: over, change: "spec: {max: {cpu: 19}}", refused: []string{"spec.max: cpu is 19, below the 25 in use"}},
		{
			name: "a namespace that is taken", path: over, change: `metadata: {annotations: {quota.scheduling.koordinator.sh/namespaces: '["lent"]', ` +
				`quota.scheduling.koordinator.sh/max-strict-check-resource-keys: null}}`,
			refused: []string{"namespace lent belongs to quota ruled-lone already"},
		},
		{name: "the default quota deleted", path: quotaPath + protocol.QuotaDefault, refused: []string{"quota " + protocol.QuotaDefault + " is the scheduler's own and cannot be deleted"}},
		{name: "the default quota changed", path: quotaPath + protocol.QuotaDefault, change: "spec: {max: {cpu: 1}}"},
		{name: "one that nobody needs deleted", path: ruledPath + "ruled-empty"},
	}
	for _, name := range []string{protocol.QuotaRoot, protocol.QuotaSystem} {
		out = append(out,
			objectCase{name: name + " deleted", path: ruledPath + name, refused: []string{"quota " + name + " is the scheduler's own and cannot be deleted"}},
			objectCase{name: name + " changed", path: ruledPath + name, change: "spec: {max: {cpu: 101}}", refused: []string{"quota " + name + " is the scheduler's own and cannot be changed"}})
	}
	return out
}
