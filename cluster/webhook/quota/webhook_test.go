// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quota

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/apitest"
	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
	"github.com/koord-rt/koord-rt/cluster/internal/rootquota"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

func answers(t testing.TB) *answer.Answers {
	t.Helper()
	a, err := answer.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// cached is a state over objects; list is called before each list.
func cached(t testing.TB, list func(client.ObjectList) error, objects ...client.Object) *state {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, sigsv1alpha1.AddToScheme, koordinatorv1alpha1.AddToScheme, quotav1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	own := make([]client.Object, len(objects)) // the fake writes to what it gets, and tests share objects
	for i, o := range objects {
		own[i] = o.DeepCopyObject().(client.Object)
	}
	return &state{cached: fake.NewClientBuilder().WithScheme(s).WithObjects(own...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			if list != nil {
				if err := list(l); err != nil {
					return err
				}
			}
			return c.List(ctx, l, o...)
		},
	}).Build()}
}

const parentText = `
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: company, namespace: ns, labels: {quota.scheduling.koordinator.sh/is-parent: "true", quota.scheduling.koordinator.sh/tree-id: t1}}
spec: {min: {cpu: 100}, max: {cpu: 200}}
`

const childText = `
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: web, namespace: ns, labels: {quota.scheduling.koordinator.sh/parent: company, quota.scheduling.koordinator.sh/tree-id: t1}}
spec: {min: {cpu: 60}, max: {cpu: 200}}
`

func request(t testing.TB, operation admissionv1.Operation, group, now, was string) admission.Request {
	t.Helper()
	raw := func(text string) runtime.RawExtension {
		if text == "" {
			return runtime.RawExtension{}
		}
		out, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: out}
	}
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Namespace: "ns", Resource: metav1.GroupVersionResource{Group: group}, Object: raw(now), OldObject: raw(was),
	}}
	if now == "" {
		now = was
	}
	var o struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal([]byte(now), &o); err != nil {
		t.Fatal(err)
	}
	req.Name = o.Metadata.Name
	return req
}

func TestHandle(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p", Labels: map[string]string{protocol.LabelQuotaName: "web"}}}
	big := strings.Replace(childText, "cpu: 60", "cpu: 160", 1)
	long := strings.Replace(childText, "cpu: 60", `cpu: "1e-99999999"`, 1) // stored before amounts had bounds
	noted := func(text string) string {                                    // an annotation that looks like a number nobody can wait for
		return strings.Replace(text, "namespace: ns", "namespace: ns, annotations: {note: '1e99999999'}", 1)
	}
	for name, c := range map[string]struct {
		operation admissionv1.Operation
		now, was  string
		objects   []client.Object
		want      string
	}{
		"a parent":                   {admissionv1.Create, parentText, "", nil, ""},
		"a child":                    {admissionv1.Create, childText, "", []client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, ""},
		"a child without its parent": {admissionv1.Create, childText, "", nil, "there is no quota company"},
		"a child that is too large":  {admissionv1.Create, big, "", []client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, "160 cpu together, it has 100"},
		"min above max":              {admissionv1.Create, strings.Replace(childText, "cpu: 60", "cpu: 260", 1), "", nil, "spec.min: cpu is 260"},
		"a label that says nothing":  {admissionv1.Create, strings.Replace(parentText, `"true"`, `"yes"`, 1), "", nil, "want true or false"},
		"grown": {
			admissionv1.Update, big, childText,
			[]client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText), apitest.Document[sigsv1alpha1.ElasticQuota](t, childText)}, "160 cpu",
		},
		"a parent with a child goes": {
			admissionv1.Delete, "", parentText,
			[]client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText), apitest.Document[sigsv1alpha1.ElasticQuota](t, childText)}, "children (web)",
		},
		"a child with a pod goes":    {admissionv1.Delete, "", childText, []client.Object{pod}, "pods (x/p)"},
		"a child without pods goes":  {admissionv1.Delete, "", childText, nil, ""},
		"an amount to wait for":      {admissionv1.Create, long, "", nil, `spec.min.cpu: "1e-99999999" has more digits`},
		"changed to one":             {admissionv1.Update, long, childText, []client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, "more digits"},
		"one corrected":              {admissionv1.Update, childText, long, []client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, ""},
		"one corrected, and grown":   {admissionv1.Update, big, long, []client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, "160 cpu"},
		"one with a pod goes":        {admissionv1.Delete, "", long, []client.Object{pod}, "pods (x/p)"},
		"one goes":                   {admissionv1.Delete, "", long, nil, ""},
		"a note, and too large":      {admissionv1.Create, noted(big), "", []client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, "160 cpu together, it has 100"},
		"a note, and a pod":          {admissionv1.Delete, "", noted(childText), []client.Object{pod}, "pods (x/p)"},
		"a note":                     {admissionv1.Create, noted(childText), "", []client.Object{apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, ""},
		"a child with a pod, parent": {admissionv1.Update, strings.Replace(childText, "labels: {", `labels: {quota.scheduling.koordinator.sh/is-parent: "true", `, 1), childText, []client.Object{pod, apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText)}, "has pods (x/p)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&validator{state: cached(t, nil, c.objects...), answers: answers(t)}).Handle(t.Context(), request(t, c.operation, Canonical, c.now, c.was))
			if got.Allowed != (c.want == "") || !strings.Contains(got.Result.Message, c.want) {
				t.Errorf("allowed %t: %s", got.Allowed, got.Result.Message)
			}
		})
	}
}

