// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pernode

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/ownership"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
)

// TestRefused: of a strategy of which an API server refuses a field, the rest is written and the field stays; where it names the whole spec
// nothing is. Both are errors with its reason, so that they are logged and tried again, and counted.
func TestRefused(t *testing.T) {
	t.Parallel()
	const reason = "300 is too much here"
	at := field.NewPath("spec", "cpuBurstStrategy", "cpuBurstPercent")
	c := served(t).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, more ...client.ApplyOption) error {
			text, err := json.Marshal(o)
			if err != nil {
				return err
			}
			if strings.Contains(string(text), `"cpuBurstPercent":300`) {
				return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("NodeSLO").GroupKind(), "node-1", field.ErrorList{
					field.Invalid(at, 300, reason), field.Invalid(nil, "null", "some validation rules were not checked because the object was invalid"),
				})
			}
			return c.Apply(ctx, o, more...)
		},
	}).Build()
	r := fresh(c)
	name := types.NamespacedName{Name: "node-1"}
	look := func(policy string, percent int) (v1alpha1.NodeSLO, error) {
		t.Helper()
		parsed, problems := config.Parse(map[string]string{
			config.KeyBurst:     fmt.Sprintf(`{"clusterStrategy": {"policy": %q, "cpuBurstPercent": %d}}`, policy, percent),
			config.KeyThreshold: fmt.Sprintf(`{"clusterStrategy": {"enable": %t}}`, policy == "auto"),
		}, nil)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		r.store.Set(parsed)
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
		var o v1alpha1.NodeSLO
		if err := client.IgnoreNotFound(c.Get(t.Context(), name, &o)); err != nil {
			t.Fatal(err)
		}
		return o, err
	}
	is := func(what string, policy string, percent int64, refused bool) {
		t.Helper()
		o, err := look(policy, map[bool]int{true: 300, false: int(percent)}[refused])
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", what, err)
		}
		b, u := o.Spec.CPUBurstStrategy, o.Spec.ResourceUsedThresholdWithBE
		if b == nil || *b.Policy != policy || b.CPUBurstPercent == nil && percent != 0 || b.CPUBurstPercent != nil && *b.CPUBurstPercent != percent || u == nil || *u.Enable != (policy == "auto") {
			t.Errorf("%s: %+v, %+v", what, b, u)
		}
	}
	is("refused at the creation", "auto", 0, true)
	is("taken", "auto", 200, false)
	is("refused later", "none", 200, true)
	is("refused again", "none", 200, true)
	is("taken again", "auto", 400, false)
	count := func(status, reason string) float64 {
		return testutil.ToFloat64(r.metrics.reconciled.WithLabelValues(status, reason))
	}
	if refused, written := count("failed", whyRefused), count("succeeded", whyApply); refused != 3 || written != 4 {
		t.Errorf("%v refusals and %v writes are counted, want 3 and 4", refused, written)
	}
	at = field.NewPath("spec")
	if o, err := look("none", 300); err == nil || !strings.Contains(err.Error(), reason) || *o.Spec.CPUBurstStrategy.Policy != "auto" {
		t.Errorf("the whole spec refused: %v, %+v", err, o.Spec.CPUBurstStrategy)
	}
}

// TestYieldedIsTold: what gives way to a user's field is logged with the key of the ConfigMap, field and reason, once, and counted at each look.
func TestYieldedIsTold(t *testing.T) {
	t.Parallel()
	var told []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, text string) { told = append(told, text) }, funcr.Options{}))
	c := served(t).Build()
	user := &v1alpha1.NodeSLO{}
	user.Name = "node-1"
	if err := json.Unmarshal([]byte(`{"cpuBurstStrategy": {"policy": "none"}}`), &user.Spec); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, user, client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	r := fresh(c)
	r.kind.Held = map[string][]ownership.Path{config.KeyBurst: {"/cpuBurstStrategy"}}
	const policy, percent = "/cpuBurstStrategy/policy", "/cpuBurstStrategy/cpuBurstPercent"
	r.kind.Rules = []ownership.Rule{{Fields: []ownership.Path{policy, percent}, Broken: func(have map[ownership.Path]any) string {
		if have[policy] == "none" && have[percent] != nil {
			return "a percentage of nothing"
		}
		return ""
	}}}
	parsed, _ := config.Parse(map[string]string{config.KeyBurst: `{"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 200, "sharePoolThresholdPercent": 40}}`}, nil)
	r.store.Set(parsed)
	for range 2 {
		if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: "node-1"}}); err != nil {
			t.Fatal(err)
		}
	}
	const want = "cpu-burst-config: cpuBurstStrategy.cpuBurstPercent: left out: a percentage of nothing beside fields of others: /cpuBurstStrategy/policy (kubectl)"
	if all := strings.Join(told, "\n"); strings.Count(all, want) != 1 {
		t.Errorf("%q\nwant once %q", all, want)
	}
	if n := testutil.ToFloat64(r.metrics.parsed.WithLabelValues("failed", whyYielded)); n != 2 {
		t.Errorf("counted %v times, want 2", n)
	}
	var o v1alpha1.NodeSLO
	if err := c.Get(ctx, types.NamespacedName{Name: "node-1"}, &o); err != nil || *o.Spec.CPUBurstStrategy.SharePoolThresholdPercent != 40 || o.Spec.CPUBurstStrategy.CPUBurstPercent != nil {
		t.Errorf("%v, %+v", err, o.Spec.CPUBurstStrategy)
	}
}
