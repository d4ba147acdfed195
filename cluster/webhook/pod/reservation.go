// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"context"
	"encoding/json"
	"maps"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
)

// reserver gives new Reservations what profiles give the pods they are made for (gate ReservationMutatingWebhook).
type reserver struct{ *mutator }

// Handle answers with a patch of what profiles change.
func (r *reserver) Handle(ctx context.Context, req admission.Request) admission.Response {
	if !r.options.Reservations || req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	var was, now schedulingv1alpha1.Reservation
	if err := quantity.Unmarshal(req.Object.Raw, &was); err != nil {
		return admission.Allowed("") // the validating webhook says what is wrong
	}
	if was.Spec.Template == nil || len(was.Spec.Template.Spec.Containers) == 0 {
		return admission.Allowed("")
	}
	was.DeepCopyInto(&now)
	c := &change{mutator: r.mutator, pod: standIn(&now)}
	if optedOut(c.pod) {
		return admission.Allowed("")
	}
	labels, annotations := maps.Clone(c.pod.Labels), maps.Clone(c.pod.Annotations)
	c.value = read(c.pod)
	c.applyProfiles(ctx, string(req.UID))
	if err := write(&c.value, c.pod); err != nil {
		c.warn(ctx, "resources", err)
	}
	out := admission.Allowed("")
	if c.changed {
		now.Spec.Template.Spec = c.pod.Spec
		now.Labels = moved(now.Labels, now.Spec.Template.Labels, labels, c.pod.Labels)
		now.Annotations = moved(now.Annotations, now.Spec.Template.Annotations, annotations, c.pod.Annotations)
		text, err := rewritten(req.Object.Raw, &was, &now)
		if err != nil {
			return r.answers.Open(r.name, "encode", "the changed Reservation cannot be encoded")
		}
		out = admission.PatchResponseFromRaw(req.Object.Raw, text)
		if !out.Allowed {
			return r.answers.Open(r.name, "encode", "the change cannot be expressed as a patch")
		}
	}
	return out.WithWarnings(c.warnings...)
}

// standIn is the pod that a scheduler places for a Reservation: its template's, with the Reservation's own labels and annotations above.
func standIn(r *schedulingv1alpha1.Reservation) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: *r.Spec.Template.ObjectMeta.DeepCopy(), Spec: *r.Spec.Template.Spec.DeepCopy()}
	for _, m := range []struct {
		to   *map[string]string
		from map[string]string
	}{{&out.Labels, r.Labels}, {&out.Annotations, r.Annotations}} {
		if *m.to == nil {
			*m.to = map[string]string{}
		}
		maps.Copy(*m.to, m.from)
	}
	return out
}

// moved is a Reservation's own labels or annotations with what has changed in its stand-in: there they hold above the template's. What
// has gone goes from both.
func moved(own, template, was, now map[string]string) map[string]string {
	for key, value := range now {
		if old, had := was[key]; had && old == value {
			continue
		}
		if own == nil {
			own = map[string]string{}
		}
		own[key] = value
	}
	for key := range was {
		if _, has := now[key]; !has {
			delete(own, key)
			delete(template, key)
		}
	}
	return own
}

// rewritten is a document as it came, with the differences between two objects: a definition's document has neither the defaults that our
// encoding writes nor must it lose fields that we do not know.
func rewritten(raw []byte, was, now any) ([]byte, error) {
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(raw, patch)
}
