// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package reservation is the admission of Reservations and PodMigrationJobs: what could never be used, placed or moved is refused, what
// is booked cannot change below its owners, and what only schedulers may say is refused from anybody else (D13). Profiles
// are applied to Reservations by cluster/webhook/pod.
//
// Inputs are admission requests and the time, outputs refusals and warnings. Defaults are the definitions'. It reads and writes
// nothing. It may import cluster/webhook/answer, no other room of cluster.
package reservation

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// Paths of the webhooks.
const (
	Path    = "/validate-reservation"
	JobPath = "/validate-pod-migration-job"
)

// Names of the webhooks in metrics.
const (
	validating = "validate-reservation"
	jobs       = "validate-podmigrationjob"
)

// Options are what an administrator sets.
type Options struct {
	// Schedulers are the users that may say where a reservation is, Deschedulers those that let jobs go on.
	Schedulers, Deschedulers []string
}

// Add registers the webhooks at the manager's server.
func Add(mgr ctrl.Manager, o Options, answers *answer.Answers) error {
	if answers == nil {
		return errors.New("add reservation webhooks: no answers given")
	}
	server := mgr.GetWebhookServer()
	server.Register(Path, answers.Sized(validating, &webhook.Admission{Handler: answers.Guard(validating, &validator{options: o, answers: answers, now: time.Now})}))
	server.Register(JobPath, answers.Sized(jobs, &webhook.Admission{Handler: answers.Guard(jobs, &jobValidator{options: o, answers: answers})}))
	return nil
}

// decode reads an object as it is to be, and at an update as it was. One that cannot be read is refused where it comes into being: the
// definitions leave templates open, and a single one that means nothing stops everybody who lists the kind. Of one that is stored already
// the metadata is read alone, and the rest is not known.
func decode[T any](a *answer.Answers, name string, req *admission.Request) (now, was *T, known bool, instead *admission.Response) {
	now, was, known = new(T), new(T), req.Operation == admissionv1.Update
	if known && quantity.Unmarshal(req.OldObject.Raw, was) != nil {
		was, known = headOf[T](req.OldObject.Raw), false
	}
	if err := quantity.Unmarshal(req.Object.Raw, now); err != nil {
		out := a.Refuse(name, []string{"the object cannot be decoded: " + err.Error() + ": write templates as those of pods"})
		return nil, nil, false, &out
	}
	return now, was, known, nil
}

// headOf is an object with nothing but its metadata.
func headOf[T any](raw []byte) *T {
	out := new(T)
	var head struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(raw, &head) == nil && head.Metadata != nil {
		_ = json.Unmarshal(slices.Concat([]byte(`{"metadata":`), head.Metadata, []byte("}")), out) // the API server has made it
	}
	return out
}

// reply refuses, or passes with warnings.
func reply(ctx context.Context, a *answer.Answers, name string, refused, warned []string) admission.Response {
	out := admission.Allowed("")
	if len(refused) > 0 {
		logf.FromContext(ctx).Info("refused", "webhook", name, "problems", answer.Few(refused))
		out = a.Refuse(name, refused)
	}
	for _, w := range answer.Few(warned) {
		out.Warnings = append(out.Warnings, "koord-manager: "+w)
	}
	return out
}

type validator struct {
	options Options
	answers *answer.Answers
	now     func() time.Time
}

// Handle checks a reservation.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	now, was, known, instead := decode[schedulingv1alpha1.Reservation](v.answers, validating, &req)
	if instead != nil {
		return *instead
	}
	var refused, warned []string
	switch {
	case req.Operation == admissionv1.Create:
		refused, warned = CheckNew(now, v.now())
	case known:
		refused, warned = CheckChange(now, was)
	default:
		refused, warned = CheckSpec(now)
	}
	if !slices.Contains(v.options.Schedulers, req.UserInfo.Username) {
		refused = append(refused, CheckTrust("metadata", now.Annotations, was.Annotations)...)
		refused = append(refused, CheckTrust("spec.template.metadata", annotations(now), annotations(was))...)
	}
	return reply(ctx, v.answers, validating, refused, warned)
}

func annotations(r *schedulingv1alpha1.Reservation) map[string]string {
	if r.Spec.Template == nil {
		return nil
	}
	return r.Spec.Template.Annotations
}

type jobValidator struct {
	options Options
	answers *answer.Answers
}

// Handle checks a job.
func (v *jobValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	now, was, known, instead := decode[schedulingv1alpha1.PodMigrationJob](v.answers, jobs, &req)
	if instead != nil {
		return *instead
	}
	var refused, warned []string
	if known {
		refused, warned = CheckJobChange(now, was)
	} else {
		refused, warned = CheckNewJob(now)
	}
	if !slices.Contains(v.options.Deschedulers, req.UserInfo.Username) {
		refused = append(refused, CheckJobTrust(now.Annotations, was.Annotations)...)
	}
	return reply(ctx, v.answers, jobs, refused, warned)
}
