// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// behind is a controller whose cache has the node n as it was seen last, and an API server that holds patches to a UID as the real one does.
type behind struct {
	*reconciler
	server client.WithWatch
	cache  corev1.Node
	writes int
}

func newBehind(t *testing.T, uid types.UID) *behind {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, schedulingv1alpha1.AddToScheme, slov1alpha1.AddToScheme, topologyv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &behind{server: fake.NewClientBuilder().WithScheme(scheme).WithObjects(gpuNode(uid)).WithStatusSubresource(&corev1.Node{}).Build()}
	b.see(t)
	b.reconciler = &reconciler{
		o: Options{Store: &config.Store{}}, kept: &objects{}, metrics: newMetrics(), limit: logs.NewLimiter(logs.LimiterOptions{}),
		written: map[string]time.Time{}, zoned: map[string]time.Time{}, contradicts: map[string]time.Time{},
		client: interceptor.NewClient(b.server, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, more ...client.GetOption) error {
				if n, is := o.(*corev1.Node); is {
					b.cache.DeepCopyInto(n)
					return nil
				}
				return c.Get(ctx, key, o, more...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, more ...client.SubResourcePatchOption) error {
				b.writes++
				data, err := p.Data(o)
				if err != nil {
					return err
				}
				var asks struct{ Metadata struct{ UID types.UID } }
				if err := json.Unmarshal(data, &asks); err != nil {
					return err
				}
				if has := b.stored(t).UID; asks.Metadata.UID != "" && asks.Metadata.UID != has {
					return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", field.ErrorList{
						field.Invalid(field.NewPath("metadata", "uid"), asks.Metadata.UID, "field is immutable"),
					})
				}
				return c.SubResource(sub).Patch(ctx, o, p, more...)
			},
		}),
	}
	b.o.Store.Set(config.Default())
	return b
}

// gpuNode has a device's resource that nobody vouches for: it is taken away.
func gpuNode(uid types.UID) *corev1.Node {
	gpu := func() corev1.ResourceList { return resources("cpu", "4", protocol.ResourceGPU, "100") }
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid}, Status: corev1.NodeStatus{Capacity: gpu(), Allocatable: gpu()}}
}

// stored is the node as the API server has it.
func (b *behind) stored(t *testing.T) (out corev1.Node) {
	t.Helper()
	if err := b.server.Get(t.Context(), types.NamespacedName{Name: "n"}, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// see brings the cache up to date.
func (b *behind) see(t *testing.T) {
	t.Helper()
	b.cache = b.stored(t)
}

func (b *behind) look(t *testing.T, what string, want int, again time.Duration) {
	t.Helper()
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}})
	if err != nil || b.writes != want || result.RequeueAfter != again {
		t.Errorf("%s: %d writes, again after %s, %v; want %d and %s", what, b.writes, result.RequeueAfter, err, want, again)
	}
}

func offersGPU(n *corev1.Node) bool {
	_, is := n.Status.Allocatable[protocol.ResourceGPU]
	return is
}

// TestCacheBehind: a node that is asked for again before the cache has what was written of it is written once.
func TestCacheBehind(t *testing.T) {
	t.Parallel()
	b := newBehind(t, "u")
	b.look(t, "a device that has gone", 1, 0)
	b.look(t, "before it is seen", 1, unseen.Again)
	b.see(t)
	b.look(t, "seen", 1, 0)
	if offersGPU(&b.cache) {
		t.Errorf("not written: %v", b.cache.Status.Allocatable)
	}
}

// TestNodeMadeAnew: a node that was deleted and made anew, while the cache has the one before, is not given what was decided about that. It is looked
// at for itself when it is seen.
func TestNodeMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBehind(t, "old")
	if err := b.server.Delete(t.Context(), gpuNode("")); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Create(t.Context(), gpuNode("new")); err != nil {
		t.Fatal(err)
	}
	b.look(t, "of the one before", 1, 0)
	if n := b.stored(t); !offersGPU(&n) || n.UID != "new" {
		t.Errorf("node %s was given what was decided about another one: %v", n.UID, n.Status.Allocatable)
	}
	b.see(t)
	b.look(t, "its own", 2, 0)
	if n := b.stored(t); offersGPU(&n) {
		t.Errorf("not written: %v", n.Status.Allocatable)
	}
}
