// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotamirror

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/internal/unseen"
)

// lagging is a client without a server whose reads of canonical quotas are those of a cache that sees nothing by itself; so are those of the
// source, where one is given.
type lagging struct {
	client.Client
	seen             *sigsv1alpha1.ElasticQuota // nil is none
	source           *quotav1alpha1.ElasticQuota
	writes, statuses int
}

func newLagging(t *testing.T, objects ...client.Object) (*lagging, *reconciler) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{koordinatorv1alpha1.AddToScheme, quotav1alpha1.AddToScheme, sigsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(objects...).WithStatusSubresource(&quotav1alpha1.ElasticQuota{}).Build()
	l := &lagging{Client: c}
	return l, &reconciler{client: interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, more ...client.GetOption) error {
			if s, is := o.(*quotav1alpha1.ElasticQuota); is && l.source != nil {
				l.source.DeepCopyInto(s)
				return nil
			}
			q, is := o.(*sigsv1alpha1.ElasticQuota)
			if !is {
				return c.Get(ctx, key, o, more...)
			}
			if l.seen == nil {
				return apierrors.NewNotFound(sigsv1alpha1.GroupVersion.WithResource("elasticquotas").GroupResource(), key.Name)
			}
			l.seen.DeepCopyInto(q)
			return nil
		},
		Apply: l.apply,
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, more ...client.SubResourceApplyOption) error {
			l.statuses++
			if err := c.SubResource(sub).Apply(ctx, o, more...); err != nil {
				return err
			}
			var s quotav1alpha1.ElasticQuota // the client without a server does not answer with it
			if err := c.Get(ctx, key, &s); err != nil {
				return err
			}
			o.(interface{ SetResourceVersion(string) }).SetResourceVersion(s.ResourceVersion)
			return nil
		},
	})}
}

// apply refuses what an API server does and the client without one does not.
func (l *lagging) apply(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, more ...client.ApplyOption) error {
	l.writes++
	asks := o.(interface {
		GetResourceVersion() string
		GetUID() types.UID
	})
	var stored sigsv1alpha1.ElasticQuota
	switch err := c.Get(ctx, key, &stored); {
	case err == nil && asks.GetResourceVersion() == ownership.Absent:
		return apierrors.NewConflict(sigsv1alpha1.GroupVersion.WithResource("elasticquotas").GroupResource(), key.Name, errors.New("it is there"))
	case err == nil && asks.GetUID() != "" && asks.GetUID() != stored.UID:
		return apierrors.NewInvalid(sigsv1alpha1.GroupVersion.WithKind(kind).GroupKind(), key.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), asks.GetUID(), "field is immutable"),
		})
	}
	return c.Apply(ctx, o, more...)
}

var key = client.ObjectKey{Namespace: "ns", Name: "q"}

// TestNameTakenUnseen: of a mirror that cannot be written because somebody else's object has the name, which the cache has not seen yet, nothing is
// said until it has.
func TestNameTakenUnseen(t *testing.T) {
	t.Parallel()
	source := &quotav1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"}}
	source.Spec = sigsv1alpha1.ElasticQuotaSpec{Min: cpu("2"), Max: cpu("8")}
	users := &sigsv1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "x"}}
	for name, seen := range map[string]*sigsv1alpha1.ElasticQuota{
		"made before the mirror":          nil,
		"made in the place of the mirror": mirrored(func(q *sigsv1alpha1.ElasticQuota) { q.Spec.Max = cpu("9") }),
	} {
		l, r := newLagging(t, source.DeepCopy(), users.DeepCopy())
		l.seen = seen
		look := func() {
			t.Helper()
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if look(); l.statuses > 0 {
			t.Errorf("%s: %d statuses are written before it is seen", name, l.statuses)
		}
		l.seen = &sigsv1alpha1.ElasticQuota{}
		if err := l.Client.Get(t.Context(), key, l.seen); err != nil {
			t.Fatal(err)
		}
		if len(l.seen.Labels) > 0 || len(l.seen.Spec.Max) > 0 {
			t.Errorf("%s: written: %+v", name, l.seen)
		}
		look()
		var s quotav1alpha1.ElasticQuota
		if err := l.Client.Get(t.Context(), key, &s); err != nil {
			t.Fatal(err)
		}
		if l.statuses != 1 || !meta.IsStatusConditionTrue(s.Status.Conditions, sigsv1alpha1.QuotaConflict) {
			t.Errorf("%s, seen: %d statuses, %+v", name, l.statuses, s.Status.Conditions)
		}
	}
}

// TestCacheBehind: a quota that is asked for again before the cache has what was written of it and its mirror is written once.
func TestCacheBehind(t *testing.T) {
	t.Parallel()
	source := &quotav1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"}}
	source.Spec = sigsv1alpha1.ElasticQuotaSpec{Min: cpu("2"), Max: cpu("8")}
	l, r := newLagging(t, source)
	see := func(mirror, itself bool) {
		t.Helper()
		if mirror {
			l.seen = &sigsv1alpha1.ElasticQuota{}
			if err := l.Client.Get(t.Context(), key, l.seen); err != nil {
				t.Fatal(err)
			}
		}
		if itself {
			l.source = &quotav1alpha1.ElasticQuota{}
			if err := l.Client.Get(t.Context(), key, l.source); err != nil {
				t.Fatal(err)
			}
		}
	}
	look := func(what string, writes, statuses int, again time.Duration) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err != nil || result.RequeueAfter != again || l.writes != writes || l.statuses != statuses {
			t.Errorf("%s: %d writes, %d statuses, again after %s, %v; want %d, %d and %s", what, l.writes, l.statuses, result.RequeueAfter, err, writes, statuses, again)
		}
	}
	see(false, true)
	look("a new one", 1, 1, 0)
	see(true, false)
	look("its mirror is seen before its status", 1, 1, unseen.Again)
	see(true, true)
	look("both are seen", 1, 1, 0)
	source = l.source.DeepCopy()
	source.Spec.Max = cpu("9")
	if err := l.Client.Update(t.Context(), source, client.FieldOwner("user")); err != nil {
		t.Fatal(err)
	}
	see(false, true)
	look("changed", 2, 1, 0)
	look("its mirror is not seen", 2, 1, unseen.Again)
	see(true, true)
	look("its mirror is seen", 2, 1, 0)
	if len(l.seen.Spec.Max) == 0 || l.seen.Spec.Max.Cpu().Value() != 9 {
		t.Errorf("%+v", l.seen.Spec)
	}
}
