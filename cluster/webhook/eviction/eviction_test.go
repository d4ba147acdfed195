// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

const agent = "system:serviceaccount:koordinator-system:koordlet"

func TestCheck(t *testing.T) {
	t.Parallel()
	of := func(node, uid string) Ask {
		return Ask{Agent: agent, Node: node, Namespace: "batch", Name: "web", UID: uid}
	}
	for name, c := range map[string]struct {
		ask  Ask
		pod  *Pod
		want []string // parts of the refusal
	}{
		"its own node's":              {of("a", "u1"), &Pod{UID: "u1", Node: "a"}, nil},
		"another node's":              {of("a", "u1"), &Pod{UID: "u1", Node: "b"}, []string{"batch/web is on node b", "agent of node a"}},
		"on no node yet":              {of("a", "u1"), &Pod{UID: "u1"}, []string{"on no node yet"}},
		"no token of a node":          {of("", "u1"), &Pod{UID: "u1"}, []string{agent, "token does not say", "1.30", "--bound-object-kind Node"}},
		"which pod is not said":       {of("a", ""), &Pod{UID: "u1", Node: "a"}, []string{"preconditions.uid"}},
		"there is none any more":      {of("a", "u1"), nil, nil},
		"another one under the name":  {of("a", "u1"), &Pod{UID: "u2", Node: "b"}, nil}, // the API server answers 409
		"a node with a similar name":  {of("node-1", "u1"), &Pod{UID: "u1", Node: "node-10"}, []string{"node-10"}},
		"neither pod nor agent known": {of("", "u1"), nil, []string{"token does not say"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Check(c.ask, c.pod)
			if (got == "") != (c.want == nil) {
				t.Errorf("refusal %q", got)
			}
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q does not say %q", got, part)
				}
			}
		})
	}
}

func TestNodeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		extra map[string]authenticationv1.ExtraValue
		want  string
	}{
		{nil, ""}, {map[string]authenticationv1.ExtraValue{ExtraNode: {"a"}}, "a"},
		{map[string]authenticationv1.ExtraValue{ExtraNode: {}}, ""},
		{map[string]authenticationv1.ExtraValue{ExtraNode: {"a", "b"}}, ""}, // no API server says that
		{map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"a"}}, ""},
	} {
		if got := NodeOf(&authenticationv1.UserInfo{Extra: c.extra}); got != c.want {
			t.Errorf("%v: %q, want %q", c.extra, got, c.want)
		}
	}
}

// handler is the webhook as it is registered, over pods web of node a (uid u1) and db of node b (uid u2).
func handler(t *testing.T, get func(context.Context) error) admission.Handler {
	t.Helper()
	answers, err := answer.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	pod := func(name, uid, node string) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name, UID: types.UID("u" + uid)}, Spec: corev1.PodSpec{NodeName: node}}
	}
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pod("web", "1", "a"), pod("db", "2", "b")).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if get != nil {
					if err := get(ctx); err != nil {
						return err
					}
				}
				return c.Get(ctx, key, o, opts...)
			},
		}).Build()
	return newHandler(reader, Options{Agents: []string{agent}}, answers)
}

func request(user, node, pod, body string) admission.Request {
	info := authenticationv1.UserInfo{Username: user}
	if node != "" {
		info.Extra = map[string]authenticationv1.ExtraValue{ExtraNode: {node}}
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, SubResource: "eviction", Namespace: "batch", Name: pod, UserInfo: info, Object: runtime.RawExtension{Raw: []byte(body)},
	}}
}

func uid(u string) string {
	return `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{},"deleteOptions":{"preconditions":{"uid":"` + u + `"}}}`
}

func TestHandle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		req  admission.Request
		want int32 // 200, 403 or 503
		says string
	}{
		"its own":                   {request(agent, "a", "web", uid("u1")), 200, ""},
		"another node's":            {request(agent, "a", "db", uid("u2")), 403, "is on node b"},
		"the other agent's":         {request(agent, "b", "db", uid("u2")), 200, ""},
		"a pod that has gone":       {request(agent, "a", "gone", uid("u3")), 200, ""},
		"not said which":            {request(agent, "a", "web", `{}`), 403, "preconditions.uid"},
		"no node known":             {request(agent, "", "web", uid("u1")), 403, "token"},
		"another name in the body":  {request(agent, "a", "web", strings.Replace(uid("u1"), `{}`, `{"name":"db"}`, 1)), 403, "metadata.name"},
		"the same name in the body": {request(agent, "a", "web", strings.Replace(uid("u1"), `{}`, `{"name":"web"}`, 1)), 200, ""},
		"nonsense":                  {request(agent, "a", "web", `{"deleteOptions":3}`), 503, "try again"},
		"nothing":                   {request(agent, "a", "web", ``), 503, "try again"},
		"somebody else":             {request("system:serviceaccount:kube-system:descheduler", "a", "db", uid("u2")), 200, ""},
		"somebody else, nonsense":   {request("admin", "", "db", `{`), 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := handler(t, nil).Handle(t.Context(), c.req)
			if got.Allowed != (c.want == 200) || got.Result.Code != c.want || !strings.Contains(got.Result.Message, c.says) {
				t.Errorf("allowed %t, %+v", got.Allowed, got.Result)
			}
		})
	}
}

// TestFailsClosed: an API server that does not answer, and a panic, refuse the agent, as something to try again.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	for name, get := range map[string]func(context.Context) error{
		"no answer": func(context.Context) error { return errors.New("connection refused") },
		"late":      func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"panic":     func(context.Context) error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			if name == "late" {
				cancel()
			}
			defer cancel()
			got := handler(t, get).Handle(ctx, request(agent, "a", "web", uid("u1")))
			if got.Allowed || got.Result.Code != http.StatusServiceUnavailable || !strings.Contains(got.Result.Message, "try again") {
				t.Errorf("allowed %t, %+v", got.Allowed, got.Result)
			}
			// Nobody else waits for it.
			if got := handler(t, get).Handle(ctx, request("admin", "", "web", uid("u1"))); !got.Allowed {
				t.Errorf("refused another user: %+v", got.Result)
			}
		})
	}
}

// FuzzHandle: whatever an agent sends, it evicts nothing of another node.
func FuzzHandle(f *testing.F) {
	for _, body := range []string{uid("u1"), uid("u2"), `{}`, `{"deleteOptions":null}`, `{"deleteOptions":{"preconditions":{}}}`, `[]`, `{"metadata":{"name":"web"}}`} {
		f.Add("a", body)
	}
	f.Fuzz(func(t *testing.T, node, body string) {
		got := handler(t, nil).Handle(t.Context(), request(agent, node, "db", body))
		var e policyv1.Eviction
		if !got.Allowed || node == "b" || json.Unmarshal([]byte(body), &e) != nil || e.DeleteOptions == nil || e.DeleteOptions.Preconditions == nil {
			return
		}
		if u := e.DeleteOptions.Preconditions.UID; u != nil && *u == "u2" {
			t.Errorf("the agent of %q may evict the pod of node b: %s", node, body)
		}
	})
}
