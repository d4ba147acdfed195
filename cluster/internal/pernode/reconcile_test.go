// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/daemon/logs"
)

// served is controller-runtime's own client without a server, which keeps owners of fields as an API server does, with node-1 in it.
func served(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	return fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithIndex(&corev1.Node{}, metav1.ObjectNameField, byName).
		WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
}

// fresh is a reconciler of NodeSLOs without a strategy.
func fresh(c client.Client) *reconciler {
	return &reconciler{
		store: &config.Store{}, client: c, live: c, orphan: Orphan, gone: map[string]time.Time{}, limit: logs.NewLimiter(logs.LimiterOptions{}), metrics: newMetrics("nodeslo"),
		kind: Kind{
			Name: "nodeslo", GVK: v1alpha1.GroupVersion.WithKind(slo.KindNodeSLO),
			Extensions: "/extensions",

			New:  func() client.Object { return &v1alpha1.NodeSLO{} },
			Spec: func(o client.Object) any { return o.(*v1alpha1.NodeSLO).Spec },
			Render: func(c *config.Config, n config.Node) (any, []config.Problem) {
				spec, problems := c.NodeSLO(n)
				return v1alpha1.NodeSLOSpecOf(spec), problems
			},
		},
	}
}

// TestReconcile goes through the life of a node beside a client without a server. The real one is in test/lab/cluster.
func TestReconcile(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := served(t).Build()
	r := fresh(c)
	store := r.store
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: "node-1"}}
	look := func(burst string) ctrl.Result {
		t.Helper()
		if burst != "" {
			parsed, problems := config.Parse(map[string]string{config.KeyBurst: burst}, store.Load())
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			store.Set(parsed)
		}
		result, err := r.Reconcile(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	get := func() *v1alpha1.NodeSLO {
		t.Helper()
		var o v1alpha1.NodeSLO
		if err := client.IgnoreNotFound(c.Get(context.Background(), request.NamespacedName, &o)); err != nil {
			t.Fatal(err)
		}
		return &o
	}
	look("")
	if o := get(); o.Name != "" {
		t.Fatalf("without a strategy that was read there is %+v", o)
	}
	look(`{"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 200}}`)
	made := get()
	if made.Annotations[CreatedBy] != Manager || *made.Spec.CPUBurstStrategy.Policy != "auto" || *made.Spec.CPUBurstStrategy.CPUBurstPercent != 200 {
		t.Fatalf("%+v", made)
	}
	look("")
	if again := get(); again.ResourceVersion != made.ResourceVersion {
		t.Error("written although nothing has changed")
	}
	none := "none"
	mine := get()
	mine.Spec.CPUBurstStrategy.Policy = &none
	if err := c.Update(ctx, mine, client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	look(`{"clusterStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 300}}`)
	if o := get(); *o.Spec.CPUBurstStrategy.Policy != "none" || *o.Spec.CPUBurstStrategy.CPUBurstPercent != 300 || o.Annotations[CreatedBy] != Manager {
		t.Errorf("beside a user's field: %+v, %v", o.Spec.CPUBurstStrategy, o.Annotations)
	}
	look(`{"clusterStrategy": {"policy": "auto", "sharePoolThresholdPercent": 40}}`)
	if b := get().Spec.CPUBurstStrategy; *b.Policy != "none" || b.CPUBurstPercent != nil || *b.SharePoolThresholdPercent != 40 {
		t.Errorf("what the cluster no longer says is taken back, and no more: %+v", b)
	}
	// What an extension said before this process began stays when nobody can read it now.
	for _, text := range []string{`{"clusterStrategy": {"a": 1}}`, `{"clusterStrategy"`} {
		parsed, _ := config.Parse(map[string]string{"extension.tuner": text}, nil)
		store.Set(parsed)
		look("")
		if got := string(get().Spec.Extensions["tuner"]); got != `{"a":1}` {
			t.Errorf("the extension is %s after %s", got, text)
		}
	}
	// A strategy that says nothing any more takes all back.
	parsed, _ := config.Parse(nil, nil)
	store.Set(parsed)
	look("")
	if o := get(); o.Spec.Extensions != nil || o.Annotations[CreatedBy] != Manager {
		t.Errorf("without a strategy: %+v", o)
	}
	// What somebody deletes is made again as it was.
	look(`{"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 200}}`)
	if err := c.Delete(ctx, get()); err != nil {
		t.Fatal(err)
	}
	look("")
	if o := get(); o.Annotations[CreatedBy] != Manager || o.Spec.CPUBurstStrategy == nil || *o.Spec.CPUBurstStrategy.Policy != "auto" || *o.Spec.CPUBurstStrategy.CPUBurstPercent != 200 {
		t.Errorf("deleted by hand, and made again: %+v", o)
	}
	if err := c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}); err != nil {
		t.Fatal(err)
	}
	if result := look(""); result.RequeueAfter <= 0 || result.RequeueAfter > Orphan || get().Name == "" {
		t.Errorf("just after its node went: %+v, %+v", result, get())
	}
	r.gone["node-1"] = time.Now().Add(-Orphan)
	look("")
	if o := get(); o.Name != "" {
		t.Errorf("ten minutes after its node went there is %+v", o)
	}
	registry := prometheus.NewRegistry()
	if err := r.metrics.register(registry); err != nil {
		t.Fatal(err)
	}
	const counted = `
# HELP slo_controller_nodeslo_reconcile_count Objects that were written, and looks that failed; a look that finds everything as it should be is not counted.
# TYPE slo_controller_nodeslo_reconcile_count counter
slo_controller_nodeslo_reconcile_count{reason="apply",status="succeeded"} 7
slo_controller_nodeslo_reconcile_count{reason="delete",status="succeeded"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(counted), "slo_controller_nodeslo_reconcile_count"); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(r.metrics.parsed.WithLabelValues("succeeded", "strategy")); n != 9 {
		t.Errorf("%v specs were made, want one for each look at the node", n)
	}
}

// marked is an object that was made here for a node.
func marked(name string) *v1alpha1.NodeSLO {
	const fields = `{"f:metadata": {"f:annotations": {"f:koord-rt.dev/created-by": {}}}}`
	managed := applied(fields)
	managed[0].APIVersion, managed[0].FieldsType = v1alpha1.GroupVersion.String(), "FieldsV1"
	return &v1alpha1.NodeSLO{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{CreatedBy: Manager}, ManagedFields: managed}}
}

// TestOrphanBeforeTheStrategy: what a node has left behind is counted from the first look, also where the strategy was not read yet: that wakes
// nodes, and this one is none.
func TestOrphanBeforeTheStrategy(t *testing.T) {
	t.Parallel()
	left := marked("gone")
	c := served(t).WithObjects(left, &v1alpha1.NodeSLO{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}).Build()
	r := fresh(c)
	for name, waits := range map[string]bool{"gone": true, "node-1": false} {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err != nil || result.RequeueAfter > 0 != waits {
			t.Errorf("%s: again after %s, %v", name, result.RequeueAfter, err)
		}
	}
	r.gone["gone"] = time.Now().Add(-Orphan)
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "gone"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(left), &v1alpha1.NodeSLO{}); !apierrors.IsNotFound(err) {
		t.Errorf("ten minutes later: %v", err)
	}
}
