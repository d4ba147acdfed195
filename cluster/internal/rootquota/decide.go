// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package rootquota decides what an ElasticQuotaProfile makes: the root quota of a tree, as large as the nodes that the profile selects.
//
// Inputs are the profile and its nodes; outputs are the labels, annotations, min and max of the quota, or why none can be made. Admission asks
// for the second, the controller quotaprofile for both. Everything is a pure function. It must not import client-go or controller-runtime.
package rootquota

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/big"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
)

// boundless is max of a root quota, upstream's: so large that it limits nothing, and that thousandths of it and sums of a few still are numbers.
const boundless = math.MaxInt64 / 2000

// Quota is what is wanted of a root quota.
type Quota struct {
	Labels, Annotations map[string]string
	Min, Max            corev1.ResourceList
}

// Tree is the id of a profile's tree: its label, else a hash of its namespace and name.
func Tree(p *quotav1alpha1.ElasticQuotaProfile) string {
	if id := p.Labels[protocol.LabelQuotaTreeID]; id != "" {
		return id
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Namespace + "/" + p.Name)) // a hash takes everything
	return strconv.FormatUint(h.Sum64(), 10)
}

// Of is the root quota of a profile; nodes are those that it selects.
//
// Example: two nodes of 10 CPUs and the ratio 0.9 make min cpu 18, and total-resource 18 too. With one of them cordoned, unschedulable-resource
// says 9.
func Of(p *quotav1alpha1.ElasticQuotaProfile, nodes []corev1.Node) (Quota, error) {
	if problems := Check(&p.Spec); len(problems) > 0 {
		return Quota{}, errors.New(strings.Join(problems, "; "))
	}
	ratio, err := ratioOf(p)
	if err != nil {
		return Quota{}, err
	}
	limited, err := keys(p)
	if err != nil {
		return Quota{}, err
	}
	all, shut := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range nodes {
		n := &nodes[i]
		add(all, n.Status.Allocatable)
		if !Takes(n) {
			add(shut, n.Status.Allocatable)
		}
	}
	scale(all, ratio)
	scale(shut, ratio)
	q := Quota{Labels: labels(p), Annotations: map[string]string{}, Min: corev1.ResourceList{}, Max: corev1.ResourceList{}}
	for _, name := range limited {
		least, ok := all[name]
		if !ok {
			least = *resource.NewQuantity(0, resource.DecimalSI)
		}
		// More than boundless is guaranteed by memory of 4 PiB and more.
		most := *resource.NewQuantity(boundless, resource.DecimalSI)
		if least.Cmp(most) > 0 {
			most = least
		}
		q.Min[name], q.Max[name] = least, most
	}
	for key, list := range map[string]corev1.ResourceList{protocol.AnnotationQuotaTotal: all, protocol.AnnotationQuotaUnschedulable: shut} {
		text, err := json.Marshal(list)
		if err != nil {
			return Quota{}, fmt.Errorf("write annotation %s: %w", key, err)
		}
		q.Annotations[key] = string(text)
	}
	return q, nil
}

// labels are the profile's for its quota, and those that make it the root of the tree. The parent is what admission writes: the label
// is wanted from the start, so that it does not look like one that has been taken back.
func labels(p *quotav1alpha1.ElasticQuotaProfile) map[string]string {
	out := map[string]string{protocol.LabelQuotaProfile: p.Name, protocol.LabelQuotaParent: protocol.QuotaRoot}
	maps.Copy(out, p.Spec.QuotaLabels)
	out[protocol.LabelQuotaTreeID], out[protocol.LabelQuotaIsRoot] = Tree(p), "true"
	return out
}

// Takes reports whether a node takes new pods: neither cordoned nor out of order.
func Takes(n *corev1.Node) bool {
	if n.Spec.Unschedulable {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ratioOf is the part of the nodes that is given; the spec was checked.
func ratioOf(p *quotav1alpha1.ElasticQuotaProfile) (*big.Rat, error) {
	text := p.Spec.ResourceRatio
	if text == nil || *text == "" {
		return big.NewRat(1, 1), nil
	}
	ratio, ok := new(big.Rat).SetString(*text)
	if !ok {
		return nil, fmt.Errorf("spec.resourceRatio: %q, want a number above 0 and up to 1", *text)
	}
	return ratio, nil
}

// keys are the resources that the quota limits.
func keys(p *quotav1alpha1.ElasticQuotaProfile) ([]corev1.ResourceName, error) {
	text := p.Annotations[protocol.AnnotationQuotaResourceKeys]
	if text == "" {
		return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, nil
	}
	var out []corev1.ResourceName
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out) == 0 {
		return nil, fmt.Errorf(`annotation %s: %.60q, want names of resources as ["cpu","memory"]`, protocol.AnnotationQuotaResourceKeys, text)
	}
	return out, nil
}

func add(to, list corev1.ResourceList) {
	for name, v := range list {
		sum := to[name]
		sum.Add(v)
		to[name] = sum
	}
}

// scale multiplies all amounts, rounded down, and gives each resource one notation, whatever that of the nodes is: the same amount is the
// same text. CPUs are counted in thousandths, everything else whole.
func scale(list corev1.ResourceList, ratio *big.Rat) {
	part := func(v int64) int64 {
		n := new(big.Int).Mul(big.NewInt(v), ratio.Num())
		return n.Quo(n, ratio.Denom()).Int64()
	}
	for name, v := range list {
		if name == corev1.ResourceCPU {
			list[name] = *resource.NewMilliQuantity(part(v.MilliValue()), resource.DecimalSI)
			continue
		}
		format := resource.DecimalSI
		for _, bytes := range []string{"memory", "storage", "hugepages-"} {
			if strings.Contains(string(name), bytes) {
				format = resource.BinarySI
			}
		}
		list[name] = *resource.NewQuantity(part(v.Value()), format)
	}
}
