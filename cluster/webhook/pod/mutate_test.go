// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// The example of upstream's manual (user-manuals/colocation-profile).
const (
	manualProfile = `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: colocation-profile-example
spec:
  namespaceSelector:
    matchLabels:
      koordinator.sh/enable-colocation: "true"
  selector:
    matchLabels:
      koordinator.sh/enable-colocation: "true"
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 1000
  schedulerName: koord-scheduler
  labels:
    koordinator.sh/mutated: "true"
  annotations:
    koordinator.sh/intercepted: "true"
  patch:
    spec:
      terminationGracePeriodSeconds: 30
`
	manualPod = `
apiVersion: v1
kind: Pod
metadata:
  labels:
    koordinator.sh/enable-colocation: "true"
  name: test-pod
  namespace: team
spec:
  priority: 0
  schedulerName: default-scheduler
  containers:
  - name: app
    image: nginx:1.15.1
    env:
    - name: PASSWORD
      value: correct-horse-battery-staple
    resources:
      limits:
        cpu: "1"
        memory: "3456Mi"
      requests:
        cpu: "1"
        memory: "3456Mi"
`
)

func enabled() map[string]string {
	return map[string]string{"koordinator.sh/enable-colocation": "true"}
}

func TestUpstreamsManual(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, colocation(t, manualProfile), priorityClass("koord-batch", 5000), namespace(enabled(), nil))
	p, raw, resp := w.create(t, manualPod)
	wantLabels := map[string]string{
		"koordinator.sh/enable-colocation": "true", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1000", "koordinator.sh/mutated": "true",
	}
	wantAnnotations := map[string]string{
		"koordinator.sh/intercepted": "true", protocol.AnnotationProfiles: "colocation-profile-example",
		protocol.AnnotationExtendedResource: `{"containers":{"app":{"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"3623878656"},` +
			`"requests":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"3623878656"}}}}`,
	}
	if diff := cmp.Diff(wantLabels, p.Labels) + cmp.Diff(wantAnnotations, p.Annotations); diff != "" {
		t.Error(diff)
	}
	want := corev1.ResourceList{"kubernetes.io/batch-cpu": resource.MustParse("1000"), "kubernetes.io/batch-memory": resource.MustParse("3456Mi")}
	got := p.Spec.Containers[0].Resources
	if !equality.Semantic.DeepEqual(got.Requests, want) || !equality.Semantic.DeepEqual(got.Limits, want) {
		t.Errorf("resources %v", got)
	}
	if *p.Spec.Priority != 5000 || p.Spec.PriorityClassName != "koord-batch" || *p.Spec.PreemptionPolicy != corev1.PreemptLowerPriority ||
		p.Spec.SchedulerName != "koord-scheduler" || *p.Spec.TerminationGracePeriodSeconds != 30 || p.Spec.Containers[0].Env[0].Value == "" {
		t.Errorf("spec %+v", p.Spec)
	}
	if len(resp.Warnings) > 0 {
		t.Errorf("warnings %v", resp.Warnings)
	}
	if verdict := w.validator.Handle(w.ctx, creation(raw)); !verdict.Allowed {
		t.Errorf("our own validation refuses it: %s", verdict.Result.Message)
	}
	again, _, resp := w.create(t, p)
	if len(resp.Patches) > 0 {
		t.Errorf("the second time changes it again: %v", resp.Patches)
	}
	if !equality.Semantic.DeepEqual(p, again) {
		t.Error(cmp.Diff(p, again))
	}
}

