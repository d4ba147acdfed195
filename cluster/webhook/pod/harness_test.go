// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	"github.com/koord-rt/koord-rt/api/protocol"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	schedulingsigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

const team = "team"

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, configv1alpha1.AddToScheme, schedulingv1alpha1.AddToScheme, schedulingsigsv1alpha1.AddToScheme,
		koordinatorv1alpha1.AddToScheme, quotav1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// world is a mutator and a validator over objects, and what they logged.
type world struct {
	*mutator
	*validator
	log bytes.Buffer
	ctx context.Context
}

func newWorld(t testing.TB, o Options, objects ...client.Object) *world {
	t.Helper()
	s := scheme(t)
	answers, err := answer.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	own := make([]client.Object, len(objects)) // the fake writes to what it gets, and worlds share objects
	for i, o := range objects {
		own[i] = o.DeepCopyObject().(client.Object)
	}
	reader := fake.NewClientBuilder().WithScheme(s).WithObjects(own...).Build()
	shared := cluster{cached: reader, live: reader}
	decoder := admission.NewDecoder(s)
	w := &world{
		mutator:   &mutator{cluster: shared, name: mutating, decoder: decoder, options: o, answers: answers},
		validator: &validator{cluster: shared, decoder: decoder, options: o, limits: protocol.DefaultPodLimits(), answers: answers},
	}
	w.ctx = logf.IntoContext(context.Background(), funcr.New(func(prefix, args string) { w.log.WriteString(prefix + args + "\n") }, funcr.Options{Verbosity: 10}))
	return w
}

// failedOpen is how often something went wrong on our side, of all reasons.
func (w *world) failedOpen(reason string) float64 {
	return testutil.ToFloat64(w.mutator.answers.FailedOpen(mutating, reason))
}

func document(t testing.TB, v any) []byte {
	t.Helper()
	if text, ok := v.(string); ok {
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func creation(raw []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: types.UID("a1b2"), Operation: admissionv1.Create, Namespace: team, Object: runtime.RawExtension{Raw: raw},
		UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:replicaset-controller"},
	}}
}

// create sends a pod (YAML or an object) through the mutating webhook and returns what the API server would go on with.
func (w *world) create(t testing.TB, pod any) (*corev1.Pod, []byte, admission.Response) {
	t.Helper()
	raw := document(t, pod)
	resp := w.mutator.Handle(w.ctx, creation(raw))
	if !resp.Allowed {
		t.Fatalf("refused: %v", resp.Result)
	}
	raw = answered(t, raw, resp)
	var out corev1.Pod
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return &out, raw, resp
}

// answered is what an answer makes of a document.
func answered(t testing.TB, raw []byte, resp admission.Response) []byte {
	t.Helper()
	if len(resp.Patches) == 0 {
		return raw
	}
	text, err := json.Marshal(resp.Patches)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = patch.Apply(raw); err != nil {
		t.Fatalf("apply %s: %v", text, err)
	}
	return raw
}

func object[T client.Object](t testing.TB, text string, into T) T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
	return into
}

func colocation(t testing.TB, text string) *configv1alpha1.ClusterColocationProfile {
	t.Helper()
	return object(t, text, &configv1alpha1.ClusterColocationProfile{})
}

func priorityClass(name string, value int32) *schedulingv1.PriorityClass {
	policy := corev1.PreemptLowerPriority
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: &policy}
}

func namespace(labels, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team, Labels: labels, Annotations: annotations}}
}
