// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package answer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// readable is the longest review that controller-runtime reads (maxRequestSize of pkg/webhook/admission).
	readable = 7<<20 - 1
	// head is how much of a longer one is looked at: the uid stands in front of the objects.
	head = 64 << 10
)

// Sized refuses reviews that are too long to be read. controller-runtime answers them with an error that names no review, which the API
// server takes for our absence and lets pass: an object of a megabyte of '<', which JSON writes as six bytes each, would go unchecked.
func (a *Answers) Sized(webhook string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 && r.ContentLength <= readable {
			h.ServeHTTP(w, r)
			return
		}
		uid := uidOf(io.LimitReader(r.Body, head))
		out := a.Refuse(webhook, []string{fmt.Sprintf("the object and what it was are longer than %d MiB as JSON, and cannot be checked: make it smaller", (readable+1)>>20)})
		out.UID = uid
		out.Result.Code = http.StatusRequestEntityTooLarge
		review := admissionv1.AdmissionReview{Response: &out.AdmissionResponse}
		review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			logf.FromContext(r.Context()).Error(err, "cannot answer", "webhook", webhook)
		}
	})
}

// uidOf is the uid of a review's request, "" where its begin does not tell.
func uidOf(body io.Reader) types.UID {
	decoder := json.NewDecoder(body)
	var uid types.UID
	if !enter(decoder, "request") || !enter(decoder, "uid") || decoder.Decode(&uid) != nil {
		return ""
	}
	return uid
}

// enter reads up to the value of a key of the object that comes next.
func enter(decoder *json.Decoder, key string) bool {
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return false
		}
		if name == key {
			return true
		}
		var other json.RawMessage
		if decoder.Decode(&other) != nil {
			return false
		}
	}
	return false
}
