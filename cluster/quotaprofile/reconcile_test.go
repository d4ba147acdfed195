// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotaprofile

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

// bench is a reconciler beside controller-runtime's client without a server, which keeps owners of fields as an API server does. The real one is
// in test/lab/cluster.
type bench struct {
	*reconciler
	writes int
	// stale is a profile that the cache still has.
	stale *quotav1alpha1.ElasticQuotaProfile
	// blind is a cache that has seen no quota yet.
	blind bool
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, quotav1alpha1.AddToScheme, sigsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	own := make([]client.Object, len(objects)) // the fake writes to what it gets, and tests share objects
	for i, o := range objects {
		own[i] = o.DeepCopyObject().(client.Object)
	}
	b := &bench{}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	c := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(own...).
		WithIndex(&quotav1alpha1.ElasticQuotaProfile{}, metav1.ObjectNameField, byName).Build()
	b.reconciler = newReconciler(interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if p, is := o.(*quotav1alpha1.ElasticQuotaProfile); is && b.stale != nil {
				b.stale.DeepCopyInto(p)
				return nil
			}
			if _, is := o.(*sigsv1alpha1.ElasticQuota); is && b.blind {
				return apierrors.NewNotFound(sigsv1alpha1.GroupVersion.WithResource("elasticquotas").GroupResource(), key.Name)
			}
			return w.Get(ctx, key, o, opts...)
		},
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			b.writes++
			return w.Apply(ctx, o, opts...)
		},
	}), c)
	return b
}

// look reconciles profiles of the namespace team twice, and wants so many writes: the second look never writes.
func (b *bench) look(t *testing.T, want int, names ...string) {
	t.Helper()
	b.writes = 0
	for range 2 {
		for _, name := range names {
			if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if b.writes != want {
		t.Errorf("%d writes, want %d", b.writes, want)
	}
}

func (b *bench) quota(t *testing.T, name string) *sigsv1alpha1.ElasticQuota {
	t.Helper()
	var q sigsv1alpha1.ElasticQuota
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, &q); err != nil {
		t.Fatal(err)
	}
	return &q
}

func (b *bench) change(t *testing.T, o client.Object) {
	t.Helper()
	if err := b.client.Update(t.Context(), o, client.FieldOwner("user")); err != nil {
		t.Fatal(err)
	}
}

func pooled(name string, cpu string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"), "kubernetes.io/batch-cpu": resource.MustParse("500")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func profileOf(name, quota string) *quotav1alpha1.ElasticQuotaProfile {
	return &quotav1alpha1.ElasticQuotaProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec: quotav1alpha1.ElasticQuotaProfileSpec{
			QuotaName: quota, QuotaLabels: map[string]string{"tier": "one"}, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
		},
	}
}

