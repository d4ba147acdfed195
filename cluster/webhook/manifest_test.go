// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	accessor "k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/cluster/webhook"
	"github.com/koord-rt/koord-rt/cluster/webhook/configmap"
	"github.com/koord-rt/koord-rt/cluster/webhook/pod"
)

// manifest is packaging/manifests/webhook.yaml.
type manifest struct {
	service    corev1.Service
	mutating   admissionregistrationv1.MutatingWebhookConfiguration
	validating admissionregistrationv1.ValidatingWebhookConfiguration
}

func readManifest(t *testing.T) (m manifest) {
	t.Helper()
	raw, err := os.ReadFile("../../packaging/manifests/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			for i := range m.validating.Webhooks { // the API server's default; without, nothing is selected
				if w := &m.validating.Webhooks[i]; w.ObjectSelector == nil {
					w.ObjectSelector = &metav1.LabelSelector{}
				}
			}
			return m
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(text, &kind); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{
			"Service": &m.service, "MutatingWebhookConfiguration": &m.mutating, "ValidatingWebhookConfiguration": &m.validating,
		}[kind.Kind]
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Fatalf("%s: %v", kind.Kind, err)
		}
	}
}

// TestManifestNamesWhatTheCodeServes: names, paths and port are the program's, and absence stops nobody.
func TestManifestNamesWhatTheCodeServes(t *testing.T) {
	t.Parallel()
	m := readManifest(t)
	o := webhook.Default("koordinator-system", "koordinator-system", "slo-controller-config", prometheus.NewRegistry())
	if m.mutating.Name != o.Certs.Mutating || m.validating.Name != o.Certs.Validating || m.service.Name != o.Certs.Service ||
		m.service.Namespace != o.Certs.Namespace || m.service.Spec.Ports[0].TargetPort.IntValue() != o.Port {
		t.Errorf("%s, %s, %s/%s, port %v", m.mutating.Name, m.validating.Name, m.service.Namespace, m.service.Name, m.service.Spec.Ports)
	}
	paths := map[string]int{pod.MutatePath: 0, pod.ValidatePath: 0, configmap.Path: 0}
	for _, w := range accessors(m) {
		var config admissionregistrationv1.WebhookClientConfig
		if hook, ok := w.GetMutatingWebhook(); ok {
			config = hook.ClientConfig
		} else if hook, ok := w.GetValidatingWebhook(); ok {
			config = hook.ClientConfig
		}
		service := config.Service
		if service.Name != m.service.Name || service.Namespace != m.service.Namespace || *service.Port != m.service.Spec.Ports[0].Port {
			t.Errorf("%s calls %+v", w.GetName(), service)
		}
		if _, ok := paths[*service.Path]; !ok {
			t.Errorf("%s calls %s, which nobody serves", w.GetName(), *service.Path)
		}
		paths[*service.Path]++
		if *w.GetFailurePolicy() != admissionregistrationv1.Ignore || *w.GetTimeoutSeconds() > 3 ||
			*w.GetSideEffects() != admissionregistrationv1.SideEffectClassNone || config.CABundle != nil {
			t.Errorf("%s: failure policy %s, %d s, side effects %s", w.GetName(), *w.GetFailurePolicy(), *w.GetTimeoutSeconds(), *w.GetSideEffects())
		}
	}
	for path, n := range paths {
		if n == 0 {
			t.Errorf("nobody calls %s", path)
		}
	}
}

func accessors(m manifest) (out []accessor.WebhookAccessor) {
	for i := range m.mutating.Webhooks {
		out = append(out, accessor.NewMutatingWebhookAccessor("u", m.mutating.Name, &m.mutating.Webhooks[i]))
	}
	for i := range m.validating.Webhooks {
		out = append(out, accessor.NewValidatingWebhookAccessor("u", m.validating.Name, &m.validating.Webhooks[i]))
	}
	return out
}

// call is a request to an API server.
type call struct {
	namespace       string
	namespaceLabels map[string]string
	now, old        runtime.Object
	subresource     string
}

// called are the webhooks that the API server's own code would call, by its rules, selectors and compiled conditions.
func called(t *testing.T, m manifest, compiler celplugin.ConditionCompiler, c call) (names []string) {
	t.Helper()
	operation, plural := admission.Create, "pods"
	if c.old != nil {
		operation = admission.Update
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	if _, ok := c.now.(*corev1.ConfigMap); ok {
		kind, plural = corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"
	}
	object, err := metav1Object(c.now)
	if err != nil {
		t.Fatal(err)
	}
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(c.now, c.old, kind, c.namespace, object.GetName(),
			corev1.SchemeGroupVersion.WithResource(plural), c.subresource, operation, nil, false, &user.DefaultInfo{Name: "u"}),
		VersionedObject: c.now, VersionedOldObject: c.old, VersionedKind: kind,
	}
	full := plural
	if c.subresource != "" {
		full += "/" + c.subresource
	}
	namespaceLabels := labels.Set{"kubernetes.io/metadata.name": c.namespace}
	for key, value := range c.namespaceLabels {
		namespaceLabels[key] = value
	}
	for _, w := range accessors(m) {
		ruled := slices.ContainsFunc(w.GetRules(), func(r admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(r.Operations, admissionregistrationv1.OperationType(operation)) && slices.Contains(r.Resources, full)
		})
		byNamespace, err := w.GetParsedNamespaceSelector()
		if err != nil {
			t.Fatalf("%s: %v", w.GetName(), err)
		}
		byObject, err := w.GetParsedObjectSelector()
		if err != nil {
			t.Fatalf("%s: %v", w.GetName(), err)
		}
		if !ruled || !byNamespace.Matches(namespaceLabels) || !byObject.Matches(labels.Set(object.GetLabels())) {
			continue
		}
		result := w.GetCompiledMatcher(compiler).Match(context.Background(), attributes, nil, nil)
		if result.Error != nil {
			t.Errorf("%s: %v", w.GetName(), result.Error)
		}
		if result.Matches {
			names = append(names, w.GetName())
		}
	}
	return names
}

