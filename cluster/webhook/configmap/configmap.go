// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package configmap is the admission of slo-controller-config: a key that means nothing is refused with its line and reason,
// by the parser that the controllers use.
//
// Input is the ConfigMap that somebody wants to store, output yes or everything that is wrong with it. What was wrong before and
// stays as it was is not refused again, so that a ConfigMap that came while we were away can be mended key by key. It reads
// nothing and writes nothing. It may import cluster/slo/config and cluster/webhook/answer, no other room of cluster.
package configmap

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// Path of the webhook, upstream's.
const Path = "/validate-configmap"

const validating = "validate-configmap"

// Options name the ConfigMap.
type Options struct{ Namespace, Name string }

// Add registers the webhook at the manager's server.
func Add(mgr ctrl.Manager, o Options, answers *answer.Answers) error {
	if answers == nil {
		return errors.New("add ConfigMap webhook: no answers given")
	}
	mgr.GetWebhookServer().Register(Path, &webhook.Admission{
		Handler: answers.Guard(validating, &validator{decoder: admission.NewDecoder(mgr.GetScheme()), options: o, answers: answers}),
	})
	return nil
}

type validator struct {
	decoder admission.Decoder
	options Options
	answers *answer.Answers
}

// Handle refuses a ConfigMap with keys that mean nothing.
func (v *validator) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Namespace != v.options.Namespace || req.Name != v.options.Name || req.Operation == admissionv1.Delete {
		return admission.Allowed("")
	}
	var now, was corev1.ConfigMap
	if err := v.decoder.DecodeRaw(req.Object, &now); err != nil {
		return v.answers.Open(validating, "decode", "the ConfigMap cannot be decoded")
	}
	if req.Operation == admissionv1.Update {
		if err := v.decoder.DecodeRaw(req.OldObject, &was); err != nil {
			return v.answers.Open(validating, "decode", "the old ConfigMap cannot be decoded")
		}
	}
	refused, warned := check(now.Data, was.Data)
	if len(refused) > 0 {
		return v.answers.Refuse(validating, refused).WithWarnings(warned...)
	}
	return admission.Allowed("").WithWarnings(warned...)
}

// check tells what is wrong with the keys that are new or changed, and what is still wrong with the others.
func check(data, was map[string]string) (refused, warned []string) {
	_, problems := config.Parse(data, config.Default())
	for _, p := range problems {
		if old, ok := was[p.Key]; ok && old == data[p.Key] {
			warned = append(warned, p.Error())
		} else {
			refused = append(refused, p.Error())
		}
	}
	return refused, warned
}
