// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package configmap

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

const (
	home = "koordinator-system"
	name = "slo-controller-config"
)

func ask(t *testing.T, operation admissionv1.Operation, namespace, object string, now, was map[string]string) admission.Response {
	t.Helper()
	answers, err := answer.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	raw := func(data map[string]string) runtime.RawExtension {
		text, err := json.Marshal(&corev1.ConfigMap{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	v := &validator{decoder: admission.NewDecoder(clientgoscheme.Scheme), options: Options{Namespace: home, Name: name}, answers: answers}
	return v.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Namespace: namespace, Name: object, Object: raw(now), OldObject: raw(was),
	}})
}

func TestConfigMap(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	const good, typo = "{\n  \"clusterStrategy\": {\n    \"enable\": true\n  }\n}", "{\n  \"clusterStrategy\": {\n    \"enabel\": true\n  }\n}"
	const threshold, burst = "resource-threshold-config", "cpu-burst-config"
	for what, c := range map[string]struct {
		namespace, object string
		now, was          m
		refused           []string // parts of the message
		warned            int
	}{
		"good":                          {now: m{threshold: good}},
		"empty":                         {now: m{}},
		"a typo":                        {now: m{threshold: typo}, refused: []string{threshold, "line 3", "enabel"}},
		"no JSON":                       {now: m{threshold: "{\n  \"clusterStrategy\": {\n"}, refused: []string{threshold, "line"}},
		"a key that nobody reads":       {now: m{"resource-treshold-config": good}, refused: []string{"resource-treshold-config"}},
		"two mistakes, both told":       {now: m{threshold: typo, burst: "[]"}, refused: []string{threshold, burst}},
		"wrong before, mended":          {now: m{threshold: good}, was: m{threshold: typo}},
		"wrong before, another mended":  {now: m{threshold: typo, burst: "{}"}, was: m{threshold: typo, burst: "[]"}, warned: 1},
		"wrong before, otherwise wrong": {now: m{threshold: typo + " "}, was: m{threshold: typo}, refused: []string{"enabel"}},
		"somebody else's ConfigMap":     {object: "other", now: m{threshold: typo}},
		"of another namespace":          {namespace: "default", now: m{threshold: typo}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			namespace, object, operation := home, name, admissionv1.Create
			if c.namespace != "" {
				namespace = c.namespace
			}
			if c.object != "" {
				object = c.object
			}
			if c.was != nil {
				operation = admissionv1.Update
			}
			resp := ask(t, operation, namespace, object, c.now, c.was)
			if resp.Allowed != (c.refused == nil) || len(resp.Warnings) != c.warned {
				t.Errorf("allowed %v, %q, warnings %q", resp.Allowed, resp.Result.Message, resp.Warnings)
			}
			for _, part := range c.refused {
				if !strings.Contains(resp.Result.Message, part) {
					t.Errorf("%q does not say %q", resp.Result.Message, part)
				}
			}
		})
	}
}
