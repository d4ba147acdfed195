// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Classes of answers that callers tell apart; see [Error].
var (
	// ErrNotServed: the API server does not know the kind. Its CRD is not installed, or not yet.
	ErrNotServed = errors.New("kind not served")
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrDenied: not authenticated, or RBAC says no.
	ErrDenied = errors.New("denied")
	// ErrConflict: the object is not the one that was meant (UID precondition), or exists already.
	ErrConflict = errors.New("conflict")
	// ErrGone: the resource version is too old, or from a future that a restored etcd does not have.
	ErrGone = errors.New("resource version gone")
	// ErrBudget: a PodDisruptionBudget does not allow the eviction now, or more than one stands before the pod, of which the
	// eviction subresource takes none for an answer (k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go).
	ErrBudget = errors.New("disruption budget")
	// ErrBusy: the server asks to come later.
	ErrBusy = errors.New("busy")
	// ErrWebhook: a webhook that must agree could not be called, or could not decide. Such an answer is ErrBusy too.
	ErrWebhook = errors.New("webhook away")
)

// Error is an answer of the API server that is no success.
type Error struct {
	// Code is the HTTP status; Reason and Message are those of the Status object.
	Code            int
	Reason, Message string
	// RetryAfter is what the server asks for, 0 when nothing.
	RetryAfter time.Duration
	// Named says that the Status names an object: a 404 is then about that object and not about the kind.
	Named bool
	// Causes are the reasons of the Status' details.
	Causes []string
	// Request is method and path.
	Request string
}

// Error is "GET /path: 404 NotFound: message".
func (e *Error) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %d %s: %s", e.Request, e.Code, e.Reason, e.Message), ": ")
}

// Is tells the class.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotServed:
		return e.Code == http.StatusNotFound && !e.Named
	case ErrNotFound:
		return e.Code == http.StatusNotFound && e.Named
	case ErrDenied:
		return e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden
	case ErrConflict:
		return e.Code == http.StatusConflict
	case ErrGone:
		return e.Code == http.StatusGone || e.has("ResourceVersionTooLarge") || strings.Contains(e.Message, "Too large resource version")
	case ErrBudget:
		return e.Code == http.StatusTooManyRequests && e.has("DisruptionBudget") ||
			e.Code == http.StatusInternalServerError && strings.Contains(e.Message, "more than one PodDisruptionBudget")
	case ErrBusy:
		return e.Code == http.StatusTooManyRequests && !e.has("DisruptionBudget") || e.Code == http.StatusServiceUnavailable || e.webhook()
	case ErrWebhook:
		return e.webhook()
	}
	return false
}

// webhook reports that a webhook did not decide: the API server's own words where it could not call one
// (k8s.io/apiserver pkg/admission/plugin/webhook), and those with which koord-manager refuses for the time being.
func (e *Error) webhook() bool {
	return e.Code == http.StatusInternalServerError && strings.Contains(e.Message, "failed calling webhook") ||
		e.Code == http.StatusServiceUnavailable && strings.Contains(e.Message, "admission webhook")
}

func (e *Error) has(cause string) bool {
	for _, c := range e.Causes {
		if c == cause {
			return true
		}
	}
	return false
}

// wireStatus is metav1.Status as far as it is read.
type wireStatus struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Name              string `json:"name"`
		RetryAfterSeconds int    `json:"retryAfterSeconds"`
		Causes            []struct {
			Reason string `json:"reason"`
		} `json:"causes"`
	} `json:"details"`
}

// Bounds of an answer that is an error.
const (
	maxStatus     = 64 << 10
	maxMessage    = 500
	maxRetryAfter = 60 * time.Second
)

// refused reads the answer to a request that was not granted.
func refused(request string, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		body = nil
	}
	e := decodeStatus(body)
	e.Code, e.Request = resp.StatusCode, request
	if e.Reason == "" {
		e.Reason = http.StatusText(e.Code)
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = min(time.Duration(min(n, 3600))*time.Second, maxRetryAfter)
	}
	return e
}

// decodeStatus reads a Status object; text that is none is the message.
func decodeStatus(body []byte) *Error {
	var s wireStatus
	if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
		return &Error{Message: cut(strings.TrimSpace(string(body)))}
	}
	e := &Error{Code: s.Code, Reason: cut(s.Reason), Message: cut(s.Message), Named: s.Details.Name != ""}
	if n := s.Details.RetryAfterSeconds; n > 0 {
		e.RetryAfter = min(time.Duration(min(n, 3600))*time.Second, maxRetryAfter)
	}
	for _, c := range s.Details.Causes[:min(len(s.Details.Causes), 16)] {
		e.Causes = append(e.Causes, cut(c.Reason))
	}
	return e
}

// cut bounds a text of the server and keeps it one printable line.
func cut(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, s)
}
