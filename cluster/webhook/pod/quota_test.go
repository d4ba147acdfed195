// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	schedulingsigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// counted is a pod of two CPUs.
func counted(labels, scheduler string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team, labels: {" + labels + "}}, spec: {schedulerName: " + scheduler +
		`, containers: [{name: c, resources: {requests: {cpu: "2"}}}]}}`
}

const quotaLabel = "quota.scheduling.koordinator.sh/name: "

// TestQuotas: pods are held to the cap of their quota, of any group, and to what a cache knows of it.
func TestQuotas(t *testing.T) {
	t.Parallel()
	small := func(metadata string) *schedulingsigsv1alpha1.ElasticQuota {
		return object(t, "{metadata: {name: q, namespace: x, "+metadata+"}, spec: {max: {cpu: 1}}}", &schedulingsigsv1alpha1.ElasticQuota{})
	}
	parent := small(`labels: {quota.scheduling.koordinator.sh/is-parent: "true"}`)
	documents := &koordinatorv1alpha1.ElasticQuota{ObjectMeta: *small("").ObjectMeta.DeepCopy(), Spec: small("").Spec}
	documents.Namespace = team
	projected := small("labels: {koord-rt.dev/projected-from: quota.koordinator.sh}")
	projected.Namespace = team
	hard := object(t, "{metadata: {name: q, namespace: team}, spec: {max: {cpu: 4}, hard: {cpu: 1}}}", &quotav1alpha1.ElasticQuota{})
	const cap1 = "requests.cpu: 2 in all, above the 1 of spec.max of quota "
	for name, c := range map[string]struct {
		pod, old string
		quota    client.Object
		rules    profile.QuotaRules
		resize   bool
		want     string
		warning  string
	}{
		"by label":                          {pod: counted(quotaLabel+"q", "default-scheduler"), quota: small(""), want: cap1 + "x/q"},
		"a quota that is not there":         {pod: counted(quotaLabel+"r", "k"), quota: small(""), warning: "there is no quota r, or it is not known yet"},
		"by the annotation":                 {pod: counted("", "k"), quota: small(`annotations: {quota.scheduling.koordinator.sh/namespaces: '["team"]'}`), want: cap1 + "x/q"},
		"the documents'":                    {pod: counted("", "k"), quota: documents, want: cap1 + "team/q"},
		"one that was made from it":         {pod: counted("", "k"), quota: projected, want: cap1 + "team/q"},
		"hard":                              {pod: counted("", "k"), quota: hard, want: "above the 1 of spec.hard of quota team/q"},
		"the stock scheduler's":             {pod: counted("", "default-scheduler"), quota: hard},
		"another namespace's":               {pod: counted("", "k"), quota: small("")},
		"a parent":                          {pod: counted(quotaLabel+"q", "k"), quota: parent, want: "quota x/q is a parent"},
		"a parent that may":                 {pod: counted(quotaLabel+"q", "k"), quota: parent, rules: profile.QuotaRules{Parents: true}, want: cap1},
		"a mirror":                          {pod: strings.Replace(counted(quotaLabel+"q", "k"), "labels", "annotations: {kubernetes.io/config.mirror: x}, labels", 1), quota: parent},
		"a pod that is there joins":         {pod: counted(quotaLabel+"q", "k"), old: counted("", "k"), quota: small("")},
		"a pod that is there joins parents": {pod: counted(quotaLabel+"q", "k"), old: counted("", "k"), quota: parent, want: "is a parent"},
		"a pod grows above it":              {pod: counted(quotaLabel+"q", "k"), old: strings.Replace(counted(quotaLabel+"q", "k"), `"2"`, "500m", 1), quota: small(""), resize: true, want: cap1},
		"a pod above it stays":              {pod: counted(quotaLabel+"q", "k"), old: counted(quotaLabel+"q", "k"), quota: small(""), resize: true},
		"a pod of a parent changes":         {pod: counted("a: b, "+quotaLabel+"q", "k"), old: counted(quotaLabel+"q", "k"), quota: parent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Options{Quota: c.rules}, c.quota)
			req := creation(document(t, c.pod))
			if c.old != "" {
				req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: document(t, c.old)}
			}
			if c.resize {
				req.SubResource = "resize"
			}
			resp := w.validator.Handle(w.ctx, req)
			if resp.Allowed != (c.want == "") || !strings.Contains(resp.Result.Message, c.want) || (len(resp.Warnings) > 0) != (c.warning != "") ||
				!strings.Contains(strings.Join(resp.Warnings, " "), c.warning) {
				t.Errorf("allowed %v, %q, want %q; warnings %q", resp.Allowed, resp.Result.Message, c.want, resp.Warnings)
			}
		})
	}
}