// TestSeedPods sends the pods of the user's documents through admission with our scheduler installed.
func TestSeedPods(t *testing.T) {
	t.Parallel()
	const m2 = `
apiVersion: v1
kind: Pod
metadata: {name: high-priority-pod}
spec:
  priorityClassName: high-priority
  priority: 100000
  containers: [{name: app, image: busybox, command: ["sleep", "3600"]}]
`
	const m16 = `
apiVersion: v1
kind: Pod
metadata: {name: nginx, labels: {env: test, koordinator.sh/priority: "5300"}}
spec:
  containers: [{name: nginx, image: nginx, imagePullPolicy: IfNotPresent}]
  priorityClassName: koord-batch
  priority: 5000
  schedulerName: default-scheduler
`
	w := newWorld(t, Options{SchedulerName: "koord-scheduler"}, namespace(nil, nil))
	_, _, resp := w.create(t, m2)
	if len(resp.Patches) > 0 || len(resp.Warnings) > 0 {
		t.Errorf("M2 is touched: %v %v", resp.Patches, resp.Warnings)
	}
	p, raw, _ := w.create(t, m16)
	if p.Spec.SchedulerName != "koord-scheduler" || p.Annotations[protocol.AnnotationSchedulerReason] != "priority class koord-batch" {
		t.Errorf("M16: scheduler %s, annotations %v", p.Spec.SchedulerName, p.Annotations)
	}
	if verdict := w.validator.Handle(w.ctx, creation(raw)); !verdict.Allowed {
		t.Errorf("M16 is refused: %s", verdict.Result.Message)
	}
	none := newWorld(t, Options{}, namespace(nil, nil))
	if p, _, _ := none.create(t, m16); p.Spec.SchedulerName != "default-scheduler" {
		t.Errorf("without a scheduler of ours, M16 goes to %s and stays Pending", p.Spec.SchedulerName)
	}
}

// TestSidecarsAndOthers: what the API server and other webhooks bring comes out as it should.
func TestSidecarsAndOthers(t *testing.T) {
	t.Parallel()
	everything := `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: all}
spec: {qosClass: BE, priorityClassName: koord-batch}
`
	w := newWorld(t, Options{}, colocation(t, everything), priorityClass("koord-batch", 5000))
	p, _, resp := w.create(t, `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team}
spec:
  fieldOfTomorrow: {keep: me}
  overhead: {cpu: 250m}
  resources: {requests: {hugepages-2Mi: 4Mi}}
  initContainers:
  - {name: side, image: i, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  - {name: init, image: i, resources: {requests: {memory: 1Gi}}}
  containers:
  - {name: app, image: i, resources: {requests: {cpu: "2", nvidia.com/gpu: "1"}, limits: {nvidia.com/gpu: "1"}}}
  - {name: bare, image: i}
`)
	get := func(list corev1.ResourceList, name corev1.ResourceName) string { q := list[name]; return q.String() }
	for what, c := range map[string][2]string{
		"sidecar":  {get(p.Spec.InitContainers[0].Resources.Requests, "kubernetes.io/batch-cpu"), "100"},
		"init":     {get(p.Spec.InitContainers[1].Resources.Requests, "kubernetes.io/batch-memory"), "1Gi"},
		"app":      {get(p.Spec.Containers[0].Resources.Requests, "kubernetes.io/batch-cpu"), "2k"},
		"cpu":      {get(p.Spec.Containers[0].Resources.Requests, "cpu"), "0"},
		"device":   {get(p.Spec.Containers[0].Resources.Limits, "nvidia.com/gpu"), "1"},
		"overhead": {get(p.Spec.Overhead, "cpu"), "250m"},
		"pages":    {get(p.Spec.Resources.Requests, "hugepages-2Mi"), "4Mi"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s, want %s", what, c[0], c[1])
		}
	}
	for _, patch := range resp.Patches {
		if strings.Contains(patch.Path, "fieldOfTomorrow") {
			t.Errorf("a field that we do not know is changed: %v", patch)
		}
	}
	if !strings.Contains(p.Annotations[protocol.AnnotationExtendedResource], `"side"`) {
		t.Errorf("extended-resource-spec %s", p.Annotations[protocol.AnnotationExtendedResource])
	}
}

