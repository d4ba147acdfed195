// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The answer names the review that it answers and allows it, over TLS; the patch is JSON, and a webhook that validates has none.
func TestAllow(t *testing.T) {
	t.Parallel()
	pair, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(allow))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as the benchmark asks
	defer client.CloseIdleConnections()
	ask := func(path, body string) *http.Response {
		t.Helper()
		r, err := client.Post(s.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	for path, patches := range map[string]bool{"/mutate-pod": true, "/validate-pod": false} {
		var got struct {
			Kind     string
			Response struct {
				UID       string
				Allowed   bool
				PatchType string
				Patch     []byte
			}
		}
		if err := json.NewDecoder(ask(path, `{"request": {"uid": "u", "object": {"kind": "Pod"}}}`).Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		r := &got.Response
		if got.Kind != "AdmissionReview" || r.UID != "u" || !r.Allowed {
			t.Errorf("%s: %+v", path, got)
		}
		var operations []struct{ Op, Path string }
		if patches {
			if err := json.Unmarshal(r.Patch, &operations); err != nil {
				t.Errorf("%s: patch: %v", path, err)
			}
		}
		if (len(operations) == 2) != patches || (r.PatchType == "JSONPatch") != patches || (len(r.Patch) > 0) != patches {
			t.Errorf("%s: %+v", path, r)
		}
	}
	if r := ask("/mutate-pod", "{"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("half a review: %s", r.Status)
	}
}