// TestOtherGroups: quotas of the documents are held to the same rules, and know the canonical group's.
func TestOtherGroups(t *testing.T) {
	t.Parallel()
	s := cached(t, nil, apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText),
		apitest.Document[quotav1alpha1.ElasticQuota](t, "metadata: {name: team, namespace: ns}\nspec: {min: {cpu: 1}, max: {cpu: 2}}"))
	got := (&validator{state: s, answers: answers(t)}).Handle(t.Context(),
		request(t, admissionv1.Create, "koordinator.sh", "metadata: {name: second}\nspec: {min: {cpu: 1}, max: {cpu: 2}}", ""))
	if got.Allowed || !strings.Contains(got.Result.Message, "namespace ns has the quota team of quota.koordinator.sh already") {
		t.Errorf("%+v", got.Result)
	}
}

// TestMutateRefuses: the answer to an amount that nobody can wait for is no answer to nothing.
func TestMutateRefuses(t *testing.T) {
	t.Parallel()
	got := (&mutator{state: cached(t, nil), answers: answers(t)}).Handle(t.Context(),
		request(t, admissionv1.Create, Canonical, `{metadata: {name: a}, spec: {max: {cpu: "1e-99999999"}}}`, ""))
	if got.Allowed || !strings.Contains(got.Result.Message, "spec.max.cpu") {
		t.Errorf("%+v", got)
	}
}

// TestSettles: a parent that the cache does not know yet when its child comes is waited for.
func TestSettles(t *testing.T) {
	t.Parallel()
	var s *state
	var looks atomic.Int32
	s = cached(t, func(client.ObjectList) error {
		if looks.Add(1) == 7 { // the third look begins: two looks saw nothing
			return s.cached.(client.Client).Create(t.Context(), apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText))
		}
		return nil
	})
	s.wait = time.Hour // the answer must not wait for that
	got := (&validator{state: s, answers: answers(t)}).Handle(t.Context(), request(t, admissionv1.Create, Canonical, childText, ""))
	if !got.Allowed || looks.Load() != 9 {
		t.Errorf("after %d lists: %+v", looks.Load(), got.Result)
	}
}