func TestOptOut(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"labels", "annotations"} {
		w := newWorld(t, Options{}, colocation(t, manualProfile), priorityClass("koord-batch", 5000), namespace(enabled(), nil))
		text := strings.Replace(manualPod, "  name: test-pod\n", "  name: test-pod\n  annotations: {a: b}\n", 1)
		if where == "labels" {
			text = strings.Replace(text, "  labels:\n", "  labels:\n    koord-rt.dev/opt-out: \"true\"\n", 1)
		} else {
			text = strings.Replace(text, "{a: b}", `{koord-rt.dev/opt-out: "true"}`, 1)
		}
		if _, _, resp := w.create(t, text); len(resp.Patches) > 0 {
			t.Errorf("%s: %v", where, resp.Patches)
		}
	}
}

// TestWhatCannotBeDone: the pod passes, what can be done is done, nothing is done by half, and somebody is told.
func TestWhatCannotBeDone(t *testing.T) {
	t.Parallel()
	replaced := func(old, now string) string { return strings.Replace(manualProfile, old, now, 1) }
	other := `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: other}
spec: {labels: {other: applied}}
`
	for name, c := range map[string]struct {
		profile string
		classes []client.Object
		reason  string
		warning string
	}{
		"no PriorityClass":            {manualProfile, nil, "profile", `there is no PriorityClass "koord-batch"`},
		"patch of another kind":       {replaced("terminationGracePeriodSeconds: 30", "containers: none"), []client.Object{priorityClass("koord-batch", 5000)}, "profile", "patch: "},
		"patch of another type":       {replaced("terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: soon"), []client.Object{priorityClass("koord-batch", 5000)}, "profile", "patch: field spec.terminationGracePeriodSeconds cannot be a JSON string"},
		"patch that takes minutes":    {replaced("terminationGracePeriodSeconds: 30", `overhead: {cpu: "1e-99999999"}`), []client.Object{priorityClass("koord-batch", 5000)}, "profile", `patch: spec.overhead.cpu: "1e-99999999" has more digits`},
		"patch that hides such":       {replaced("terminationGracePeriodSeconds: 30", `$deleteFromPrimitiveList/containers: [{name: main, resources: {requests: {cpu: "1e-99999999"}}}]`), []client.Object{priorityClass("koord-batch", 5000)}, "profile", `resources.requests.cpu: "1e-99999999" has more digits`},
		"patch without containers":    {replaced("terminationGracePeriodSeconds: 30", "containers: null"), []client.Object{priorityClass("koord-batch", 5000)}, "profile", "must leave the pod a container"},
		"patch that moves the pod":    {replaced("    spec:\n", "    metadata: {namespace: kube-system}\n    spec:\n"), []client.Object{priorityClass("koord-batch", 5000)}, "profile", "must not change the pod's name or namespace"},
		"selector that means nothing": {replaced("  selector:\n    matchLabels:\n      koordinator.sh/enable-colocation: \"true\"\n", "  selector:\n    matchExpressions: [{key: a, operator: Is}]\n"), []client.Object{priorityClass("koord-batch", 5000)}, "broken-profile", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := append([]client.Object{colocation(t, c.profile), colocation(t, other), namespace(enabled(), nil)}, c.classes...)
			w := newWorld(t, Options{}, objects...)
			p, _, resp := w.create(t, manualPod)
			want := maps.Clone(enabled())
			want["other"] = "applied"
			if diff := cmp.Diff(want, p.Labels); diff != "" {
				t.Errorf("labels: %s", diff)
			}
			if p.Spec.PriorityClassName != "" || p.Annotations["koordinator.sh/intercepted"] != "" || p.Annotations[protocol.AnnotationProfiles] != "other" {
				t.Errorf("half a profile: class %q, annotations %v", p.Spec.PriorityClassName, p.Annotations)
			}
			if text := strings.Join(resp.Warnings, "\n"); !strings.Contains(text, c.warning) || c.warning == "" && text != "" {
				t.Errorf("warnings %q, want %q", text, c.warning)
			}
			if w.failedOpen(c.reason) != 1 {
				t.Errorf("counted %v times as %s", w.failedOpen(c.reason), c.reason)
			}
			if !strings.Contains(w.log.String(), "profile") {
				t.Errorf("log %q", w.log.String())
			}
			for _, text := range append(resp.Warnings, w.log.String()) {
				if strings.Contains(text, "battery-staple") {
					t.Errorf("a secret is told: %s", text)
				}
			}
		})
	}
}

