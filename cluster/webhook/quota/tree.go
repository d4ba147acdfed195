// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// Tree are all quotas of a cluster, and the rules between them. It is a value: deciding changes nothing.
type Tree struct {
	quotas []Quota // one of each namespace and name
	seeds  []Quota // those of the groups that become others
	loose  bool
}

// NewTree makes it from the quotas of all groups. Of two that are one the canonical counts. Loose lets the resources of a child's max be
// some of its parent's, instead of all (upstream's gate ElasticQuotaEnableUpdateResourceKey).
func NewTree(all []Quota, loose bool) *Tree {
	t := &Tree{loose: loose}
	seen := make(map[[2]string]int, len(all))
	for i := range all {
		q := &all[i]
		switch {
		case q.Group != Canonical:
			t.seeds = append(t.seeds, *q)
		case q.Seed != "":
			seed := *q
			seed.Group = q.Seed
			t.seeds = append(t.seeds, seed)
		}
		key := [2]string{q.Namespace, q.Name}
		at, there := seen[key]
		switch {
		case !there:
			seen[key] = len(t.quotas)
			t.quotas = append(t.quotas, *q)
		case q.Group == Canonical:
			t.quotas[at] = *q
		}
	}
	return t
}

// find is a quota by name; nil where there is none.
func (t *Tree) find(name string) *Quota {
	for i := range t.quotas {
		if t.quotas[i].Name == name {
			return &t.quotas[i]
		}
	}
	return nil
}

// children of a quota, without one that is looked at itself.
func (t *Tree) children(name string, but *Quota) []*Quota {
	var out []*Quota
	for i := range t.quotas {
		if q := &t.quotas[i]; q.Parent == name && q.Name != name && (but == nil || !q.same(but)) {
			out = append(out, q)
		}
	}
	return out
}

// CheckNew says why a new quota is refused.
func (t *Tree) CheckNew(q *Quota) []string {
	var out []string
	if other := t.find(q.Name); other != nil && other.Namespace != q.Namespace {
		out = append(out, fmt.Sprintf("namespace %s has a quota %s already, and pods and children know quotas by name alone: choose another name",
			other.Namespace, q.Name))
	}
	if q.Group != Canonical {
		for i := range t.seeds {
			if s := &t.seeds[i]; s.Namespace == q.Namespace && (s.Name != q.Name || s.Group != q.Group) {
				out = append(out, fmt.Sprintf("namespace %s has the quota %s of %s already, which governs all its pods: change that one, or use %s with labels on pods",
					q.Namespace, s.Name, s.Group, Canonical))
			}
		}
	}
	return append(out, t.check(q)...)
}

// CheckChange says why a change of a quota is refused. What was wrong before and stays so is not refused again, but told. pods are those
// that name the quota.
func (t *Tree) CheckChange(now, was *Quota, pods []string) (refused, told []string) {
	if now.Name == protocol.QuotaRoot || now.Name == protocol.QuotaSystem {
		return []string{"quota " + now.Name + " is the scheduler's own and cannot be changed"}, nil
	}
	if now.Tree != was.Tree {
		refused = append(refused, fmt.Sprintf("label %s: cannot change from %q to %q: make a new quota and move the pods",
			protocol.LabelQuotaTreeID, was.Tree, now.Tree))
	}
	if children := t.children(now.Name, nil); !now.IsParent && was.IsParent && len(children) > 0 {
		refused = append(refused, fmt.Sprintf("label %s: the quota has children (%s): give them another parent first", protocol.LabelQuotaIsParent, list(quotaNames(children))))
	}
	if now.IsParent && !was.IsParent && len(pods) > 0 {
		refused = append(refused, fmt.Sprintf("label %s: the quota has pods (%s), and a parent has none: move them first", protocol.LabelQuotaIsParent, list(pods)))
	}
	before := append(CheckSelf(was), t.check(was)...)
	for _, p := range append(CheckSelf(now), t.check(now)...) {
		if slices.Contains(before, p) {
			told = append(told, p)
		} else {
			refused = append(refused, p)
		}
	}
	return refused, told
}

// CheckDelete says why a quota cannot go. One of another group goes in any case as long as a canonical one stands that does not go with it.
func (t *Tree) CheckDelete(q *Quota, pods []string) []string {
	if builtin(q.Name) {
		return []string{"quota " + q.Name + " is the scheduler's own and cannot be deleted"}
	}
	if stands := t.find(q.Name); q.Group != Canonical && stands != nil && stands.Group == Canonical && !stands.Mirror {
		return nil
	}
	var out []string
	if children := t.children(q.Name, nil); len(children) > 0 {
		out = append(out, fmt.Sprintf("quota %s has children (%s): delete them first, or give them another parent", q.Name, list(quotaNames(children))))
	}
	if len(pods) > 0 {
		out = append(out, fmt.Sprintf("quota %s has pods (%s): end them first, or give them another label %s", q.Name, list(pods), protocol.LabelQuotaName))
	}
	return out
}