// TestQuotasSettle: a quota that has just been raised is waited for; one that cannot be read refuses nobody.
func TestQuotasSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	looks, max := 0, "1"
	var fails error
	w.validator.cached = fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
			if list, ok := l.(*schedulingsigsv1alpha1.ElasticQuotaList); ok {
				if looks++; looks == 3 {
					max = "2"
				}
				list.Items = []schedulingsigsv1alpha1.ElasticQuota{*object(t, "{metadata: {name: q}, spec: {max: {cpu: "+max+"}}}", &schedulingsigsv1alpha1.ElasticQuota{})}
			}
			return fails
		},
	}).Build()
	w.validator.wait = time.Hour
	req := creation(document(t, counted(quotaLabel+"q", "k")))
	if resp := w.validator.Handle(w.ctx, req); !resp.Allowed || looks != 3 {
		t.Errorf("after %d looks: %+v", looks, resp.Result)
	}
	fails = errors.New("no cache")
	if resp := w.validator.Handle(w.ctx, req); !resp.Allowed || len(resp.Warnings) != 1 {
		t.Errorf("%+v", resp)
	}
}

// TestTrees: a pod is held to the nodes of its quota's tree, whatever nodes it asks for, and a second call changes nothing.
func TestTrees(t *testing.T) {
	t.Parallel()
	quota := object(t, "{metadata: {name: q, namespace: x, labels: {quota.scheduling.koordinator.sh/tree-id: t}}}", &schedulingsigsv1alpha1.ElasticQuota{})
	pool := func(name string) *quotav1alpha1.ElasticQuotaProfile {
		return object(t, "{metadata: {name: "+name+", labels: {quota.scheduling.koordinator.sh/tree-id: t}}, spec: {quotaName: q, nodeSelector: {matchLabels: {pool: "+name+"}}}}",
			&quotav1alpha1.ElasticQuotaProfile{})
	}
	labelled := pool("b")
	labelled.Spec.QuotaLabels, labelled.Labels = labelled.Labels, nil
	asking := strings.Replace(counted(quotaLabel+"q", "k"), "spec: {", `spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
		{matchExpressions: [{key: zone, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [node1]}]}, {}]}}}, `, 1)
	const one = `{matchExpressions: [{key: pool, operator: In, values: [a]}]}`
	for name, c := range map[string]struct {
		pod      string
		off      bool
		profiles []client.Object
		want     string
	}{
		"one profile":   {counted(quotaLabel+"q", "k"), false, []client.Object{pool("a")}, "[" + one + "]"},
		"two":           {counted(quotaLabel+"q", "k"), false, []client.Object{pool("a"), labelled}, "[" + one + ", {matchExpressions: [{key: pool, operator: In, values: [b]}]}]"},
		"none":          {counted(quotaLabel+"q", "k"), false, nil, "[]"},
		"no quota":      {counted("", "k"), false, []client.Object{pool("a")}, "[]"},
		"gate off":      {counted(quotaLabel+"q", "k"), true, []client.Object{pool("a")}, "[]"},
		"terms already": {asking, false, []client.Object{pool("a")}, `[{matchExpressions: [{key: zone, operator: Exists}, {key: pool, operator: In, values: [a]}]}, {matchFields: [{key: metadata.name, operator: In, values: [node1]}], matchExpressions: [{key: pool, operator: In, values: [a]}]}, {}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Options{Trees: !c.off}, append(c.profiles, quota.DeepCopy())...)
			p, raw, resp := w.create(t, c.pod)
			var got, want []corev1.NodeSelectorTerm
			if err := yaml.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if a := p.Spec.Affinity; a != nil {
				got = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			}
			if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) || len(resp.Warnings) > 0 {
				t.Errorf("%+v, want %+v; warnings %q", got, want, resp.Warnings)
			}
			if resp := w.mutator.Handle(w.ctx, creation(raw)); len(resp.Patches) > 0 {
				t.Errorf("again: %v", resp.Patches)
			}
		})
	}
}
