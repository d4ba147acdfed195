// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reservation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
)

// Keys of a job.
const (
	labelEvictPolicy = "koordinator.sh/evict-policy"
	annotationPassed = "descheduler.koordinator.sh/passed-arbitration"
)

// CheckNewJob says what is wrong with a new migration job.
//
// Example: podRef {namespace: default, name: web-0}: taken. Without a name, of another kind, or with a negative ttl: refused.
func CheckNewJob(j *schedulingv1alpha1.PodMigrationJob) (refused, warned []string) {
	var v verdict
	v.job(j)
	return v.refused, v.warned
}

func (v *verdict) job(j *schedulingv1alpha1.PodMigrationJob) {
	const at = "spec.podRef"
	switch ref := j.Spec.PodRef; {
	case ref == nil:
		v.refuse("%s: missing: name the pod that is to be moved", at)
	case ref.Kind != "" && ref.Kind != "Pod":
		v.refuse("%s.kind: %s, want Pod: only pods are moved", at, ref.Kind)
	case ref.Name == "" || ref.Namespace == "":
		v.refuse("%s: name %q in namespace %q: give both", at, ref.Name, ref.Namespace)
	}
	if t := j.Spec.TTL; t != nil && t.Duration < 0 {
		v.refuse("spec.ttl: %s is negative: give a duration as 5m", t.Duration)
	}
	if d := j.Spec.DeleteOptions; d != nil && d.GracePeriodSeconds != nil && *d.GracePeriodSeconds < 0 {
		v.refuse("spec.deleteOptions.gracePeriodSeconds: %d is negative", *d.GracePeriodSeconds)
	}
	if p, ok := j.Labels[labelEvictPolicy]; ok && !slices.Contains([]string{"Eviction", "Delete", "SoftEviction"}, p) {
		v.refuse("label %s: %q, want Eviction, Delete or SoftEviction", labelEvictPolicy, p)
	}
	o := j.Spec.ReservationOptions
	if o == nil {
		return
	}
	if j.Spec.Mode == schedulingv1alpha1.MigrateEvictDirectly {
		v.warn("spec.reservationOptions: does nothing with mode EvictDirectly")
	}
	if o.ReservationRef != nil && o.ReservationRef.Name == "" {
		v.refuse("spec.reservationOptions.reservationRef.name: missing: name the reservation, or leave reservationRef out and one is made")
	}
	if o.ReservationRef != nil && o.Template != nil {
		v.warn("spec.reservationOptions.template: does nothing beside reservationRef, which is there already")
	}
	if o.Template != nil && o.ReservationRef == nil {
		v.jobTemplate(&o.Template.Spec)
	}
}

// jobTemplate: what the template leaves out comes from the pod.
func (v *verdict) jobTemplate(s *schedulingv1alpha1.ReservationSpec) {
	const at = "spec.reservationOptions.template.spec"
	if s.Template != nil && len(s.Template.Spec.Containers) > 0 {
		v.template(at+".template", s.Template)
	}
	for i := range s.Owners {
		if o := &s.Owners[i]; o.Object != nil || o.Controller != nil || o.LabelSelector != nil {
			v.owner(at+".owners", o)
		}
	}
	if t := s.TTL; t != nil && t.Duration < 0 {
		v.refuse("%s.ttl: %s is negative: give a duration as 5m", at, t.Duration)
	}
}

// CheckJobChange says what of a change is refused: a job moves the one pod that it was made for, and goes the way on which it is. The
// pod's uid may be filled in once. What was wrong before is not refused again.
func CheckJobChange(now, was *schedulingv1alpha1.PodMigrationJob) (refused, warned []string) {
	var v, before verdict
	v.job(now)
	before.job(was)
	out := slices.DeleteFunc(v.refused, func(s string) bool { return slices.Contains(before.refused, s) })
	if !samePod(now.Spec.PodRef, was.Spec.PodRef) {
		out = append(out, "spec.podRef: cannot change: a job moves one pod; create another job")
	}
	if phase := was.Status.Phase; phase != "" && phase != schedulingv1alpha1.MigrationPending {
		var more verdict
		if now.Spec.Mode != was.Spec.Mode {
			more.refuse("spec.mode: cannot change once the job is %s: create another job", phase)
		}
		if ref := reservationOf(was); ref != "" && reservationOf(now) != ref {
			more.refuse("spec.reservationOptions.reservationRef: cannot change from %s once the job is %s: create another job", ref, phase)
		}
		out = append(out, more.refused...)
	}
	return out, v.warned
}

// reservationOf is the reservation that a job goes by, "" before there is one.
func reservationOf(j *schedulingv1alpha1.PodMigrationJob) string {
	if o := j.Spec.ReservationOptions; o != nil && o.ReservationRef != nil {
		return o.ReservationRef.Name
	}
	return ""
}

func samePod(now, was *corev1.ObjectReference) bool {
	if now == nil || was == nil {
		return was == nil // filled in where it was missing
	}
	return now.Namespace == was.Namespace && now.Name == was.Name && (was.UID == "" || now.UID == was.UID)
}

// CheckJobTrust refuses the word of the descheduler that a job may go on, from anybody else.
func CheckJobTrust(now, was map[string]string) []string {
	if value, ok := now[annotationPassed]; ok && was[annotationPassed] != value {
		return []string{"annotation " + annotationPassed + ": only the descheduler may set it: leave it out, and the job waits for its turn"}
	}
	return nil
}

// CheckRoomTrust refuses what only the scheduler may say in the template of a job's room: the descheduler makes a Reservation of it, and is
// believed where the job's writer would not be.
func CheckRoomTrust(now, was *schedulingv1alpha1.PodMigrationJob) []string {
	const at = "spec.reservationOptions.template."
	room, before := roomOf(now), roomOf(was)
	out := CheckTrust(at+"metadata", room.Annotations, before.Annotations)
	return append(out, CheckTrust(at+"spec.template.metadata", annotations(&room.Spec), annotations(&before.Spec))...)
}

// roomOf is the template of a job's room, an empty one where there is none.
func roomOf(j *schedulingv1alpha1.PodMigrationJob) *schedulingv1alpha1.ReservationTemplateSpec {
	if o := j.Spec.ReservationOptions; o != nil && o.Template != nil {
		return o.Template
	}
	return &schedulingv1alpha1.ReservationTemplateSpec{}
}
