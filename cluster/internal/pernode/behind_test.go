// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/unseen"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// lagging is a client whose reads of NodeSLOs are those of a cache that sees a write when it is told to.
type lagging struct {
	client.Client
	writes int
	seen   *v1alpha1.NodeSLO // nil is none
}

// see takes in what is stored.
func (l *lagging) see(t *testing.T) {
	t.Helper()
	var o v1alpha1.NodeSLO
	err := l.Client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if l.seen = nil; err == nil {
		l.seen = &o
	}
}

func (l *lagging) cached() client.Client {
	return interceptor.NewClient(l.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, more ...client.GetOption) error {
			slo, is := o.(*v1alpha1.NodeSLO)
			if !is {
				return c.Get(ctx, key, o, more...)
			}
			if l.seen == nil {
				return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("nodeslos").GroupResource(), key.Name)
			}
			l.seen.DeepCopyInto(slo)
			return nil
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, more ...client.ApplyOption) error {
			// The client without a server gives the first version that this name is for, and takes any UID.
			asks := o.(interface {
				GetResourceVersion() string
				GetUID() types.UID
			})
			var stored v1alpha1.NodeSLO
			switch err := c.Get(ctx, client.ObjectKey{Name: "node-1"}, &stored); {
			case err == nil && asks.GetResourceVersion() == ownership.Absent:
				return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("nodeslos").GroupResource(), "node-1", errors.New("it is there"))
			case err == nil && asks.GetUID() != "" && asks.GetUID() != stored.UID:
				return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("NodeSLO").GroupKind(), "node-1", field.ErrorList{
					field.Invalid(field.NewPath("metadata", "uid"), asks.GetUID(), "field is immutable"),
				})
			}
			if err := c.Apply(ctx, o, more...); err != nil {
				return err
			}
			l.writes++
			return nil
		},
	})
}

// TestCacheBehind: a node that is asked for twice, and its cache sees the first write after the second question, is written once; what the cache
// then sees, and a change of the strategy meanwhile, are written as ever. An object that somebody deletes before the cache has it is made
// again, and what an API server has lost is written again.
func TestCacheBehind(t *testing.T) {
	t.Parallel()
	l := &lagging{Client: served(t).Build()}
	r := fresh(l.cached())
	look := func(percent int) ctrl.Result {
		t.Helper()
		parsed, problems := config.Parse(map[string]string{config.KeyBurst: fmt.Sprintf(`{"clusterStrategy": {"policy": "auto", "cpuBurstPercent": %d}}`, percent)}, nil)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		r.store.Set(parsed)
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "node-1"}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	is := func(what string, writes int) {
		t.Helper()
		if l.writes != writes {
			t.Fatalf("%s: %d writes, want %d", what, l.writes, writes)
		}
	}
	look(200)
	if again := look(200).RequeueAfter; again != unseen.Again {
		t.Errorf("an object that is not seen is looked at again after %s", again)
	}
	is("made, and asked for again before it is seen", 1)
	l.see(t)
	look(200)
	is("seen", 1)

	look(300)
	for range 2 {
		if again := look(300).RequeueAfter; again != unseen.Again {
			t.Errorf("a change that is not seen is looked at again after %s", again)
		}
	}
	is("changed, and asked for again before it is seen", 2)
	look(400)
	is("changed again before it is seen", 2)
	l.see(t)
	look(400)
	is("seen, and changed again", 3)
	l.see(t)
	look(400)
	is("seen, too", 3)

	remove := func() {
		t.Helper()
		if err := l.Client.Delete(t.Context(), &v1alpha1.NodeSLO{ObjectMeta: l.seen.ObjectMeta}); err != nil {
			t.Fatal(err)
		}
		l.see(t)
	}
	remove()
	look(400)
	is("deleted", 4)
	l.see(t)
	remove() // and the cache never told of it
	look(400)
	is("deleted before the cache had it", 5)

	l.see(t)
	look(500) // and the API server is put back to what the cache has
	is("changed", 6)
	for range unseen.Most {
		look(500)
	}
	is("not seen", 6)
	look(500)
	is("never seen", 7)
}

// TestMadeUnseen: what a user has made for a node, and the cache has not seen yet, does not become ours, which would take it away with its node.
func TestMadeUnseen(t *testing.T) {
	t.Parallel()
	l := &lagging{Client: served(t).WithObjects(&v1alpha1.NodeSLO{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}).Build()}
	r := fresh(l.cached())
	parsed, _ := config.Parse(map[string]string{config.KeyBurst: `{"clusterStrategy": {"policy": "auto"}}`}, nil)
	r.store.Set(parsed)
	for _, seen := range []bool{false, true} {
		if seen {
			l.see(t)
		}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "node-1"}})
		if err != nil {
			t.Fatal(err)
		}
		var o v1alpha1.NodeSLO
		if err := l.Client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &o); err != nil {
			t.Fatal(err)
		}
		if o.Annotations[CreatedBy] != "" {
			t.Errorf("seen %t: a user's object is said to be ours: %v", seen, o.Annotations)
		}
		if applied := o.Spec.CPUBurstStrategy != nil; applied != seen || (result.RequeueAfter == 0) != seen {
			t.Errorf("seen %t: applied %t, again after %s", seen, applied, result.RequeueAfter)
		}
	}
}

