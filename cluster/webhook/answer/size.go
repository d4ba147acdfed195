// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package answer

import (
	"bytes"
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
	// creatable is the longest review of a new object, less than half of that: a later change's has what the object was beside what it is.
	creatable = 3 << 20
	// head is how much of a review is looked at: uid and operation stand in front of the objects.
	head = 64 << 10
	// drained is how much of a longer one is read before the answer, for a client that cannot send it all may not look at the answer. API
	// servers take objects of 3 MiB, whose characters take six bytes at most, and send two of them.
	drained = 40 << 20
)

// Sized refuses reviews that are too long to be read. controller-runtime answers them with an error that names no review, which the API
// server takes for our absence and lets pass: an object of a megabyte of '<', which JSON writes as six bytes each, would go unchecked.
func (a *Answers) Sized(webhook string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 && r.ContentLength <= creatable {
			h.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, readable+1))
		limit := readable
		uid, operation := begin(body)
		if operation == admissionv1.Create {
			limit = creatable
		}
		if err != nil || len(body) <= limit {
			r.Body = rest{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
			h.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, drained)) // what cannot be read is not needed
		out := a.Refuse(webhook, []string{fmt.Sprintf("the review is longer than %d MiB as JSON, and cannot be checked: make the object smaller", (limit+1)>>20)})
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

// rest is a body of which a part has been read.
type rest struct {
	io.Reader
	io.Closer
}

// begin is the uid and the operation of a review's request, "" where the begin does not tell.
func begin(body []byte) (uid types.UID, operation admissionv1.Operation) {
	decoder := json.NewDecoder(bytes.NewReader(body[:min(len(body), head)]))
	if !enter(decoder, "request") {
		return "", ""
	}
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return "", ""
	}
	for decoder.More() && (uid == "" || operation == "") {
		key, err := decoder.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			break
		}
		switch key { // of another kind than a text they stay as they are
		case "uid":
			_ = json.Unmarshal(value, &uid)
		case "operation":
			_ = json.Unmarshal(value, &operation)
		}
	}
	return uid, operation
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
