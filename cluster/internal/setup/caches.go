// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/protocol"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/quotamirror"
	"github.com/koord-rt/koord-rt/cluster/quotaprofile"
	"github.com/koord-rt/koord-rt/cluster/webhook/pod"
)

// The two managers read nothing in common, so each has a cache of its own, and one that is given up takes its memory along. Reads of
// anything that is not named here start a watch of the whole kind, without managed fields.

// servingCache is that of the webhooks: profiles, namespaces, priority classes, reservations, quotas, and who of the pods names a quota.
func servingCache(o *Options) cache.Options {
	out := base(o)
	strip := out.DefaultTransform
	out.DefaultTransform = func(object any) (any, error) { // a kind that is named below must be served, and Reservations need not be
		object, err := strip(object)
		return pod.RoomOnly(object), err
	}
	named := labels.NewSelector()
	if r, err := labels.NewRequirement(protocol.LabelQuotaName, selection.Exists, nil); err == nil { // a constant
		named = named.Add(*r)
	}
	out.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: named, Field: alive(), Transform: bare}}
	return out
}

// bare keeps the name and the labels.
func bare(object any) (any, error) {
	m, is := object.(*metav1.PartialObjectMetadata)
	if !is {
		return object, nil
	}
	labels := m.Labels
	m.ObjectMeta = slimMeta(&m.ObjectMeta)
	m.Labels = labels
	return m, nil
}

// base is what both have.
func base(o *Options) cache.Options {
	out := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	if o.Resync > 0 {
		out.SyncPeriod = &o.Resync
	}
	return out
}

// alive are pods that have not ended.
func alive() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}

// electedCache is that of the controllers.
func electedCache(o *Options) cache.Options {
	out := base(o)
	running := fields.AndSelectors(fields.OneTermNotEqualSelector("spec.nodeName", ""), alive())
	recommends := o.Runs(RoleRecommender)
	out.ByObject = map[client.Object]cache.ByObject{
		&corev1.Pod{}:  {Field: running, Transform: slimPod(recommends)},
		&corev1.Node{}: {Transform: slimNode},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			o.ConfigNamespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", o.ConfigName)},
		}},
		&slov1alpha1.NodeMetric{}: {Transform: slimMetric(recommends)},
		&slov1alpha1.NodeSLO{}:    {Transform: slimSLO},
	}
	reads := slices.Contains(o.Controllers, quotaprofile.Name) || slices.Contains(o.Controllers, quotamirror.Name)
	if o.Runs(RoleSLO) && reads { // a kind that is named here must be served
		out.ByObject[&sigsv1alpha1.ElasticQuota{}] = cache.ByObject{Transform: slimQuota}
	}
	out.NewInformer = informerOf(out.ByObject)
	return out
}

// endingWith makes caches of managers that end with ctx though nothing has filled them yet: controller-runtime's would first wait for
// that, by an API server that is away, or that refuses, for ever.
func endingWith(ctx context.Context) cache.NewCacheFunc {
	return func(c *rest.Config, o cache.Options) (cache.Cache, error) {
		filled, err := cache.New(c, o)
		if err != nil {
			return nil, err
		}
		return &ending{Cache: filled, told: ctx.Done()}, nil
	}
}

type ending struct {
	cache.Cache
	told  <-chan struct{}
	start sync.Once
}

// WaitForCacheSync answers yes to the manager that starts, which asks first, when it is told to end. Controllers ask later and hear the
// truth, for they would work by what is not there.
func (e *ending) WaitForCacheSync(ctx context.Context) bool {
	first := false
	e.start.Do(func() { first = true })
	if !first {
		return e.Cache.WaitForCacheSync(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-e.told:
			cancel()
		case <-ctx.Done():
		}
	}()
	if e.Cache.WaitForCacheSync(ctx) {
		return true
	}
	select {
	case <-e.told:
		return true
	default:
		return false
	}
}