// TestAnotherUnseen: what a user has made in the place of an object that the cache still has does not become ours; and where a user's own has
// gone unseen, none is made that would not go with its node.
func TestAnotherUnseen(t *testing.T) {
	t.Parallel()
	slo := func(uid string, ours bool) *v1alpha1.NodeSLO {
		o := &v1alpha1.NodeSLO{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: types.UID(uid)}}
		if ours {
			o.Annotations, o.ManagedFields = map[string]string{CreatedBy: Manager}, applied(`{"f:metadata": {"f:annotations": {"f:koord-rt.dev/created-by": {}}}}`)
		}
		return o
	}
	for name, c := range map[string]struct {
		seen, stored *v1alpha1.NodeSLO // nil is none
	}{
		"in the place of ours":      {slo("old", true), slo("new", false)},
		"in the place of another":   {slo("old", false), slo("new", false)},
		"a user's own that is gone": {slo("old", false), nil},
	} {
		objects := served(t)
		if c.stored != nil {
			objects = objects.WithObjects(c.stored)
		}
		l := &lagging{Client: objects.Build(), seen: c.seen}
		r := fresh(l.cached())
		parsed, _ := config.Parse(map[string]string{config.KeyBurst: `{"clusterStrategy": {"policy": "auto"}}`}, nil)
		r.store.Set(parsed)
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "node-1"}})
		if err != nil || result.RequeueAfter == 0 {
			t.Errorf("%s: again after %s, %v", name, result.RequeueAfter, err)
		}
		l.see(t)
		switch {
		case c.stored == nil && l.seen != nil:
			t.Errorf("%s: made %+v", name, l.seen)
		case c.stored != nil && (l.seen.Annotations[CreatedBy] != "" || l.seen.Spec.CPUBurstStrategy != nil):
			t.Errorf("%s: written %+v", name, l.seen)
		}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "node-1"}}); err != nil {
			t.Errorf("%s, seen: %v", name, err)
		}
		if l.see(t); l.seen.Spec.CPUBurstStrategy == nil || (l.seen.Annotations[CreatedBy] != "") != (c.stored == nil) {
			t.Errorf("%s, seen: %+v", name, l.seen)
		}
	}
}

// TestKeptUnseen: what a user has just made his own, and the cache has not seen yet, does not go with its node.
func TestKeptUnseen(t *testing.T) {
	t.Parallel()
	const name = "gone"
	l := &lagging{Client: served(t).WithObjects(marked(name)).Build()}
	var o v1alpha1.NodeSLO
	if err := l.Client.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
		t.Fatal(err)
	}
	l.seen = o.DeepCopy()
	o.Annotations = nil
	if err := l.Client.Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	r := fresh(l.cached())
	r.gone[name] = time.Now().Add(-Orphan)
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("again after %s, %v", result.RequeueAfter, err)
	}
	if err := l.Client.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
		t.Error(err)
	}
}

// TestNodeBackUnseen: what a user has written into a node's object stays while the node is back and the cache has not seen it yet; the node's going
// counts from then on.
func TestNodeBackUnseen(t *testing.T) {
	t.Parallel()
	c := served(t).WithObjects(marked("node-1")).Build()
	r := fresh(interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, more ...client.GetOption) error {
			if _, is := o.(*corev1.Node); is {
				return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
			}
			return c.Get(ctx, key, o, more...)
		},
	}))
	r.live = c
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: "node-1"}}
	look := func(want time.Duration) {
		t.Helper()
		r.gone["node-1"] = time.Now().Add(-Orphan)
		if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != want {
			t.Errorf("again after %s, %v; want %s", result.RequeueAfter, err, want)
		}
	}
	look(Orphan)
	if since := time.Since(r.gone["node-1"]); since >= Orphan {
		t.Errorf("gone since %s", since)
	}
	if err := c.Get(t.Context(), request.NamespacedName, &v1alpha1.NodeSLO{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}); err != nil {
		t.Fatal(err)
	}
	look(0)
	if err := c.Get(t.Context(), request.NamespacedName, &v1alpha1.NodeSLO{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the node has gone: %v", err)
	}
}