// TestFailsOpen: what goes wrong here passes with a warning.
func TestFailsOpen(t *testing.T) {
	t.Parallel()
	broken := cached(t, func(client.ObjectList) error { return errors.New("no cache") })
	panics := cached(t, func(client.ObjectList) error { panic("boom") })
	a := answers(t)
	for name, got := range map[string]admission.Response{
		"no cache":         (&validator{state: broken, answers: a}).Handle(t.Context(), request(t, admissionv1.Create, Canonical, childText, "")),
		"no cache, delete": (&validator{state: broken, answers: a}).Handle(t.Context(), request(t, admissionv1.Delete, Canonical, "", childText)),
		"no cache, parent": (&mutator{state: broken, answers: a}).Handle(t.Context(), request(t, admissionv1.Create, Canonical, "metadata: {name: a, labels: {quota.scheduling.koordinator.sh/parent: b}}", "")),
		"nonsense":         (&validator{state: broken, answers: a}).Handle(t.Context(), request(t, admissionv1.Create, Canonical, "spec: 3", "")),
		"profile":          (&profiler{answers: a}).Handle(t.Context(), request(t, admissionv1.Create, "", "spec: 3", "")),
		"panic":            a.Guard(validating, &validator{state: panics, answers: a}).Handle(t.Context(), request(t, admissionv1.Create, Canonical, childText, "")),
	} {
		if !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "let pass") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestMutate(t *testing.T) {
	t.Parallel()
	s := cached(t, nil, apitest.Document[sigsv1alpha1.ElasticQuota](t, parentText))
	const parent, id = protocol.LabelQuotaParent, protocol.LabelQuotaTreeID
	for name, c := range map[string]struct {
		labels string
		want   map[string]string
	}{
		"none":                 {"", map[string]string{parent: protocol.QuotaRoot}},
		"others":               {"{a: b}", map[string]string{"a": "b", parent: protocol.QuotaRoot}},
		"a parent with a tree": {"{" + parent + ": company}", map[string]string{parent: "company", id: "t1"}},
		"its own tree":         {"{" + parent + ": company, " + id + ": t2}", map[string]string{parent: "company", id: "t2"}},
		"no such parent":       {"{" + parent + ": nobody}", map[string]string{parent: "nobody"}},
		"the root":             {"{" + parent + ": " + protocol.QuotaRoot + "}", map[string]string{parent: protocol.QuotaRoot}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "metadata: {name: new, namespace: ns}\nspec: {max: {cpu: 200}}"
			if c.labels != "" {
				text = strings.Replace(text, "namespace: ns", "namespace: ns, labels: "+c.labels, 1)
			}
			req := request(t, admissionv1.Create, Canonical, text, "")
			got := (&mutator{state: s, answers: answers(t)}).Handle(t.Context(), req)
			if !got.Allowed || len(got.Warnings) > 0 {
				t.Fatalf("%+v", got)
			}
			after := req.Object.Raw
			if got.Patch != nil {
				p, err := jsonpatch.DecodePatch(got.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if after, err = p.Apply(after); err != nil {
					t.Fatal(err)
				}
			}
			q := apitest.Document[sigsv1alpha1.ElasticQuota](t, string(after))
			if len(q.Labels) != len(c.want) || q.Spec.Max.Cpu().Value() != 200 || len(q.Annotations) > 0 {
				t.Errorf("%+v", q)
			}
			for key, value := range c.want {
				if q.Labels[key] != value {
					t.Errorf("label %s is %q, want %q", key, q.Labels[key], value)
				}
			}
		})
	}
}

func TestCheckProfile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"right":            {`{quotaName: pool-root, quotaLabels: {a: b}, resourceRatio: "0.9", nodeSelector: {matchLabels: {pool: a}}}`, nil},
		"all nodes":        {`{quotaName: pool, nodeSelector: {}}`, nil},
		"no nodes":         {`{quotaName: pool}`, []string{"spec.nodeSelector: missing"}},
		"no name":          {`{quotaName: Pool_A, nodeSelector: {}}`, []string{"spec.quotaName"}},
		"the scheduler's":  {`{quotaName: koordinator-root-quota, nodeSelector: {}}`, []string{"scheduler's own"}},
		"labels":           {`{quotaName: a, quotaLabels: {"a b": x, c: "d e"}, nodeSelector: {}}`, []string{`"a b" is no key`, `"d e" is no value of the label c`}},
		"more than all":    {`{quotaName: a, resourceRatio: "1.1", nodeSelector: {}}`, []string{`spec.resourceRatio: "1.1"`}},
		"nothing of it":    {`{quotaName: a, resourceRatio: ".0", nodeSelector: {}}`, []string{`spec.resourceRatio: ".0"`}},
		"a wrong operator": {`{quotaName: a, nodeSelector: {matchExpressions: [{key: a, operator: Is}]}}`, []string{"spec.nodeSelector"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apitest.Document[quotav1alpha1.ElasticQuotaProfileSpec](t, c.spec)
			says(t, rootquota.Check(s), c.want...)
			got := (&profiler{answers: answers(t)}).Handle(t.Context(), request(t, admissionv1.Update, "", "spec: "+c.spec, "spec: "+c.spec))
			if !got.Allowed {
				t.Errorf("what was wrong before is refused again: %s", got.Result.Message)
			}
			got = (&profiler{answers: answers(t)}).Handle(t.Context(), request(t, admissionv1.Create, "", "spec: "+c.spec, ""))
			if got.Allowed != (c.want == nil) {
				t.Errorf("allowed %t", got.Allowed)
			}
		})
	}
}

// FuzzDecode: whatever a quota's text is, it is decoded or refused with an error; what is stored is known by its name even where its amounts
// have no bounds, and where both ways can read it they agree.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"web","labels":{"quota.scheduling.koordinator.sh/parent":"company"}},"spec":{"max":{"cpu":"1"},"min":{"cpu":"500m"}}}`,
		`{"metadata":{"name":"web"},"spec":{"max":{"cpu":"1e99999999"}}}`,
		`{"metadata":{"generateName":"web-"},"status":{"used":{"cpu":[]}}}`,
		`{"metadata":null,"spec":null}`, `[]`, `"`, ``,
	} {
		f.Add("stored", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: name, Namespace: "ns", OldObject: runtime.RawExtension{Raw: raw}}}
		q, problems, err := decode(req, raw)
		old, oldProblems, oldErr := decodeOld(req)
		if err == nil && (oldErr != nil || !reflect.DeepEqual(q, old) || !slices.Equal(problems, oldProblems)) {
			t.Errorf("as stored %+v (%v), want %+v", old, oldErr, q)
		}
		if err != nil && oldErr == nil && !errors.Is(err, quantity.ErrNumber) {
			t.Errorf("what is refused with %v is decoded where it is stored", err)
		}
		if oldErr != nil {
			return
		}
		if old.Namespace != "ns" || name != "" && old.Name != name {
			t.Errorf("it is %s/%s, want ns/%s", old.Namespace, old.Name, name)
		}
		tree := NewTree(append(company(), old), false)
		_ = CheckSelf(&old)
		_ = tree.CheckNew(&old)
	})
}
