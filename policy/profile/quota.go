// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Quota is an ElasticQuota, as far as it says whose pods are its own and how much one of them can ask for.
type Quota struct {
	Namespace, Name string
	// Parent may have children; Tree is the id of its tree.
	Parent bool
	Tree   string
	// Whole governs all pods of its own namespace, as the quotas of the documents' groups do.
	Whole bool
	// Namespaces are those whose pods come to it, a list in JSON, as its annotation has them.
	Namespaces string
	// Max and Hard limit it; the lower one counts.
	Max, Hard Resources
}

// QuotaRules are what an administrator sets.
type QuotaRules struct {
	// NoDefault: a pod of no other quota is not one of the default quota (gate DisableDefaultQuota).
	NoDefault bool
	// Parents have pods of their own (gate SupportParentQuotaSubmitPod).
	Parents bool
	// NoOverhead counts no overhead (gate ElasticQuotaIgnorePodOverhead).
	NoOverhead bool
}

// FindQuota is the quota that a pod comes to, as its place in quotas, -1 for none: the one its label names; else the one of its namespace's
// name in its namespace, one that governs its namespace, one whose annotation lists it, the default quota. named is the label's value.
//
// A pod of the stock scheduler without a label comes to none: that scheduler knows no quotas, and runs the pod all the same.
func FindQuota(p *Pod, quotas []Quota, rules QuotaRules) (at int, named string) {
	if named = p.Labels[protocol.LabelQuotaName]; named != "" {
		return slices.IndexFunc(quotas, func(q Quota) bool { return q.Name == named }), named
	}
	if p.SchedulerName == "" || p.SchedulerName == stockScheduler {
		return -1, ""
	}
	for _, is := range [...]func(Quota) bool{
		func(q Quota) bool { return q.Namespace == p.Namespace && q.Name == p.Namespace },
		func(q Quota) bool { return q.Namespace == p.Namespace && q.Whole },
		func(q Quota) bool { return q.lists(p.Namespace) },
		func(q Quota) bool { return q.Name == protocol.QuotaDefault && !rules.NoDefault },
	} {
		if at := slices.IndexFunc(quotas, is); at >= 0 {
			return at, ""
		}
	}
	return -1, ""
}

// lists reports whether the annotation has a namespace; one that cannot be read has none.
func (q *Quota) lists(namespace string) bool {
	var list []string
	return len(q.Namespaces) <= protocol.MaxValueBytes && strings.Contains(q.Namespaces, namespace) && json.Unmarshal([]byte(q.Namespaces), &list) == nil && slices.Contains(list, namespace)
}

// CheckQuota says why a pod cannot be one of a quota: it is a parent, or the pod alone asks for more than the quota may ever have. What the
// quota's pods ask for together is its scheduler's business: a pod that does not fit now waits.
//
// Example: max cpu 50, hard cpu 40: a pod with 41 is refused, whatever runs.
func CheckQuota(p *Pod, q *Quota, rules QuotaRules) []Problem {
	name := "quota " + q.Namespace + "/" + q.Name
	if q.Parent && !rules.Parents {
		return []Problem{{
			At:     "label " + protocol.LabelQuotaName,
			Reason: name + " is a parent, which has no pods of its own: set the label to one of its children",
		}}
	}
	return q.above(p, nil, rules)
}

// CheckResize says why a pod cannot grow: with more of a resource than before it asks for more than its quota may ever have. What was above
// that already may stay, and become less.
func CheckResize(p, before *Pod, q *Quota, rules QuotaRules) []Problem {
	return q.above(p, before, rules)
}

// above are the resources of which a pod asks for more than the quota may ever have, and for more than it did before, if it was there.
func (q *Quota) above(p, before *Pod, rules QuotaRules) (out []Problem) {
	name, so := "quota "+q.Namespace+"/"+q.Name, "the pod could never run"
	if before != nil {
		so = "the pod can never grow so far"
	}
	limited := maps.Clone(q.Hard)
	if limited == nil {
		limited = Resources{}
	}
	maps.Copy(limited, q.Max)
	for _, resource := range slices.Sorted(maps.Keys(limited)) {
		most, field, ok := q.most(resource)
		asked, err := p.counted(resource, rules.NoOverhead)
		if !ok || err != nil || asked <= most { // amounts that mean nothing are refused elsewhere
			continue
		}
		if before != nil {
			if had, err := before.counted(resource, rules.NoOverhead); err == nil && asked <= had {
				continue
			}
		}
		out = append(out, Problem{
			At: "spec.containers[*].resources.requests." + resource,
			Reason: amountText(resource, asked) + " in all, above the " + amountText(resource, most) + " of " + field + " of " + name +
				": " + so + ": ask for less, or raise " + field,
		})
	}
	return out
}

// most is the cap of a resource in thousandths, and the field that sets it.
func (q *Quota) most(resource string) (most int64, field string, ok bool) {
	if v, there, err := q.Max.milli(resource); there && err == nil {
		most, field, ok = v, "spec.max", true
	}
	if v, there, err := q.Hard.milli(resource); there && err == nil && (!ok || v < most) {
		most, field, ok = v, "spec.hard", true
	}
	return most, field, ok
}

// counted is what a quota counts of a pod, in thousandths; every pod is one of pods.
func (p *Pod) counted(resource string, bare bool) (int64, error) {
	if resource == "pods" {
		return 1000, nil
	}
	counted := *p
	if bare {
		counted.Overhead = nil
	}
	return counted.request(resource)
}

// amountText is an amount in thousandths as people write it.
func amountText(resource string, thousandths int64) string {
	if thousandths%1000 != 0 {
		return strconv.FormatInt(thousandths, 10) + "m"
	}
	v, unit := thousandths/1000, 0
	for strings.HasSuffix(resource, "memory") && v >= 1024 && v%1024 == 0 && unit < 4 {
		v, unit = v/1024, unit+1
	}
	return strconv.FormatInt(v, 10) + [...]string{"", "Ki", "Mi", "Gi", "Ti"}[unit]
}

// QuotaProfile is an ElasticQuotaProfile, as far as it says which nodes a tree of quotas is made of.
type QuotaProfile struct {
	Name, Tree string
	Nodes      *Selector
}

// TreeNodes are the nodes of a tree: those of one of its profiles, each as what must hold of a node's labels. None is all of them: no
// profile of the tree says which, or one says all.
func TreeNodes(tree string, profiles []QuotaProfile) (nodes [][]Expression, problems []Problem) {
	if tree == "" {
		return nil, nil
	}
	for _, f := range slices.SortedFunc(slices.Values(profiles), func(a, b QuotaProfile) int { return cmp.Compare(a.Name, b.Name) }) {
		if f.Tree != tree || f.Nodes == nil {
			continue
		}
		if f.Nodes.all() {
			return nil, nil
		}
		if err := f.Nodes.check(); err != nil {
			problems = append(problems, Problem{At: "ElasticQuotaProfile " + f.Name, Reason: "nodeSelector: " + err.Error() + "; it is left out"})
			continue
		}
		var all []Expression
		for _, key := range slices.Sorted(maps.Keys(f.Nodes.Labels)) {
			all = append(all, Expression{Key: key, Operator: "In", Values: []string{f.Nodes.Labels[key]}})
		}
		nodes = append(nodes, append(all, f.Nodes.Expressions...))
	}
	return nodes, problems
}
