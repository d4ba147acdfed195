// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package answer

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestSized: a review that controller-runtime reads is answered by the handler, one byte more is refused by its own uid, however long it
// is and whether or not its length is told; that of a new object has to leave room for what it was at its changes.
func TestSized(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	server := httptest.NewTLSServer(a.Sized(hook, &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		return admission.Allowed(string(r.Object.Raw[len(r.Object.Raw)-5:])) // it was read to its end
	})}))
	t.Cleanup(server.Close)
	review := func(o admissionv1.Operation, length int) string {
		object, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"a": ""}}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "u1", Operation: o, Object: runtime.RawExtension{Raw: object}}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(string(text), `"a":""`, `"a":"`+strings.Repeat("x", length-len(text))+`"`, 1)
	}
	const create, update = admissionv1.Create, admissionv1.Update
	for name, c := range map[string]struct {
		body   string
		untold bool
		limit  string // that a refusal names
		uid    string
	}{
		"short":                       {body: review(create, 1000), uid: "u1"},
		"short, untold":               {body: review(create, 1000), untold: true, uid: "u1"},
		"new, as long as may be":      {body: review(create, creatable), uid: "u1"},
		"new, a byte longer":          {body: review(create, creatable+1), limit: "3 MiB", uid: "u1"},
		"changed, longer than new":    {body: review(update, creatable+1), uid: "u1"},
		"changed, as long as is read": {body: review(update, readable), uid: "u1"},
		"changed, a byte longer":      {body: review(update, readable+1), limit: "7 MiB", uid: "u1"},
		"changed, far longer":         {body: review(update, 5*readable), limit: "7 MiB", uid: "u1"},
		"changed, untold":             {body: review(update, readable+1), untold: true, limit: "7 MiB", uid: "u1"},
		"no review":                   {body: strings.Repeat("x", readable+1), limit: "7 MiB"},
		"no request":                  {body: `{"request":3,"a":"` + strings.Repeat("x", readable) + `"}`, limit: "7 MiB"},
		"no uid":                      {body: `{"request":{"uid":3,"a":"` + strings.Repeat("x", readable) + `"}}`, limit: "7 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body io.Reader = strings.NewReader(c.body)
			if c.untold {
				body = io.MultiReader(body)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			reply, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			var out admissionv1.AdmissionReview
			if err := json.NewDecoder(reply.Body).Decode(&out); err != nil || out.Response == nil || out.Response.Result == nil {
				t.Fatalf("%v: %+v", err, out)
			}
			if out.Response.Allowed != (c.limit == "") || string(out.Response.UID) != c.uid {
				t.Errorf("allowed %t for %q, want %t for %q", out.Response.Allowed, out.Response.UID, c.limit == "", c.uid)
			}
			if want := c.limit; want != "" && (!strings.Contains(out.Response.Result.Message, want) || out.Kind != "AdmissionReview") ||
				want == "" && out.Response.Result.Message != `x"}}}` {
				t.Errorf("%+v", out.Response.Result)
			}
		})
	}
}