func metav1Object(o runtime.Object) (metav1.Object, error) {
	if out, ok := o.(metav1.Object); ok {
		return out, nil
	}
	return nil, errors.New("no metadata")
}

// TestWhoIsCalled evaluates the manifest with the API server's code, as of the oldest version that we promise and of today.
func TestWhoIsCalled(t *testing.T) {
	t.Parallel()
	p := func(labels, annotations map[string]string, requests ...corev1.ResourceName) *corev1.Pod {
		out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels, Annotations: annotations}}
		out.Spec.Containers = []corev1.Container{{Name: "c"}}
		for _, name := range requests {
			if out.Spec.Containers[0].Resources.Requests == nil {
				out.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
			}
			out.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
		}
		return out
	}
	type set = map[string]string
	const change, check, update, resize, config = "mpod-create.koordinator.sh", "vpod-create.koordinator.sh", "vpod-update.koordinator.sh",
		"vpod-resize.koordinator.sh", "vconfigmap.koordinator.sh"
	finalized := p(set{"app": "a"}, nil)
	finalized.Finalizers = []string{"x"}
	initBatch := p(nil, nil)
	initBatch.Spec.InitContainers = []corev1.Container{p(nil, nil, "kubernetes.io/batch-memory").Spec.Containers[0]}
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for what, c := range map[string]struct {
		call
		want []string
	}{
		"plain pod":                   {call{namespace: "team", now: p(nil, nil, "cpu")}, []string{change}},
		"one of kube-system":          {call{namespace: "kube-system", now: p(set{"koordinator.sh/qosClass": "BE"}, nil)}, nil},
		"one of our own":              {call{namespace: "koordinator-system", now: p(nil, nil)}, nil},
		"pod with a class":            {call{namespace: "team", now: p(set{"koordinator.sh/qosClass": "BE"}, nil)}, []string{change, check}},
		"pod with a placement":        {call{namespace: "team", now: p(nil, set{"scheduling.koordinator.sh/resource-status": "{}"})}, []string{change, check}},
		"pod with batch resources":    {call{namespace: "team", now: p(nil, nil, "kubernetes.io/batch-cpu")}, []string{change, check}},
		"init with batch resources":   {call{namespace: "team", now: initBatch}, []string{change, check}},
		"pod with a device":           {call{namespace: "team", now: p(nil, nil, "koordinator.sh/gpu")}, []string{change, check}},
		"opted out pod":               {call{namespace: "team", now: p(set{"koord-rt.dev/opt-out": "true"}, nil)}, nil},
		"opted out of one feature":    {call{namespace: "team", now: p(set{"koord-rt.dev/opt-out": "llc"}, nil)}, []string{change}},
		"opted out, with a placement": {call{namespace: "team", now: p(set{"koord-rt.dev/opt-out": "true"}, set{"scheduling.koordinator.sh/resource-status": "{}"})}, []string{check}},
		"opted out namespace": {
			call{namespace: "team", namespaceLabels: set{"koord-rt.dev/opt-out": "true"}, now: p(set{"koordinator.sh/qosClass": "BE"}, nil)}, []string{check},
		},
		"mirror pod":               {call{namespace: "team", now: p(nil, set{"kubernetes.io/config.mirror": "x"})}, nil},
		"finalizer removed":        {call{namespace: "team", now: p(set{"app": "a"}, nil), old: finalized}, nil},
		"label changed":            {call{namespace: "team", now: p(set{"app": "b"}, nil), old: finalized}, []string{update}},
		"label removed":            {call{namespace: "team", now: p(nil, nil), old: finalized}, []string{update}},
		"annotation added":         {call{namespace: "team", now: p(set{"app": "a"}, set{"a": "b"}), old: finalized}, []string{update}},
		"status":                   {call{namespace: "team", now: p(set{"app": "b"}, nil), old: finalized, subresource: "status"}, nil},
		"resize":                   {call{namespace: "team", now: p(nil, nil), old: p(nil, nil), subresource: "resize"}, nil},
		"resize of LSR":            {call{namespace: "team", now: p(set{"koordinator.sh/qosClass": "LSR"}, nil), old: p(nil, nil), subresource: "resize"}, []string{resize}},
		"slo-controller-config":    {call{namespace: "koordinator-system", now: configMap("slo-controller-config")}, []string{config}},
		"it is changed":            {call{namespace: "koordinator-system", now: configMap("slo-controller-config"), old: configMap("slo-controller-config")}, []string{config}},
		"another ConfigMap":        {call{namespace: "koordinator-system", now: configMap("other")}, nil},
		"ConfigMap of another one": {call{namespace: "team", now: configMap("slo-controller-config")}, nil},
	} {
		for _, version := range []*utilversion.Version{utilversion.MajorMinor(1, 29), environment.DefaultCompatibilityVersion()} {
			compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(version))
			if got := called(t, readManifest(t), compiler, c.call); !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: %v are called, want %v", what, version, got, c.want)
			}
		}
	}
}
