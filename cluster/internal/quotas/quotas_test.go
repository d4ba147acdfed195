// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quotas

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

// TestList: all three groups, the canonical one first, and two of one namespace and name once; one that is not served has none, any other error is told.
func TestList(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{sigsv1alpha1.AddToScheme, koordinatorv1alpha1.AddToScheme, quotav1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	m := metav1.ObjectMeta{Namespace: "ns", Name: "q"}
	own, other := m, m
	own.Name, other.Name = "own", "other"
	objects := []client.Object{&quotav1alpha1.ElasticQuota{ObjectMeta: m}, &koordinatorv1alpha1.ElasticQuota{ObjectMeta: other}, &sigsv1alpha1.ElasticQuota{ObjectMeta: m}, &sigsv1alpha1.ElasticQuota{ObjectMeta: own}}
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"all served":     {nil, []string{"scheduling.sigs.k8s.io/own of ", "scheduling.sigs.k8s.io/q of quota.koordinator.sh", "koordinator.sh/other of koordinator.sh"}},
		"one not served": {&meta.NoKindMatchError{}, []string{"scheduling.sigs.k8s.io/own of ", "scheduling.sigs.k8s.io/q of quota.koordinator.sh"}},
		"no cache":       {errors.New("no cache"), nil},
	} {
		got, err := List(t.Context(), fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
				if _, is := l.(*koordinatorv1alpha1.ElasticQuotaList); is && c.err != nil {
					return c.err
				}
				return w.List(ctx, l, o...)
			},
		}).Build())
		var groups []string
		for _, q := range got {
			groups = append(groups, q.Group+"/"+q.Meta.Name+" of "+q.Seed)
		}
		if !slices.Equal(groups, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("%s: %q, %v", name, groups, err)
		}
	}
}

// TestSettleLooksFewTimes: what stays refused is looked at seven times in half a second, the last time at its end.
func TestSettleLooksFewTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var looks []time.Duration
		err := Settle(t.Context(), Settling, func(context.Context) (bool, error) {
			looks = append(looks, time.Since(begun)/time.Millisecond)
			return false, nil
		})
		if want := []time.Duration{0, 10, 30, 70, 150, 310, 500}; err != nil || !slices.Equal(looks, want) {
			t.Errorf("looks after %d ms, want %d; %v", looks, want, err)
		}
	})
}

// TestSettle ends with the first good answer, an error, the time to settle, or the question's own end.
func TestSettle(t *testing.T) {
	t.Parallel()
	looks := 0
	if err := Settle(t.Context(), time.Hour, func(context.Context) (bool, error) { looks++; return looks == 3, nil }); err != nil || looks != 3 {
		t.Errorf("%d looks, %v", looks, err)
	}
	broken := errors.New("no cache")
	if err := Settle(t.Context(), time.Hour, func(context.Context) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	looks = 0
	if err := Settle(t.Context(), 0, func(context.Context) (bool, error) { looks++; return false, nil }); err != nil || looks == 0 {
		t.Errorf("%d looks, %v", looks, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Settle(ended, time.Hour, func(ctx context.Context) (bool, error) { return false, nil }); err != nil {
		t.Error(err)
	}
	if err := Settle(t.Context(), time.Hour, func(ctx context.Context) (bool, error) {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > longest {
			t.Error("a cache that has not begun would be waited for without end")
		}
		return true, nil
	}); err != nil {
		t.Error(err)
	}
}