// TestReconcile goes through the life of a quota: made with its tree's id, as large as the nodes, put right when somebody changes it or deletes
// it, without a label that the profile no longer has, and written only then.
func TestReconcile(t *testing.T) {
	t.Parallel()
	other := pooled("other", "100")
	other.Labels["pool"] = "b"
	b := newBench(t, pooled("one", "4"), pooled("two", "8"), other, profileOf("pool-a", "root-a"))
	b.look(t, 2, "pool-a") // the profile's label and the quota
	q := b.quota(t, "root-a")
	var p quotav1alpha1.ElasticQuotaProfile
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "pool-a"}, &p); err != nil {
		t.Fatal(err)
	}
	const id = "10428910975564001253" // FNV-1a of team/pool-a
	if p.Labels[protocol.LabelQuotaTreeID] != id || q.Labels[protocol.LabelQuotaTreeID] != id || q.Labels[protocol.LabelQuotaIsRoot] != "true" || q.Labels["tier"] != "one" {
		t.Errorf("labels of the profile %v, of the quota %v", p.Labels, q.Labels)
	}
	if q.Spec.Min.Cpu().String() != "12" || q.Spec.Min.Memory().String() != "2Gi" || len(q.Spec.Min) != 2 || q.Spec.Max.Cpu().Value() != 4611686018427387 ||
		q.Annotations[protocol.AnnotationQuotaTotal] != `{"cpu":"12","kubernetes.io/batch-cpu":"1k","memory":"2Gi"}` {
		t.Errorf("%+v, %v", q.Spec, q.Annotations)
	}

	q.Spec.Min["cpu"], q.Spec.Priority, q.Annotations["note"] = resource.MustParse("1"), 7, "mine"
	b.change(t, q)
	b.look(t, 1, "pool-a")
	if q = b.quota(t, "root-a"); q.Spec.Min.Cpu().String() != "12" || q.Spec.Priority != 7 || q.Annotations["note"] != "mine" {
		t.Errorf("after a user's change: %+v, %v", q.Spec, q.Annotations)
	}
	p.Spec.QuotaLabels = nil
	b.change(t, &p)
	b.look(t, 1, "pool-a")
	if q = b.quota(t, "root-a"); q.Labels["tier"] != "" || q.Labels[protocol.LabelQuotaProfile] != "pool-a" {
		t.Errorf("a label that was taken back: %v", q.Labels)
	}
	if err := b.client.Delete(t.Context(), pooled("two", "8")); err != nil {
		t.Fatal(err)
	}
	b.look(t, 1, "pool-a")
	if q = b.quota(t, "root-a"); q.Spec.Min.Cpu().String() != "4" {
		t.Errorf("without a node: %v", q.Spec.Min)
	}
	if err := b.client.Delete(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	b.look(t, 1, "pool-a")
	if err := b.client.Delete(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	b.look(t, 0, "pool-a")
	b.quota(t, "root-a") // outlives its profile
}

// TestNothingMade: a profile that cannot be read, and the second one of a quota, make nothing; the second does when the first has gone.
func TestNothingMade(t *testing.T) {
	t.Parallel()
	broken := profileOf("broken", "root-b")
	broken.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}
	first, second := profileOf("a-first", "root-a"), profileOf("second", "root-a")
	first.Labels, second.Labels = map[string]string{protocol.LabelQuotaTreeID: "t"}, map[string]string{protocol.LabelQuotaTreeID: "t"}
	b := newBench(t, broken, first, second)
	b.look(t, 0, "broken")
	b.look(t, 0, "second")
	b.look(t, 1, "a-first")
	if err := b.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	b.look(t, 1, "second")
	if q := b.quota(t, "root-a"); q.Labels[protocol.LabelQuotaProfile] != "second" {
		t.Errorf("%v", q.Labels)
	}
}

// TestEmptyTree: an id that somebody has written empty is none, and is filled in, though the label is his; one that he has written since, and the
// cache has not seen yet, stays.
func TestEmptyTree(t *testing.T) {
	t.Parallel()
	b := newBench(t, pooled("one", "4"))
	for name, quota := range map[string]string{"pool-a": "root-a", "pool-b": "root-b"} {
		p := profileOf(name, quota)
		p.Labels = map[string]string{protocol.LabelQuotaTreeID: ""}
		if err := b.client.Create(t.Context(), p, client.FieldOwner("user")); err != nil {
			t.Fatal(err)
		}
	}
	b.look(t, 2, "pool-a") // the profile's label and the quota
	if id := b.quota(t, "root-a").Labels[protocol.LabelQuotaTreeID]; id != "10428910975564001253" {
		t.Errorf("id %q of an empty one", id)
	}

	var stale quotav1alpha1.ElasticQuotaProfile
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "pool-b"}, &stale); err != nil {
		t.Fatal(err)
	}
	chosen := stale.DeepCopy()
	chosen.Labels[protocol.LabelQuotaTreeID] = "chosen"
	b.change(t, chosen)
	b.stale = &stale
	b.look(t, 2, "pool-b") // two that are refused
	b.stale = nil
	b.look(t, 1, "pool-b")
	if id := b.quota(t, "root-b").Labels[protocol.LabelQuotaTreeID]; id != "chosen" {
		t.Errorf("id %q, want the one that was chosen", id)
	}
}

// TestGoneUnseen: a profile that has gone, or is another one now, and the cache has not seen it yet, makes no quota, which would outlive it.
func TestGoneUnseen(t *testing.T) {
	t.Parallel()
	stale, another := profileOf("pool-a", "root-a"), profileOf("pool-a", "root-b")
	stale.UID, stale.Labels, another.UID = "old", map[string]string{protocol.LabelQuotaTreeID: "t"}, "new"
	for name, stored := range map[string][]client.Object{"gone": nil, "another": {another}} {
		b := newBench(t, stored...)
		b.stale = stale
		b.look(t, 0, "pool-a")
		var all sigsv1alpha1.ElasticQuotaList
		if err := b.client.List(t.Context(), &all); err != nil || len(all.Items) > 0 {
			t.Errorf("%s: %v, %v", name, all.Items, err)
		}
	}
}

