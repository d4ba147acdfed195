// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/koord-rt/koord-rt/api/protocol"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/unseen"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/daemon/logs"
)

// TestCacheBehind: a node that is asked for again before the cache has what was written of it is written once.
func TestCacheBehind(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, schedulingv1alpha1.AddToScheme, slov1alpha1.AddToScheme, topologyv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	gpu := func() corev1.ResourceList { return resources("cpu", "4", protocol.ResourceGPU, "100") }
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}, Status: corev1.NodeStatus{Capacity: gpu(), Allocatable: gpu()}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node).WithStatusSubresource(node).Build()
	var seen corev1.Node
	see := func() {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &seen); err != nil {
			t.Fatal(err)
		}
	}
	see()
	writes := 0
	r := &reconciler{
		o: Options{Store: &config.Store{}}, kept: &objects{}, metrics: newMetrics(), limit: logs.NewLimiter(logs.LimiterOptions{}),
		written: map[string]time.Time{}, zoned: map[string]time.Time{}, contradicts: map[string]time.Time{},
		client: interceptor.NewClient(c, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, more ...client.GetOption) error {
				if n, is := o.(*corev1.Node); is {
					seen.DeepCopyInto(n)
					return nil
				}
				return c.Get(ctx, key, o, more...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, more ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, p, more...)
			},
		}),
	}
	r.o.Store.Set(config.Default())
	look := func(what string, want int, again time.Duration) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}})
		if err != nil || writes != want || result.RequeueAfter != again {
			t.Errorf("%s: %d writes, again after %s, %v; want %d and %s", what, writes, result.RequeueAfter, err, want, again)
		}
	}
	look("a device that has gone", 1, 0)
	look("before it is seen", 1, unseen.Again)
	see()
	look("seen", 1, 0)
	if _, is := seen.Status.Allocatable[protocol.ResourceGPU]; is {
		t.Errorf("not written: %v", seen.Status.Allocatable)
	}
}
