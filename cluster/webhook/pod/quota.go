// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/profiles"
	"github.com/koord-rt/koord-rt/cluster/internal/quotas"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// quotaOf is the quota that a pod comes to, nil for none, and the name that the pod's label has.
func (c cluster) quotaOf(ctx context.Context, p *profile.Pod, rules profile.QuotaRules) (*profile.Quota, string, error) {
	list, err := quotas.List(ctx, c.cached) // one of two that are one
	if err != nil {
		return nil, "", err
	}
	all := make([]profile.Quota, len(list))
	for i, o := range list {
		all[i] = profile.Quota{
			Namespace: o.Meta.Namespace, Name: o.Meta.Name, Parent: o.Meta.Labels[protocol.LabelQuotaIsParent] == "true", Tree: o.Meta.Labels[protocol.LabelQuotaTreeID],
			Whole:      o.Seed != "",
			Namespaces: o.Meta.Annotations[protocol.AnnotationQuotaNamespaces],
		}
	}
	at, named := profile.FindQuota(p, all, rules)
	if at < 0 {
		return nil, named, nil
	}
	all[at].Max, all[at].Hard = amounts(list[at].Spec.Max), amounts(list[at].Spec.Hard)
	return &all[at], named, nil
}

// checkQuota says why a pod cannot come to its quota, and what to tell its maker. What a cache does not know yet must not refuse: it is
// looked at again for a moment.
func (v *validator) checkQuota(ctx context.Context, p *profile.Pod, check func(*profile.Quota) []profile.Problem) (problems []profile.Problem, warnings []string) {
	err := quotas.Settle(ctx, v.wait, func(ctx context.Context) (bool, error) {
		problems, warnings = nil, nil
		q, named, err := v.quotaOf(ctx, p, v.options.Quota)
		switch {
		case err != nil:
			return false, err
		case q == nil && named != "":
			warnings = []string{"koord-manager: label " + protocol.LabelQuotaName + ": there is no quota " + named + ", or it is not known yet; let pass"}
			return true, nil
		case q == nil:
			return true, nil
		}
		problems = check(q)
		return len(problems) == 0, nil
	})
	if err != nil {
		v.answers.Count(validating, "quotas")
		logf.FromContext(ctx).Error(err, "a pod is not held to its quota")
		return nil, []string{"koord-manager: the quotas cannot be read; the pod is not held to its own"}
	}
	return problems, warnings
}

// treeNodes holds a pod to the nodes of its quota's tree, which other nodes do not feed.
func (c *change) treeNodes(ctx context.Context) {
	if !c.options.Trees {
		return
	}
	q, _, err := c.quotaOf(ctx, &c.value, c.options.Quota)
	if err != nil {
		c.warn(ctx, "quotas", err)
	}
	if q == nil || q.Tree == "" {
		return
	}
	var list quotav1alpha1.ElasticQuotaProfileList
	if err := c.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		if !meta.IsNoMatchError(err) {
			c.warn(ctx, "quotas", fmt.Errorf("list ElasticQuotaProfiles: %w", err))
		}
		return
	}
	all := make([]profile.QuotaProfile, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		tree := o.Labels[protocol.LabelQuotaTreeID]
		if tree == "" {
			tree = o.Spec.QuotaLabels[protocol.LabelQuotaTreeID]
		}
		all[i] = profile.QuotaProfile{Name: o.Name, Tree: tree, Nodes: profiles.Selector(o.Spec.NodeSelector)}
	}
	nodes, problems := profile.TreeNodes(q.Tree, all)
	for _, p := range problems {
		c.warn(ctx, "quotas", errors.New(p.String()))
	}
	if len(nodes) == 0 {
		return
	}
	if c.pod.Spec.Affinity == nil {
		c.pod.Spec.Affinity = &corev1.Affinity{}
	}
	if c.pod.Spec.Affinity.NodeAffinity == nil {
		c.pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &c.pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{}
	}
	(*required).NodeSelectorTerms = narrowed((*required).NodeSelectorTerms, nodes)
	c.changed = true
}

// narrowed are terms, of which one is enough, within nodes, of which one is enough. An empty term means no node, and stays; so does one that
// has been narrowed before.
func narrowed(terms []corev1.NodeSelectorTerm, nodes [][]profile.Expression) []corev1.NodeSelectorTerm {
	within := make([][]corev1.NodeSelectorRequirement, len(nodes))
	for i, all := range nodes {
		for _, e := range all {
			within[i] = append(within[i], corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
		}
	}
	var out []corev1.NodeSelectorTerm
	if len(terms) == 0 {
		for _, more := range within {
			out = append(out, corev1.NodeSelectorTerm{MatchExpressions: more})
		}
		return out
	}
	for _, term := range terms {
		has := func(r corev1.NodeSelectorRequirement) bool {
			return slices.ContainsFunc(term.MatchExpressions, func(o corev1.NodeSelectorRequirement) bool { return equality.Semantic.DeepEqual(o, r) })
		}
		done := slices.ContainsFunc(within, func(all []corev1.NodeSelectorRequirement) bool {
			return !slices.ContainsFunc(all, func(r corev1.NodeSelectorRequirement) bool { return !has(r) })
		})
		if done || len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			out = append(out, term)
			continue
		}
		for _, more := range within {
			next := term
			next.MatchExpressions = slices.Concat(term.MatchExpressions, more)
			out = append(out, next)
		}
	}
	return out
}
