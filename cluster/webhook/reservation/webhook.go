// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package reservation is the admission of Reservations and PodMigrationJobs: what could never be used, placed or moved is refused, what
// is booked cannot change below its owners, what is misspelt in a template is refused, and what only schedulers may say is refused from
// anybody else (D13). Profiles are applied to Reservations by cluster/webhook/pod.
//
// Inputs are admission requests and the time, outputs refusals and warnings. Defaults are the definitions'. It reads and writes
// nothing. It may import cluster/webhook/answer and cluster/internal/{quantity,selector}, no other room of cluster.
package reservation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Schedulers are the users that may say where a reservation is, Deschedulers those that let jobs go on. Of what a reservation or the
	// room of a job will have, a descheduler is believed as well: it copies there what the scheduler has written to the pod.
	Schedulers, Deschedulers []string
}

// mayPlace reports that a user may write the scheduler's annotations of a room.
func (o *Options) mayPlace(user string) bool {
	return slices.Contains(o.Schedulers, user) || slices.Contains(o.Deschedulers, user)
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

// seen is what can be told of an object.
type seen int

const (
	fresh      seen = iota // it is new, or was stored and cannot be read: nothing of it was right before
	changed                // both can be read
	unreadable             // neither can, and the request changes the metadata alone, or the object is being deleted
)

// decode reads an object as it is to be, and at an update as it was. One that cannot be read is refused where it comes into being: the
// definitions leave templates open, and a single one that means nothing stops everybody who lists the kind. Of one that is stored already
// the metadata is read alone; that can change, else nobody could take its finalizers away.
func decode[T any](a *answer.Answers, name string, req *admission.Request) (now, was *T, what seen, instead *admission.Response) {
	now, was = new(T), new(T)
	update := req.Operation == admissionv1.Update
	if update {
		what = changed
		if quantity.Unmarshal(req.OldObject.Raw, was) != nil {
			was, what = headOf[T](req.OldObject.Raw), fresh
		}
	}
	err := quantity.Unmarshal(req.Object.Raw, now)
	switch {
	case err == nil:
		return now, was, what, nil
	case update && what == fresh && stays(req.Object.Raw, req.OldObject.Raw):
		return headOf[T](req.Object.Raw), was, unreadable, nil
	}
	out := a.Refuse(name, []string{"the object cannot be decoded: " + err.Error() + ": write templates as those of pods"})
	return nil, nil, fresh, &out
}

// stays reports whether an object's spec is what it was, or does not matter any more.
func stays(now, was []byte) bool {
	var o [2]struct {
		Metadata struct {
			DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	for i, raw := range [][]byte{now, was} {
		if json.Unmarshal(raw, &o[i]) != nil {
			return false
		}
	}
	return o[0].Metadata.DeletionTimestamp != nil || bytes.Equal(o[0].Spec, o[1].Spec)
}

const stillUnreadable = "the object cannot be decoded: write its template as those of pods, or delete it"

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
	now, was, what, instead := decode[schedulingv1alpha1.Reservation](v.answers, validating, &req)
	if instead != nil {
		return *instead
	}
	var refused, warned []string
	switch {
	case req.Operation == admissionv1.Create:
		refused, warned = CheckNew(now, v.now())
	case what == changed:
		refused, warned = CheckChange(now, was)
	case what == fresh:
		refused, warned = CheckSpec(now)
	default:
		warned = []string{stillUnreadable}
	}
	misspelt, unknown := spelling[schedulingv1alpha1.ReservationSpec](&req, what)
	refused, warned = append(refused, misspelt...), append(warned, unknown...)
	if !v.options.mayPlace(req.UserInfo.Username) {
		refused = append(refused, CheckTrust("metadata", now.Annotations, was.Annotations)...)
		refused = append(refused, CheckTrust("spec.template.metadata", annotations(&now.Spec), annotations(&was.Spec))...)
	}
	return reply(ctx, v.answers, validating, refused, warned)
}

// annotations are those of the pod that a room is for.
func annotations(s *schedulingv1alpha1.ReservationSpec) map[string]string {
	if s.Template == nil {
		return nil
	}
	return s.Template.Annotations
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
	now, was, what, instead := decode[schedulingv1alpha1.PodMigrationJob](v.answers, jobs, &req)
	if instead != nil {
		return *instead
	}
	var refused, warned []string
	switch what {
	case changed:
		refused, warned = CheckJobChange(now, was)
	case fresh:
		refused, warned = CheckNewJob(now)
	case unreadable:
		warned = []string{stillUnreadable}
	}
	misspelt, unknown := spelling[schedulingv1alpha1.PodMigrationJobSpec](&req, what)
	refused, warned = append(refused, misspelt...), append(warned, unknown...)
	if !slices.Contains(v.options.Deschedulers, req.UserInfo.Username) {
		refused = append(refused, CheckJobTrust(now.Annotations, was.Annotations)...)
	}
	if !v.options.mayPlace(req.UserInfo.Username) {
		refused = append(refused, CheckRoomTrust(now, was)...)
	}
	return reply(ctx, v.answers, jobs, refused, warned)
}