// TestReadsThatFail: the pod passes unchanged.
func TestReadsThatFail(t *testing.T) {
	t.Parallel()
	bad := errors.New("the API server is away")
	for name, c := range map[string]struct {
		get    func(client.Object) error
		list   error
		reason string
	}{
		"profiles":      {nil, bad, "profiles"},
		"namespace":     {func(o client.Object) error { return only[*corev1.Namespace](o, bad) }, nil, "namespace"},
		"PriorityClass": {func(o client.Object) error { return only[*schedulingv1.PriorityClass](o, bad) }, nil, "profile"},
	} {
		w := newWorld(t, Options{})
		reader := fake.NewClientBuilder().WithScheme(scheme(t)).
			WithObjects(colocation(t, manualProfile), priorityClass("koord-batch", 5000), namespace(enabled(), nil)).
			WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if c.get != nil {
						if err := c.get(o); err != nil {
							return err
						}
					}
					return under.Get(ctx, key, o, opts...)
				},
				List: func(ctx context.Context, under client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
					if c.list != nil {
						return c.list
					}
					return under.List(ctx, o, opts...)
				},
			}).Build()
		w.mutator.cached, w.mutator.live = reader, reader
		p, _, resp := w.create(t, manualPod)
		if len(resp.Patches) > 0 || len(resp.Warnings) != 1 || w.failedOpen(c.reason) != 1 {
			t.Errorf("%s: %v, warnings %v, counted %v; pod %v", name, resp.Patches, resp.Warnings, w.failedOpen(c.reason), p.Labels)
		}
	}
}

// only is err for objects of one type.
func only[T client.Object](o client.Object, err error) error {
	if _, ok := o.(T); ok {
		return err
	}
	return nil
}

// TestNamespaceThatIsNew: the cache has not seen it yet, the API server has.
func TestNamespaceThatIsNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, colocation(t, manualProfile), priorityClass("koord-batch", 5000))
	w.mutator.live = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(namespace(enabled(), nil)).Build()
	if p, _, resp := w.create(t, manualPod); p.Labels[protocol.LabelQoSClass] != "BE" {
		t.Errorf("the profile is not applied: %v, %v", p.Labels, resp.Warnings)
	}
}

func TestPanicPasses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	guarded := w.mutator.answers.Guard(mutating, admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		panic(fmt.Sprintf("value %s", "correct-horse-battery-staple"))
	}))
	resp := guarded.Handle(w.ctx, creation([]byte(`{}`)))
	if !resp.Allowed || len(resp.Warnings) != 1 || w.failedOpen("panic") != 1 {
		t.Errorf("%+v, counted %v", resp, w.failedOpen("panic"))
	}
	if text := w.log.String(); !strings.Contains(text, "panicked") || strings.Contains(text, "battery-staple") {
		t.Errorf("log %q", text)
	}
}

func TestOnlyCreationIsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, colocation(t, manualProfile), priorityClass("koord-batch", 5000), namespace(enabled(), nil))
	req := creation(document(t, manualPod))
	req.SubResource = "eviction"
	if resp := w.mutator.Handle(w.ctx, req); !resp.Allowed || len(resp.Patches) > 0 {
		t.Errorf("eviction: %+v", resp)
	}
	req = creation([]byte(`{"kind":"Pod","apiVersion":"v1","spec":7}`))
	if resp := w.mutator.Handle(w.ctx, req); !resp.Allowed || len(resp.Warnings) != 1 {
		t.Errorf("no pod: %+v", resp)
	}
}