// check says what is wrong with a quota among the others.
func (t *Tree) check(q *Quota) []string {
	if q.Name == protocol.QuotaRoot {
		return nil
	}
	out := t.checkNamespaces(q)
	children := t.children(q.Name, q)
	if q.Parent != protocol.QuotaRoot {
		parent := t.find(q.Parent)
		if why := t.checkParent(q, parent); why != "" {
			return append(out, why)
		}
		out = append(out, t.checkPair(parent, q)...)
		if !q.Force && !q.TreeRoot {
			out = append(out, checkSum(parent, append(t.children(q.Parent, q), q))...)
		}
	}
	for _, c := range children {
		out = append(out, t.checkPair(q, c)...)
	}
	if len(children) > 0 && !q.Force && !q.TreeRoot {
		out = append(out, checkSum(q, children)...)
	}
	return out
}

func (t *Tree) checkParent(q, parent *Quota) string {
	at := "label " + protocol.LabelQuotaParent + ": "
	switch {
	case q.Parent == q.Name:
		return at + "a quota cannot be its own parent"
	case parent == nil:
		return at + "there is no quota " + q.Parent + ": create it first"
	case !parent.IsParent:
		return at + "quota " + q.Parent + " takes no children: set its label " + protocol.LabelQuotaIsParent + " to true"
	}
	for p, steps := parent, 0; p != nil && steps <= len(t.quotas); p, steps = t.find(p.Parent), steps+1 {
		if p.Name == q.Name {
			return at + "quota " + q.Parent + " lies below " + q.Name
		}
	}
	return ""
}

// checkPair compares parent and child: one tree, the same resources in max, and no min that the parent has not.
func (t *Tree) checkPair(parent, child *Quota) []string {
	var out []string
	if parent.Tree != child.Tree {
		out = append(out, fmt.Sprintf("label %s: quota %s is of tree %q, its parent %s of tree %q: they must be of one",
			protocol.LabelQuotaTreeID, child.Name, child.Tree, parent.Name, parent.Tree))
	}
	if more := lacking(child.Max, parent.Max); more != "" {
		out = append(out, fmt.Sprintf("spec.max: quota %s limits %s, and its parent %s does not: add it to the parent or leave it out", child.Name, more, parent.Name))
	}
	if less := lacking(parent.Max, child.Max); less != "" && !t.loose {
		out = append(out, fmt.Sprintf("spec.max: quota %s limits %s, and its child %s does not: add it to the child", parent.Name, less, child.Name))
	}
	if more := lacking(child.Min, parent.Min); more != "" {
		out = append(out, fmt.Sprintf("spec.min: quota %s guarantees %s, and its parent %s does not: add it to the parent or leave it out", child.Name, more, parent.Name))
	}
	return out
}

// checkSum: what children are guaranteed their parent must be.
//
// Example: a parent with min cpu 100 and children with 60 and 50 is refused: 110 of 100.
func checkSum(parent *Quota, children []*Quota) []string {
	sum := corev1.ResourceList{}
	for _, c := range children {
		for name, v := range c.Min {
			total := sum[name]
			total.Add(v)
			sum[name] = total
		}
	}
	var out []string
	for _, name := range names(sum) {
		has, ok := parent.Min[name]
		if total := sum[name]; ok && total.Cmp(has) > 0 && len(out) < answer.Enough {
			out = append(out, fmt.Sprintf("spec.min: the children of quota %s (%s) are guaranteed %s %s together, it has %s: lower theirs or raise its own",
				parent.Name, list(quotaNames(children)), total.String(), name, has.String()))
		}
	}
	return out
}

// checkNamespaces: a namespace's pods come to one quota.
func (t *Tree) checkNamespaces(q *Quota) []string {
	if len(q.Namespaces) == 0 {
		return nil
	}
	mine := make(map[string]struct{}, len(q.Namespaces))
	for _, ns := range q.Namespaces {
		mine[ns] = struct{}{}
	}
	var out []string
	for i := range t.quotas {
		o := &t.quotas[i]
		if o.same(q) {
			continue
		}
		for _, ns := range o.Namespaces {
			if _, both := mine[ns]; both && len(out) < answer.Enough {
				out = append(out, fmt.Sprintf("annotation %s: namespace %s belongs to quota %s already: take it out of one of the two",
					protocol.AnnotationQuotaNamespaces, ns, o.Name))
			}
		}
	}
	return out
}

func quotaNames(list []*Quota) []string {
	out := make([]string, len(list))
	for i, q := range list {
		out[i] = q.Name
	}
	return out
}

// list names a few.
func list(all []string) string {
	all = slices.Sorted(slices.Values(all))
	const few = 3
	if len(all) > few {
		return strings.Join(all[:few], ", ") + fmt.Sprintf(" and %d more", len(all)-few)
	}
	return strings.Join(all, ", ")
}
