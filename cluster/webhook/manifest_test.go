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
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	"github.com/koord-rt/koord-rt/cluster/webhook/eviction"
	"github.com/koord-rt/koord-rt/cluster/webhook/node"
	"github.com/koord-rt/koord-rt/cluster/webhook/pod"
	"github.com/koord-rt/koord-rt/cluster/webhook/quota"
	"github.com/koord-rt/koord-rt/cluster/webhook/reservation"
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
			// The API server's defaults; without, nothing is selected.
			for i := range m.validating.Webhooks {
				w := &m.validating.Webhooks[i]
				w.ObjectSelector, w.NamespaceSelector = orAll(w.ObjectSelector), orAll(w.NamespaceSelector)
			}
			for i := range m.mutating.Webhooks {
				w := &m.mutating.Webhooks[i]
				w.ObjectSelector, w.NamespaceSelector = orAll(w.ObjectSelector), orAll(w.NamespaceSelector)
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

// closed is the one webhook that fails closed; TestWhoIsCalled shows that it is called for agents only.
const closed = "veviction.koordinator.sh"

func orAll(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return &metav1.LabelSelector{}
	}
	return s
}

// TestManifestNamesWhatTheCodeServes: names, paths and port are the program's, and absence stops nobody but an agent.
func TestManifestNamesWhatTheCodeServes(t *testing.T) {
	t.Parallel()
	m := readManifest(t)
	o := webhook.Default("koordinator-system", "koordinator-system", "slo-controller-config", prometheus.NewRegistry())
	if m.mutating.Name != o.Certs.Mutating || m.validating.Name != o.Certs.Validating || m.service.Name != o.Certs.Service ||
		m.service.Namespace != o.Certs.Namespace || m.service.Spec.Ports[0].TargetPort.IntValue() != o.Port {
		t.Errorf("%s, %s, %s/%s, port %v", m.mutating.Name, m.validating.Name, m.service.Namespace, m.service.Name, m.service.Spec.Ports)
	}
	paths := map[string]int{
		pod.MutatePath: 0, pod.ValidatePath: 0, pod.ReservationPath: 0, configmap.Path: 0, eviction.Path: 0, node.MutatePath: 0, node.ValidatePath: 0,
		quota.MutatePath: 0, quota.ValidatePath: 0, quota.ProfilePath: 0, reservation.Path: 0, reservation.JobPath: 0,
	}
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
		policy := admissionregistrationv1.Ignore
		if w.GetName() == closed {
			policy = admissionregistrationv1.Fail
			if c := w.GetMatchConditions(); len(c) != 1 || c[0].Expression != "request.userInfo.username == '"+o.Eviction.Agents[0]+"'" {
				t.Errorf("%s fails closed for whom? %v", w.GetName(), c)
			}
		}
		if *w.GetFailurePolicy() != policy || *w.GetTimeoutSeconds() > 3 ||
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
	user            string // "u" when empty
	delete          bool   // of old
}

