// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package answer

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestSized: a review that controller-runtime reads is answered by the handler, one byte more is refused by its own uid, however long it
// is and whether or not its length is told.
func TestSized(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	h := a.Sized(hook, &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})})
	review := func(length int) string {
		object, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"a": ""}}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "u1", Object: runtime.RawExtension{Raw: object}}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(string(text), `"a":""`, `"a":"`+strings.Repeat("x", length-len(text))+`"`, 1)
	}
	for name, c := range map[string]struct {
		body    string
		untold  bool
		allowed bool
		uid     string
	}{
		"short":              {body: review(1000), allowed: true, uid: "u1"},
		"as long as is read": {body: review(readable), allowed: true, uid: "u1"},
		"a byte longer":      {body: review(readable + 1), uid: "u1"},
		"far longer":         {body: review(3 * readable), uid: "u1"},
		"of untold length":   {body: review(readable + 1), untold: true, uid: "u1"},
		"no review":          {body: strings.Repeat("x", readable+1)},
		"no request":         {body: `{"request":3,"a":"` + strings.Repeat("x", readable) + `"}`},
		"no uid":             {body: `{"request":{"a":"` + strings.Repeat("x", readable) + `"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			if c.untold {
				r.ContentLength = -1
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			var out admissionv1.AdmissionReview
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil {
				t.Fatalf("%v: %.200s", err, w.Body.String())
			}
			if out.Response.Allowed != c.allowed || string(out.Response.UID) != c.uid {
				t.Errorf("allowed %t for %q, want %t for %q", out.Response.Allowed, out.Response.UID, c.allowed, c.uid)
			}
			if !c.allowed && (out.Response.Result == nil || !strings.Contains(out.Response.Result.Message, "7 MiB") || out.Kind != "AdmissionReview") {
				t.Errorf("%+v", out.Response.Result)
			}
		})
	}
}
