// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// Controller is the reportingController of our events.
const Controller = "koord-rt.dev/koordlet"

// maxNote is the longest note the API server accepts (events.k8s.io/v1).
const maxNote = 1024

// Object is what an event is about.
type Object struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// Event is one thing to tell people.
type Event struct {
	Regarding Object
	// Warning is a Warning, else Normal.
	Warning bool
	// Reason is a word ("Evicted"), Action what was done or tried ("Evict"), Note a sentence, cut at 1024 bytes.
	Reason, Action, Note string
	At                   time.Time
}

type wireEvent struct {
	APIVersion          string `json:"apiVersion"`
	Kind                string `json:"kind"`
	Metadata            named  `json:"metadata"`
	EventTime           string `json:"eventTime"`
	ReportingController string `json:"reportingController"`
	ReportingInstance   string `json:"reportingInstance"`
	Action              string `json:"action"`
	Reason              string `json:"reason"`
	Regarding           Object `json:"regarding"`
	Note                string `json:"note"`
	Type                string `json:"type"`
}

// Record creates an event (events.k8s.io/v1); instance is the node's name. Events of cluster-scoped objects stand in the
// namespace default.
func (c *Client) Record(ctx context.Context, instance string, e Event) error {
	namespace := e.Regarding.Namespace
	if namespace == "" {
		namespace = "default"
	}
	w := wireEvent{
		APIVersion: "events.k8s.io/v1", Kind: "Event", EventTime: e.At.UTC().Format("2006-01-02T15:04:05.000000Z"),
		Metadata:            named{namespace, cutText(e.Regarding.Name, 200) + "." + strconv.FormatInt(e.At.UnixNano(), 16)},
		ReportingController: Controller, ReportingInstance: cutText(instance, 128),
		Action: e.Action, Reason: e.Reason, Regarding: e.Regarding, Note: cutText(e.Note, maxNote), Type: "Normal",
	}
	if e.Warning {
		w.Type = "Warning"
	}
	body, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	r := Resource{Group: "events.k8s.io", Version: "v1", Plural: "events", Namespace: namespace}
	_, err = c.call(ctx, request{method: http.MethodPost, path: r.path(), contentType: plainJSON, body: body})
	return err
}

// cutText keeps at most n bytes and no half characters.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