// called are the webhooks that the API server's own code would call, by its rules, selectors and compiled conditions.
func called(t *testing.T, m manifest, compiler celplugin.ConditionCompiler, c call) (names []string) {
	t.Helper()
	operation, plural := admission.Create, "pods"
	if c.old != nil {
		operation = admission.Update
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	object, err := metav1Object(c.now)
	if err != nil {
		t.Fatal(err)
	}
	resource := corev1.SchemeGroupVersion.WithResource(plural)
	switch o := c.now.(type) {
	case *corev1.ConfigMap:
		kind, resource = corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithResource("configmaps")
	case *corev1.Node:
		kind, resource = corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithResource("nodes")
	case *unstructured.Unstructured:
		kind = o.GroupVersionKind()
		resource = kind.GroupVersion().WithResource(map[string]string{
			"scheduling.sigs.k8s.io": "elasticquotas", "koordinator.sh": "koordelasticquotas", "quota.koordinator.sh": "teamelasticquotas",
			"scheduling.koordinator.sh": "reservations",
		}[kind.Group])
	}
	plural = resource.Resource
	who := c.user
	if who == "" {
		who = "u"
	}
	now, old := c.now, c.old
	if c.delete {
		operation, now, old = admission.Delete, nil, c.now
	}
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(now, old, kind, c.namespace, object.GetName(),
			resource, c.subresource, operation, nil, false, &user.DefaultInfo{Name: who}),
		VersionedObject: now, VersionedOldObject: old, VersionedKind: kind,
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
			return slices.Contains(r.Operations, admissionregistrationv1.OperationType(operation)) && slices.Contains(r.Resources, full) &&
				slices.Contains(r.APIGroups, kind.Group)
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
	placed := func(scheduler string) *corev1.Pod {
		out := p(nil, nil, "cpu")
		out.Spec.SchedulerName = scheduler
		return out
	}
	const agent = "system:serviceaccount:koordinator-system:koordlet"
	const ratio, raw = "node.koordinator.sh/resource-amplification-ratio", "node.koordinator.sh/raw-allocatable"
	const status, nodes, newQuota, quotas = "mnode-status.koordinator.sh", "vnode.koordinator.sh", "melasticquota.koordinator.sh", "velasticquota.koordinator.sh"
	n := func(annotations ...string) *corev1.Node {
		out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		for i := 0; i < len(annotations); i += 2 {
			if out.Annotations == nil {
				out.Annotations = set{}
			}
			out.Annotations[annotations[i]] = annotations[i+1]
		}
		return out
	}
	q := func(weight string, least, used int64) *unstructured.Unstructured {
		annotations := map[string]any{"quota.scheduling.koordinator.sh/runtime": strconv.FormatInt(used, 10)}
		if weight != "" {
			annotations["quota.scheduling.koordinator.sh/shared-weight"] = weight
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": map[string]any{"name": "a", "annotations": annotations},
			"spec": map[string]any{"min": map[string]any{"cpu": least}}, "status": map[string]any{"used": map[string]any{"cpu": used}},
		}}
	}
	team := func(least int64) *unstructured.Unstructured {
		out := q("", least, 0)
		out.SetAPIVersion("quota.koordinator.sh/v1alpha1")
		return out
	}
	room := func(labels map[string]string) *unstructured.Unstructured {
		out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": map[string]any{"name": "a"}}}
		out.SetLabels(labels)
		return out
	}
	const newRoom, rooms = "mreservation.koordinator.sh", "vreservation.koordinator.sh"
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for what, c := range map[string]struct {
		call
		want []string
	}{
		"plain pod":                   {call{namespace: "team", now: p(nil, nil, "cpu")}, []string{change}},
		"the stock scheduler's":       {call{namespace: "team", now: placed("default-scheduler")}, []string{change}},
		"one for another scheduler":   {call{namespace: "team", now: placed("koord-scheduler")}, []string{change, check}},
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
		"an ephemeral container": {
			call{namespace: "team", now: p(set{"koordinator.sh/qosClass": "BE"}, set{"a": "b"}), old: p(set{"koordinator.sh/qosClass": "BE"}, nil), subresource: "ephemeralcontainers"}, nil,
		},
		"mirror pod":               {call{namespace: "team", now: p(nil, set{"kubernetes.io/config.mirror": "x"})}, nil},
		"finalizer removed":        {call{namespace: "team", now: p(set{"app": "a"}, nil), old: finalized}, nil},
		"label changed":            {call{namespace: "team", now: p(set{"app": "b"}, nil), old: finalized}, []string{update}},
		"label removed":            {call{namespace: "team", now: p(nil, nil), old: finalized}, []string{update}},
		"annotation added":         {call{namespace: "team", now: p(set{"app": "a"}, set{"a": "b"}), old: finalized}, []string{update}},
		"status":                   {call{namespace: "team", now: p(set{"app": "a"}, nil), old: finalized, subresource: "status"}, nil},
		"label changed by status":  {call{namespace: "team", now: p(set{"app": "b"}, nil), old: finalized, subresource: "status"}, []string{update}},
		"annotation by status":     {call{namespace: "team", now: p(set{"app": "a"}, set{"a": "b"}), old: finalized, subresource: "status"}, []string{update}},
		"status in kube-system":    {call{namespace: "kube-system", now: p(nil, set{"a": "b"}), old: finalized, subresource: "status"}, nil},
		"resize":                   {call{namespace: "team", now: p(nil, nil), old: p(nil, nil), subresource: "resize"}, nil},
		"resize of no concern":     {call{namespace: "team", now: placed("default-scheduler"), old: placed("default-scheduler"), subresource: "resize"}, nil},
		"resize under a quota":     {call{namespace: "team", now: placed("koord-scheduler"), old: placed("koord-scheduler"), subresource: "resize"}, []string{resize}},
		"resize of LSR":            {call{namespace: "team", now: p(set{"koordinator.sh/qosClass": "LSR"}, nil), old: p(nil, nil), subresource: "resize"}, []string{resize}},
		"slo-controller-config":    {call{namespace: "koordinator-system", now: configMap("slo-controller-config")}, []string{config}},
		"it is changed":            {call{namespace: "koordinator-system", now: configMap("slo-controller-config"), old: configMap("slo-controller-config")}, []string{config}},
		"another ConfigMap":        {call{namespace: "koordinator-system", now: configMap("other")}, nil},
		"ConfigMap of another one": {call{namespace: "team", now: configMap("slo-controller-config")}, nil},
		"eviction by an agent":     {call{namespace: "kube-system", now: p(nil, nil), subresource: "eviction", user: agent}, []string{closed}},
		"eviction by a descheduler": {
			call{namespace: "team", now: p(nil, nil), subresource: "eviction", user: "system:serviceaccount:koordinator-system:koord-descheduler"}, nil,
		},
		"eviction by another namespace's account": {call{namespace: "team", now: p(nil, nil), subresource: "eviction", user: "system:serviceaccount:team:koordlet"}, nil},
		"eviction by an administrator":            {call{namespace: "team", now: p(nil, nil), subresource: "eviction"}, nil},
		"a plain node's status":                   {call{now: n("a", "b"), old: n(), subresource: "status"}, nil},
		"an amplified node's status":              {call{now: n(ratio, "1"), old: n(ratio, "1"), subresource: "status"}, []string{status}},
		"one that is amplified no more":           {call{now: n(raw, "1"), old: n(raw, "1", ratio, "1"), subresource: "status"}, []string{status}},
		"a node":                                  {call{now: n("a", "b")}, nil},
		"a node with a ratio":                     {call{now: n(ratio, "1")}, []string{nodes}},
		"a node that gets a ratio":                {call{now: n(ratio, "1"), old: n()}, []string{nodes}},
		"a node whose ratio changes":              {call{now: n(ratio, "1"), old: n(ratio, "2")}, []string{nodes}},
		"a node whose ratio stays":                {call{now: n(ratio, "1", "a", "b"), old: n(ratio, "1")}, nil},
		"a node whose ratio goes":                 {call{now: n(), old: n(ratio, "1")}, nil},
		"a quota":                                 {call{namespace: "team", now: q("", 1, 0)}, []string{newQuota, quotas}},
		"a team's quota":                          {call{namespace: "team", now: team(1)}, []string{quotas}},
		"a quota that goes":                       {call{namespace: "team", now: q("", 1, 0), delete: true}, []string{quotas}},
		"a quota that is used":                    {call{namespace: "team", now: q("", 1, 5), old: q("", 1, 4)}, nil},
		"a quota that grows":                      {call{namespace: "team", now: q("", 2, 5), old: q("", 1, 5)}, []string{quotas}},
		"a quota with another weight":             {call{namespace: "team", now: q("2", 1, 5), old: q("1", 1, 5)}, []string{quotas}},
		"a reservation":                           {call{now: room(nil)}, []string{newRoom, rooms}},
		"a reservation that changes":              {call{now: room(nil), old: room(nil)}, []string{rooms}},
		"a reservation that is left alone":        {call{now: room(set{"koord-rt.dev/opt-out": "true"})}, []string{rooms}},
		"a quota whose weight goes":               {call{namespace: "team", now: q("", 1, 5), old: q("1", 1, 5)}, []string{quotas}},
	} {
		for _, version := range []*utilversion.Version{utilversion.MajorMinor(1, 29), environment.DefaultCompatibilityVersion()} {
			compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(version))
			if got := called(t, readManifest(t), compiler, c.call); !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: %v are called, want %v", what, version, got, c.want)
			}
		}
	}
}
