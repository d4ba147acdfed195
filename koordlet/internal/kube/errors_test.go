// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
)

// FuzzRefused: whatever a server says with its no, the error is a short printable line, and nobody waits for longer than a minute.
func FuzzRefused(f *testing.F) {
	f.Add([]byte(`{"kind":"Status","code":429,"reason":"TooManyRequests","message":"Cannot evict pod as it would violate the pod's disruption budget.",`+
		`"details":{"name":"a","retryAfterSeconds":10,"causes":[{"reason":"DisruptionBudget","message":"The disruption budget kept needs 2 healthy pods"}]}}`), "10")
	f.Add([]byte("<html>\x1b[2J"), "-1")
	f.Fuzz(func(t *testing.T, body []byte, after string) {
		answer := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {after}}, Body: io.NopCloser(bytes.NewReader(body))}
		var e *Error
		if !errors.As(refused("POST /x", answer), &e) || e.Code != http.StatusTooManyRequests || e.RetryAfter < 0 || e.RetryAfter > maxRetryAfter || len(e.Causes) > 16 {
			t.Fatalf("%+v", e)
		}
		for _, text := range append([]string{e.Reason, e.Message}, e.Causes...) {
			if len(text) > maxMessage || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == unicode.ReplacementChar }) {
				t.Fatalf("%q", text)
			}
		}
	})
}
