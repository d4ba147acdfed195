// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quota

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// Canonical is the group that the others' quotas become objects of (D1).
const Canonical = "scheduling.sigs.k8s.io"

// Quota is an ElasticQuota of any of the three groups, as far as admission goes by it.
type Quota struct {
	Group, Namespace, Name string
	// Seed is the group of the quota that a canonical one stands for or has the name of, "" for none; Mirror is one made from such a quota.
	Seed   string
	Mirror bool
	// Parent is a name, [protocol.QuotaRoot] where none is given; Tree is the tree's id.
	Parent, Tree string
	// IsParent may have children; TreeRoot is the top of a tree, as large as its nodes; Force skips the sums of min.
	IsParent, TreeRoot, Force bool
	Min, Max, Hard, Used      corev1.ResourceList
	// Weight is shared-weight, nil where none is given; Total is total-resource.
	Weight, Total corev1.ResourceList
	// Namespaces are those whose pods come to this quota; Strict are resources whose max must not fall below what is used.
	Namespaces, Strict []string
}

// Read reads an object of any group, and says what of it cannot be read.
func Read(group string, meta *metav1.ObjectMeta, spec *sigsv1alpha1.ElasticQuotaSpec, used corev1.ResourceList) (Quota, []string) {
	q := Quota{
		Group: group, Namespace: meta.Namespace, Name: meta.Name, Parent: meta.Labels[protocol.LabelQuotaParent],
		Tree: meta.Labels[protocol.LabelQuotaTreeID], Min: spec.Min, Max: spec.Max, Hard: spec.Hard, Used: used,
		Mirror: group == Canonical && meta.Labels[sigsv1alpha1.LabelProjectedFrom] != "",
	}
	if q.Parent == "" {
		q.Parent = protocol.QuotaRoot
	}
	var problems []string
	for _, f := range []struct {
		key string
		to  *bool
	}{
		{protocol.LabelQuotaIsParent, &q.IsParent}, {protocol.LabelQuotaIsRoot, &q.TreeRoot}, {protocol.LabelQuotaForceUpdate, &q.Force},
		{protocol.LabelQuotaAllowLent, new(bool)},
	} {
		value, ok := meta.Labels[f.key]
		*f.to = value == "true"
		if ok && value != "true" && value != "false" {
			problems = append(problems, fmt.Sprintf("label %s: %q, want true or false", f.key, value))
		}
	}
	for _, f := range []struct {
		key, want string
		to        any
	}{
		{protocol.AnnotationQuotaSharedWeight, `{"cpu":"40"}`, &q.Weight}, {protocol.AnnotationQuotaTotal, `{"cpu":"40"}`, &q.Total},
		{protocol.AnnotationQuotaNamespaces, `["team-a"]`, &q.Namespaces}, {protocol.AnnotationQuotaStrictKeys, `["cpu"]`, &q.Strict},
	} {
		text := meta.Annotations[f.key]
		if text == "" {
			continue
		}
		if len(text) > protocol.MaxValueBytes {
			problems = append(problems, fmt.Sprintf("annotation %s: has %d bytes, at most %d are read", f.key, len(text), protocol.MaxValueBytes))
			continue
		}
		if err := quantity.Unmarshal([]byte(text), f.to); err != nil {
			problems = append(problems, fmt.Sprintf("annotation %s: cannot be read: want JSON as %s", f.key, f.want))
		}
	}
	return q, problems
}

// builtin are the quotas that the scheduler makes.
func builtin(name string) bool {
	return name == protocol.QuotaRoot || name == protocol.QuotaSystem || name == protocol.QuotaDefault
}

// same reports whether two are one quota: the object of the canonical group that was made from another group's has its namespace
// and name.
func (q *Quota) same(o *Quota) bool { return q.Name == o.Name && q.Namespace == o.Namespace }

// CheckSelf says what is wrong with a quota by itself: amounts that are negative, min above max or hard, min of what max does not
// limit, and max below what is used where that is forbidden.
//
// Example: min cpu 10 and max cpu 8 is refused; min cpu 2 without a max of cpu too.
func CheckSelf(q *Quota) []string {
	var out []string
	for _, l := range []struct {
		at   string
		list corev1.ResourceList
	}{
		{"spec.min", q.Min}, {"spec.max", q.Max}, {"spec.hard", q.Hard},
		{"annotation " + protocol.AnnotationQuotaSharedWeight, q.Weight}, {"annotation " + protocol.AnnotationQuotaTotal, q.Total},
	} {
		for _, name := range names(l.list) {
			if v := l.list[name]; v.Sign() < 0 && len(out) < answer.Enough {
				out = append(out, fmt.Sprintf("%s: %s is %s: must not be negative", l.at, name, v.String()))
			}
		}
	}
	for _, name := range names(q.Min) {
		if len(out) >= answer.Enough {
			break
		}
		least := q.Min[name]
		limited := false
		for _, l := range []struct {
			at   string
			list corev1.ResourceList
		}{{"spec.max", q.Max}, {"spec.hard", q.Hard}} {
			most, ok := l.list[name]
			if limited = limited || ok; ok && least.Cmp(most) > 0 {
				out = append(out, fmt.Sprintf("spec.min: %s is %s, above %s with %s: what is guaranteed is part of what may be used; lower min or raise %s",
					name, least.String(), l.at, most.String(), l.at))
			}
		}
		if !limited {
			out = append(out, fmt.Sprintf("spec.min: %s has no spec.max: add it there", name))
		}
	}
	for _, name := range q.Strict {
		if len(out) >= answer.Enough {
			break
		}
		used, counted := q.Used[corev1.ResourceName(name)]
		most, ok := q.Max[corev1.ResourceName(name)]
		switch {
		case !counted:
		case !ok:
			out = append(out, fmt.Sprintf("spec.max: %s is used and not limited, which annotation %s forbids: add it", name, protocol.AnnotationQuotaStrictKeys))
		case most.Cmp(used) < 0:
			out = append(out, fmt.Sprintf("spec.max: %s is %s, below the %s in use, which annotation %s forbids: end pods first, or take %s out of the annotation",
				name, most.String(), used.String(), protocol.AnnotationQuotaStrictKeys, name))
		}
	}
	return out
}

// names are a list's resources in order.
func names(l corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(l)) }

// lacking are some of the resources of a that b has not, in order, as text.
func lacking(a, b corev1.ResourceList) string {
	var out []string
	for _, name := range names(a) {
		if _, ok := b[name]; !ok {
			out = append(out, string(name))
		}
	}
	return list(out)
}
