// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package wake

import (
	"crypto/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// TestEveryNode: a strategy asks for every node, the one that was there before the source began too.
func TestEveryNode(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	nodes := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}).Build()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	var store config.Store
	store.Set(config.Default())
	if err := EveryNode(&store, nodes).Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := map[string]bool{}
		for range 2 {
			request, _ := queue.Get() // blocks: the test's own time limit ends it
			got[request.Name] = true
			queue.Done(request)
		}
		if !got["a"] || !got["b"] {
			t.Fatalf("asked for %v", got)
		}
		store.Set(config.Default())
	}
}

// TestOfSpec: another generation is worth a look, and another object of the name and the same generation; what changes its status alone is not.
func TestOfSpec(t *testing.T) {
	t.Parallel()
	node := func(uid types.UID, generation int64) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, Generation: generation, ResourceVersion: rand.Text()}}
	}
	for name, c := range map[string]struct {
		now  *corev1.Node
		want bool
	}{"its status": {node("u", 1), false}, "its spec": {node("u", 2), true}, "in its place": {node("v", 1), true}} {
		if got := OfSpec().Update(event.UpdateEvent{ObjectOld: node("u", 1), ObjectNew: c.now}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if p := OfSpec(); !p.Create(event.CreateEvent{Object: node("u", 1)}) || !p.Delete(event.DeleteEvent{Object: node("u", 1)}) {
		t.Error("one that comes or goes")
	}
}
