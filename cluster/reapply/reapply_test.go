// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reapply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	"github.com/koord-rt/koord-rt/api/protocol"
)

func waiting(name string, labels map[string]string) *corev1.Pod {
	labels["app"] = "spark"
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name, Labels: labels, Annotations: map[string]string{"own": "stays"}}}
}

func batch() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "batch", Labels: map[string]string{"tier": "low"}}}
}

func kept(name string, spec configv1alpha1.ClusterColocationProfileSpec) *configv1alpha1.ClusterColocationProfile {
	spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"spark"}}}}
	return &configv1alpha1.ClusterColocationProfile{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{protocol.LabelControllerManaged: "true"}}, Spec: spec,
	}
}

// table is a cluster: what is asked of it and what is written.
type table struct {
	client.WithWatch
	asked, wrote []string
	refuse       error
	refuseIn     string // a namespace, or all
}

// cluster is client and rounds of a cluster with these objects. The client without a server knows no field selectors: which is asked
// for is noted.
func cluster(t *testing.T, o Options, objects ...client.Object) (*table, *rounds) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, configv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	own := make([]client.Object, len(objects)) // the fake writes to what it gets, and tests share objects
	for i, o := range objects {
		own[i] = o.DeepCopyObject().(client.Object)
	}
	c := &table{}
	c.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(own...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var asked client.ListOptions
			asked.ApplyOptions(opts)
			if asked.FieldSelector != nil {
				c.asked = append(c.asked, asked.FieldSelector.String())
			}
			return w.List(ctx, list)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if c.refuse != nil && (c.refuseIn == "" || c.refuseIn == o.GetNamespace()) {
				return c.refuse
			}
			data, err := p.Data(o)
			c.wrote = append(c.wrote, o.GetName()+" "+string(data))
			return errors.Join(err, w.Patch(ctx, o, p, opts...))
		},
	})
	o.QPS, o.Burst, o.Registry = 1000, 1000, prometheus.NewRegistry()
	return c, newRounds(o, c, c)
}

// TestRound: pods that wait get what the profile says, once; the rest of them stays, and pods that opt out, are leaving or are not
// selected stay whole.
func TestRound(t *testing.T) {
	t.Parallel()
	space := batch()
	out := waiting("out", map[string]string{protocol.KeyOptOut: "true"})
	leaving := waiting("leaving", map[string]string{})
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"example.com/x"}
	other := waiting("web", map[string]string{})
	other.Labels["app"] = "web"
	closed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "closed", Labels: map[string]string{"tier": "low", protocol.KeyOptOut: "true"}}}
	shut := waiting("shut", map[string]string{})
	shut.Namespace = "closed"
	c, r := cluster(t, Options{}, space, closed, shut, out, leaving, other, waiting("plain", map[string]string{"tier": "old"}), waiting("right", map[string]string{"tier": "new"}),
		kept("p", configv1alpha1.ClusterColocationProfileSpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "low"}},
			Labels:            map[string]string{"tier": "new", protocol.LabelQoSClass: "BE"}, QoSClass: "BE",
		}))
	for range 2 {
		if err := r.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.wrote) != 1 || !strings.HasPrefix(c.wrote[0], `plain {"metadata":{"labels":{"tier":"new"},"resourceVersion":"`) {
		t.Errorf("written: %q", c.wrote)
	}
	var got corev1.Pod
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "batch", Name: "plain"}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Labels) != 2 || got.Labels["tier"] != "new" || got.Labels["app"] != "spark" || got.Annotations["own"] != "stays" {
		t.Errorf("%v, %v", got.Labels, got.Annotations)
	}
	if want := "spec.nodeName=,status.phase=Pending"; !slices.Contains(c.asked, want) {
		t.Errorf("asked for %q, want %q", c.asked, want)
	}
	if n := testutil.ToFloat64(r.pods.WithLabelValues("succeeded")); n != 1 {
		t.Errorf("%v counted", n)
	}
}

// TestNobodyAsks: without a profile that is kept up nobody looks at pods; with All every profile is.
func TestNobodyAsks(t *testing.T) {
	t.Parallel()
	free := kept("free", configv1alpha1.ClusterColocationProfileSpec{Labels: map[string]string{"tier": "new"}})
	free.Labels = nil
	for _, all := range []bool{false, true} {
		c, r := cluster(t, Options{All: all}, batch(), waiting("plain", map[string]string{}), free.DeepCopy())
		if err := r.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (len(c.asked) > 0) != all || (len(c.wrote) > 0) != all {
			t.Errorf("all %v: asked %q, wrote %q", all, c.asked, c.wrote)
		}
	}
}

// TestRefusedNamespace: a namespace whose pods are refused keeps none of the others from being looked at.
func TestRefusedNamespace(t *testing.T) {
	t.Parallel()
	objects := []client.Object{batch(), kept("p", configv1alpha1.ClusterColocationProfileSpec{Labels: map[string]string{"tier": "new"}})}
	for i := range 3 * patience {
		objects = append(objects, waiting(fmt.Sprintf("pod-%02d", i), map[string]string{}))
	}
	last := waiting("last", map[string]string{})
	last.Namespace = "zoo"
	c, r := cluster(t, Options{}, append(objects, last, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "zoo"}})...)
	c.refuse, c.refuseIn = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("not here")), "batch"
	if err := r.round(t.Context()); err == nil || strings.Count(err.Error(), "pod batch/pod-") != patience {
		t.Errorf("%v", err)
	}
	if len(c.wrote) != 1 || !strings.HasPrefix(c.wrote[0], "last ") {
		t.Errorf("written: %q", c.wrote)
	}
}

// TestRefused: what has changed meanwhile is no error; a server that refuses is not asked for every pod of the cluster.
func TestRefused(t *testing.T) {
	t.Parallel()
	objects := []client.Object{batch(), kept("p", configv1alpha1.ClusterColocationProfileSpec{Labels: map[string]string{"tier": "new"}})}
	for i := range 30 {
		objects = append(objects, waiting(fmt.Sprintf("pod-%d", i), map[string]string{}))
	}
	c, r := cluster(t, Options{Interval: time.Hour}, objects...)
	c.refuse = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "x", errors.New("changed"))
	if err := r.round(t.Context()); err != nil {
		t.Errorf("conflicts: %v", err)
	}
	c.refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("no right"))
	if err := r.round(t.Context()); err == nil || !strings.Contains(err.Error(), "pod batch/pod-") {
		t.Errorf("forbidden: %v", err)
	}
	if n := testutil.ToFloat64(r.pods.WithLabelValues("failed")); n != 10 {
		t.Errorf("%v failures counted, want 10", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Start(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