// TestQuotaUnseen: the look that the profile's own label asks for comes before the cache has the quota; it is written once all the same.
func TestQuotaUnseen(t *testing.T) {
	t.Parallel()
	b := newBench(t, profileOf("pool-a", "root-a"))
	b.blind = true
	b.look(t, 2, "pool-a") // the label and the quota
	b.blind = false
	b.look(t, 0, "pool-a")
	b.quota(t, "root-a")
}

// asked is a queue that notes what is asked for and how soon.
type asked struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	what []string
}

func (a *asked) AddAfter(r reconcile.Request, after time.Duration) {
	a.what = append(a.what, fmt.Sprintf("%s %s", r.Name, after))
}

// TestWake: who is looked at when, and that what changes all the time wakes nobody.
func TestWake(t *testing.T) {
	t.Parallel()
	b := newBench(t, profileOf("a", "root-a"), profileOf("a2", "root-a"))
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := pooled("one", "4")
		change(n)
		return n
	}
	quota := func(generation int64, annotation string) *sigsv1alpha1.ElasticQuota {
		return &sigsv1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "root-a", Generation: generation, Annotations: map[string]string{protocol.AnnotationQuotaTotal: annotation, "runtime": time.Now().String()},
		}}
	}
	both := []string{"a 1s", "a2 1s"}
	ctx := t.Context()
	was := node(func(*corev1.Node) {})
	for name, c := range map[string]struct {
		tell func(q queue)
		want []string
	}{
		"from the start": {func(q queue) { b.onNode().Create(ctx, event.CreateEvent{Object: was, IsInInitialList: true}, q) }, nil},
		"a new node":     {func(q queue) { b.onNode().Create(ctx, event.CreateEvent{Object: was}, q) }, both},
		"a node gone":    {func(q queue) { b.onNode().Delete(ctx, event.DeleteEvent{Object: was}, q) }, both},
		"a node of nobody": {func(q queue) {
			b.onNode().Delete(ctx, event.DeleteEvent{Object: node(func(n *corev1.Node) { n.Labels = nil })}, q)
		}, nil},
		"a node that leaves": {func(q queue) {
			b.onNode().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: node(func(n *corev1.Node) { n.Labels = nil })}, q)
		}, both},
		"a heartbeat": {func(q queue) {
			b.onNode().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: node(func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} })}, q)
		}, nil},
		"cordoned": {func(q queue) {
			b.onNode().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: node(func(n *corev1.Node) { n.Spec.Unschedulable = true })}, q)
		}, both},
		"not ready": {func(q queue) {
			b.onNode().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: node(func(n *corev1.Node) { n.Status.Conditions = nil })}, q)
		}, both},
		"more CPUs": {func(q queue) {
			b.onNode().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: pooled("one", "5")}, q)
		}, both},
		"less to lend": {func(q queue) {
			b.onNode().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: node(func(n *corev1.Node) {
				n.Status.Allocatable["kubernetes.io/batch-cpu"] = resource.MustParse("1")
			})}, q)
		}, []string{"a 10s", "a2 10s"}},
		"a quota gone":        {func(q queue) { b.onQuota().Delete(ctx, event.DeleteEvent{Object: quota(1, "")}, q) }, both},
		"a profile gone":      {func(q queue) { b.onProfile().Delete(ctx, event.DeleteEvent{Object: profileOf("x", "root-a")}, q) }, both},
		"one of another gone": {func(q queue) { b.onProfile().Delete(ctx, event.DeleteEvent{Object: profileOf("x", "root-x")}, q) }, nil},
	} {
		q := &asked{}
		c.tell(q)
		slices.Sort(q.what)
		if !slices.Equal(q.what, c.want) {
			t.Errorf("%s: %q, want %q", name, q.what, c.want)
		}
	}
	another := quota(1, "x") // that was made while the watch was broken
	another.UID = "v"
	for changed, want := range map[*sigsv1alpha1.ElasticQuota]bool{quota(1, "x"): false, quota(2, "x"): true, quota(1, "y"): true, another: true} {
		if got := quotaChanges().Update(event.UpdateEvent{ObjectOld: quota(1, "x"), ObjectNew: changed}); got != want {
			t.Errorf("generation %d, total %s: %v", changed.Generation, changed.Annotations[protocol.AnnotationQuotaTotal], got)
		}
	}
	anew := profileOf("a", "root-b")
	anew.UID = "v"
	if !profileChanges().Update(event.UpdateEvent{ObjectOld: profileOf("a", "root-a"), ObjectNew: anew}) {
		t.Error("a profile that was made anew while the watch was broken wakes nobody")
	}
}
