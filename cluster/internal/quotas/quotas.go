// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package quotas reads ElasticQuotas of all groups from a cache, for webhooks that judge pods or other quotas by them.
//
// Inputs are a cache and a question; outputs are the quotas, whatever their group, and an answer that a cache which lags a little does not
// spoil. Nothing is decided here. It must not import a webhook.
package quotas

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

// Quota is one of any group. Meta, Spec and Used belong to the cache: they are read only.
type Quota struct {
	Group string
	// Seed is the group of the quota that this canonical one stands for or has the name of; its own group for one of another group; "" for none.
	Seed string
	Meta *metav1.ObjectMeta
	Spec *sigsv1alpha1.ElasticQuotaSpec
	Used corev1.ResourceList
}

// Kinds are the objects that List reads.
func Kinds() []client.Object {
	return []client.Object{&sigsv1alpha1.ElasticQuota{}, &koordinatorv1alpha1.ElasticQuota{}, &quotav1alpha1.ElasticQuota{}}
}

// List reads all quotas, those of scheduling.sigs.k8s.io, which the others become objects of (D1), first. A quota and the canonical object of its
// namespace and name are one, and the canonical one says what it is: a pair is not counted twice. A group that is not served has none.
func List(ctx context.Context, cached client.Reader) ([]Quota, error) {
	var canonical sigsv1alpha1.ElasticQuotaList
	var koord koordinatorv1alpha1.ElasticQuotaList
	var team quotav1alpha1.ElasticQuotaList
	for _, list := range []client.ObjectList{&canonical, &koord, &team} {
		if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("list ElasticQuotas: %w", err)
		}
	}
	out := make([]Quota, 0, len(canonical.Items)+len(koord.Items)+len(team.Items))
	at := make(map[client.ObjectKey]int, len(canonical.Items))
	for i := range canonical.Items {
		o := &canonical.Items[i]
		at[client.ObjectKeyFromObject(o)] = i
		out = append(out, Quota{sigsv1alpha1.GroupVersion.Group, o.Labels[sigsv1alpha1.LabelProjectedFrom], &o.ObjectMeta, &o.Spec, o.Status.Used})
	}
	add := func(group string, m *metav1.ObjectMeta, spec *sigsv1alpha1.ElasticQuotaSpec, used corev1.ResourceList) {
		if i, there := at[client.ObjectKey{Namespace: m.Namespace, Name: m.Name}]; there {
			out[i].Seed = group
			return
		}
		out = append(out, Quota{group, group, m, spec, used})
	}
	for i := range koord.Items {
		o := &koord.Items[i]
		add(koordinatorv1alpha1.GroupVersion.Group, &o.ObjectMeta, &o.Spec, o.Status.Used)
	}
	for i := range team.Items {
		o := &team.Items[i]
		add(quotav1alpha1.GroupVersion.Group, &o.ObjectMeta, &o.Spec, o.Status.Used)
	}
	return out, nil
}

const (
	// Settling is how long a cache is given to see what was done just before: a parent and its child come in one file, a quota is
	// raised for the pod that comes next.
	Settling = 500 * time.Millisecond
	look     = 10 * time.Millisecond
	// longest bounds an answer, that of a cache which has not begun included: below the webhooks' time limit of 3 s.
	longest = 2 * time.Second
)

// Settle asks again until the answer is that all is well, for wait at most, and at its end: what a cache does not know yet must not refuse. An
// error ends it. Each time between two looks is twice the one before: a look reads all quotas, and who sends what is refused again and again
// would have them read fifty times for each.
func Settle(ctx context.Context, wait time.Duration, well func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for next := look; ; next *= 2 {
		ok, err := well(ctx)
		if ok || err != nil || wait <= 0 {
			return err
		}
		next = min(next, wait)
		wait -= next
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
	}
}
