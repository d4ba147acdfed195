// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package node is the admission of nodes: a node whose annotation says so is told larger than its kubelet says (amplification),
// and an annotation that says it wrongly is refused.
//
// Inputs are updates of nodes and nodes/status, outputs a patch of status.allocatable's CPU and memory and of the annotations
// raw-allocatable and koord-rt.dev/amplified-by, or a refusal. Nothing else of a node is touched. It reads and writes nothing. It
// may import cluster/webhook/answer and cluster/internal/quantity, no other room of cluster.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// Paths of the webhooks, upstream's.
const (
	MutatePath   = "/mutate-node-status"
	ValidatePath = "/validate-node"
)

// Names of the webhooks in metrics.
const (
	mutating   = "mutate-node-status"
	validating = "validate-node"
)

// Add registers the webhooks at the manager's server.
func Add(mgr ctrl.Manager, answers *answer.Answers) error {
	if answers == nil {
		return errors.New("add node webhooks: no answers given")
	}
	server := mgr.GetWebhookServer()
	server.Register(MutatePath, &webhook.Admission{Handler: answers.Guard(mutating, mutator{answers})})
	server.Register(ValidatePath, &webhook.Admission{Handler: answers.Guard(validating, validator{answers})})
	return nil
}

// object is a Node as far as it is read: most of one is images.
type object struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Capacity    corev1.ResourceList `json:"capacity"`
		Allocatable corev1.ResourceList `json:"allocatable"`
	} `json:"status"`
}

func read(raw []byte) (*Node, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	return &Node{Annotations: o.Metadata.Annotations, Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable}, nil
}

type mutator struct{ answers *answer.Answers }

// Handle amplifies what the kubelet says.
func (m mutator) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Update || req.SubResource != "status" {
		return admission.Allowed("")
	}
	now, err := read(req.Object.Raw)
	if err != nil {
		return m.answers.Open(mutating, "decode", "the node cannot be decoded")
	}
	was, err := read(req.OldObject.Raw)
	if err != nil {
		return m.answers.Open(mutating, "decode", "the old node cannot be decoded")
	}
	change := Amplify(now, was)
	out := admission.Allowed("")
	if len(change.Problems) > 0 {
		m.answers.Count(mutating, "problem")
		for _, p := range change.Problems {
			out.Warnings = append(out.Warnings, "koord-manager: "+p)
		}
	}
	steps := patch(&change)
	if len(steps) == 0 {
		return out
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return m.answers.Open(mutating, "encode", "the change cannot be expressed as a patch")
	}
	kind := admissionv1.PatchTypeJSONPatch
	out.Patch, out.PatchType = text, &kind
	return out
}

// step is one of a JSON patch (RFC 6902).
type step struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// patch writes a change. A node whose annotations change has some: the ratio, or the record of one.
func patch(c *Change) []step {
	var out []step
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		at, value := "/metadata/annotations/"+pointer(key), c.Annotations[key]
		if value == "" {
			out = append(out, step{Op: "remove", Path: at})
		} else {
			out = append(out, step{"add", at, value})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Allocatable)) {
		q := c.Allocatable[name]
		out = append(out, step{"add", "/status/allocatable/" + pointer(string(name)), q.String()})
	}
	return out
}

// pointer is a key as a part of a JSON pointer (RFC 6901).
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

type validator struct{ answers *answer.Answers }

// Handle refuses annotations that say nothing.
func (v validator) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	now, err := read(req.Object.Raw)
	if err != nil {
		return v.answers.Open(validating, "decode", "the node cannot be decoded")
	}
	was := &Node{}
	if req.Operation == admissionv1.Update {
		if was, err = read(req.OldObject.Raw); err != nil {
			return v.answers.Open(validating, "decode", "the old node cannot be decoded")
		}
	}
	if problems := Check(now.Annotations, was.Annotations); len(problems) > 0 {
		return v.answers.Refuse(validating, problems)
	}
	// The manager itself writes nodes/status, which does not come here.
	if told(now.Annotations, was.Annotations) {
		return admission.Allowed("").WithWarnings("koord-manager: " + ownRatio)
	}
	return admission.Allowed("")
}
