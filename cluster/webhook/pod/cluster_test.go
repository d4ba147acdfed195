// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/koord-rt/koord-rt/api/apitest"
	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	schedulingsigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
)

// TestNamespaceIsReadOnce, however many profiles select by it.
func TestNamespaceIsReadOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	objects := []client.Object{priorityClass("koord-batch", 5000), namespace(enabled(), nil)}
	for i := range 5 {
		p := colocation(t, manualProfile)
		p.Name = fmt.Sprint("p", i)
		objects = append(objects, p)
	}
	reads := 0
	w.mutator.cached = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Namespace); ok {
				reads++
			}
			return under.Get(ctx, key, o, opts...)
		},
	}).Build()
	if p, _, _ := w.create(t, manualPod); reads != 1 || p.Annotations[protocol.AnnotationProfiles] != "p0,p1,p2,p3,p4" {
		t.Errorf("%d reads, profiles %s", reads, p.Annotations[protocol.AnnotationProfiles])
	}
}

// TestClassUnseen: a profile whose PriorityClass the cache has not seen yet is applied all the same.
func TestClassUnseen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, colocation(t, manualProfile), namespace(enabled(), nil))
	w.mutator.live = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(priorityClass("koord-batch", 5000)).Build()
	if p, _, resp := w.create(t, manualPod); p.Spec.PriorityClassName != "koord-batch" || p.Annotations[protocol.AnnotationProfiles] == "" || len(resp.Warnings) > 0 {
		t.Errorf("class %q, profiles %q, %q", p.Spec.PriorityClassName, p.Annotations[protocol.AnnotationProfiles], resp.Warnings)
	}
}

// TestSurroundings: reservations and quotas of every group bring a pod to our scheduler; a group that is not served does not.
func TestSurroundings(t *testing.T) {
	t.Parallel()
	const plain = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team, labels: {app: spark}}, spec: {schedulerName: default-scheduler, containers: [{name: c}]}}"
	reservation := func(phase string) string {
		return "{metadata: {name: r}, spec: {owners: [{labelSelector: {matchLabels: {app: spark}}}]}, status: {phase: " + phase + "}}"
	}
	meta := metav1.ObjectMeta{Name: "q", Namespace: team}
	for name, c := range map[string]struct {
		object client.Object
		want   string
	}{
		"nothing":              {namespace(nil, nil), ""},
		"reservation":          {object(t, reservation("Available"), &schedulingv1alpha1.Reservation{}), "reservation r"},
		"one that has ended":   {object(t, reservation("Failed"), &schedulingv1alpha1.Reservation{}), ""},
		"quota":                {&schedulingsigsv1alpha1.ElasticQuota{ObjectMeta: meta}, "quota in the namespace"},
		"M4's quota":           {&koordinatorv1alpha1.ElasticQuota{ObjectMeta: meta}, "quota in the namespace"},
		"M11's quota":          {&quotav1alpha1.ElasticQuota{ObjectMeta: meta}, "quota in the namespace"},
		"of another namespace": {&quotav1alpha1.ElasticQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "other"}}, ""},
	} {
		w := newWorld(t, Options{SchedulerName: "koord-scheduler"}, c.object)
		p, _, resp := w.create(t, plain)
		if got := p.Annotations[protocol.AnnotationSchedulerReason]; got != c.want || (p.Spec.SchedulerName == "koord-scheduler") != (c.want != "") || len(resp.Warnings) > 0 {
			t.Errorf("%s: %q, scheduler %s, warnings %v", name, got, p.Spec.SchedulerName, resp.Warnings)
		}
	}
	unserved := newWorld(t, Options{SchedulerName: "koord-scheduler"})
	bare := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, o client.ObjectList, _ ...client.ListOption) error {
			return &apimeta.NoKindMatchError{GroupKind: o.GetObjectKind().GroupVersionKind().GroupKind()}
		},
	}).Build()
	unserved.mutator.cached = bare
	if _, _, resp := unserved.create(t, plain); len(resp.Patches) > 0 || len(resp.Warnings) > 0 {
		t.Errorf("kinds that are not served: %v, %v", resp.Patches, resp.Warnings)
	}
}

// TestRoomsThatMeanNothing: a Reservation whose template or owners mean nothing, stored while nobody looked, keeps no other from its pods, and
// of each only what admissions read is kept.
func TestRoomsThatMeanNothing(t *testing.T) {
	t.Parallel()
	const plain = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team, labels: {app: spark}}, spec: {schedulerName: default-scheduler, containers: [{name: c}]}}"
	const kind = "apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation, "
	var kept []unstructured.Unstructured
	for _, text := range []string{
		"{" + kind + "metadata: {name: containers}, spec: {owners: [{labelSelector: {matchLabels: {app: other}}}], template: {spec: {containers: 3}}}}",
		"{" + kind + "metadata: {name: owners}, spec: {owners: 3}}",
		"{" + kind + "metadata: {name: none}}",
		"{" + kind + `metadata: {name: amount, uid: u}, spec: {ttl: soon, owners: [{labelSelector: {matchLabels: {app: spark}}}],
			template: {spec: {containers: [{resources: {requests: {cpu: "1e-99999999"}}}]}}}, status: {phase: Available, nodeName: n}}`,
	} {
		room := &unstructured.Unstructured{Object: *apitest.Document[map[string]any](t, text)}
		one, is := RoomOnly(room).(*unstructured.Unstructured)
		if !is {
			t.Fatal("no object is kept")
		}
		if _, has, _ := unstructured.NestedFieldNoCopy(one.Object, "spec", "template"); has || one.GetName() != room.GetName() || one.GetUID() != room.GetUID() {
			t.Errorf("kept: %v", one.Object)
		}
		kept = append(kept, *one)
	}
	w := newWorld(t, Options{SchedulerName: "koord-scheduler"})
	under := w.mutator.cached.(client.WithWatch)
	w.mutator.cached = interceptor.NewClient(under, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			if list, is := o.(*unstructured.UnstructuredList); is {
				list.Items = kept
				return nil
			}
			return c.List(ctx, o, opts...)
		},
	})
	if p, _, _ := w.create(t, plain); p.Annotations[protocol.AnnotationSchedulerReason] != "reservation amount" {
		t.Errorf("%q", p.Annotations[protocol.AnnotationSchedulerReason])
	}
	if n := w.failedOpen("broken-reservation"); n != 1 {
		t.Errorf("a pod's admission that met one nobody can read was counted %v times", n)
	}
	if other := (&corev1.Pod{}); RoomOnly(other) != any(other) {
		t.Error("another kind does not stay as it is")
	}
}
