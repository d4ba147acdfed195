// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
)

// The two managers read nothing in common, so each has a cache of its own, and one that is given up takes its memory along. Reads of
// anything that is not named here start a watch of the whole kind, without managed fields.

// servingCache is that of the webhooks: profiles, namespaces, priority classes, quotas and reservations.
func servingCache(o *Options) cache.Options {
	out := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	if o.Resync > 0 {
		out.SyncPeriod = &o.Resync
	}
	return out
}

// electedCache is that of the controllers.
func electedCache(o *Options) cache.Options {
	out := servingCache(o)
	running := fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	out.ByObject = map[client.Object]cache.ByObject{
		&corev1.Pod{}:  {Field: running, Transform: slimPod},
		&corev1.Node{}: {Transform: slimNode},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			o.ConfigNamespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", o.ConfigName)},
		}},
		&slov1alpha1.NodeMetric{}: {Transform: slimMetric},
		&slov1alpha1.NodeSLO{}:    {Transform: slimSLO},
	}
	return out
}
