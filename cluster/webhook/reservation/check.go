// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reservation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/koord-rt/koord-rt/api/protocol"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/selector"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

// maxOwners bounds a list that every admission of a pod goes through.
const maxOwners = 1024

// verdict is what is refused, and what is taken and hardly meant.
type verdict struct{ refused, warned []string }

func (v *verdict) refuse(format string, args ...any) { v.refused = keep(v.refused, format, args) }

func (v *verdict) warn(format string, args ...any) { v.warned = keep(v.warned, format, args) }

// keep adds a sentence, but not to as many as somebody can provoke.
func keep(list []string, format string, args []any) []string {
	if len(list) >= answer.Enough {
		return list
	}
	return append(list, fmt.Sprintf(format, args...))
}

// CheckNew says what is wrong with a new reservation at an instant.
//
// Example: ttl 10m and owners by label: taken. No owners, a negative ttl, an end that is past: refused. ttl 0 beside expires: taken, with a
// warning that it never ends.
func CheckNew(r *schedulingv1alpha1.Reservation, now time.Time) (refused, warned []string) {
	var v verdict
	v.spec("spec", &r.Spec)
	if e := r.Spec.Expires; e != nil && !e.After(now) {
		v.refuse("spec.expires: %s is past: give a time to come, or leave it out and give a ttl", e.UTC().Format(time.RFC3339))
	}
	if r.Spec.TTL == nil && r.Spec.Expires == nil {
		v.refuse("spec.ttl: neither ttl nor expires is given: say how long the room is kept; ttl 0 is for ever")
	}
	return v.refused, v.warned
}

// CheckSpec says what is wrong with a reservation whatever the time is, and whatever it was.
func CheckSpec(r *schedulingv1alpha1.Reservation) (refused, warned []string) {
	var v verdict
	v.spec("spec", &r.Spec)
	return v.refused, v.warned
}

// spec checks what a reservation's spec says by itself, wherever it stands.
func (v *verdict) spec(at string, s *schedulingv1alpha1.ReservationSpec) {
	if s.Template == nil {
		v.refuse("%s.template: missing: say what room is kept, as the template of a pod", at)
	} else {
		v.template(at+".template", s.Template)
	}
	if len(s.Owners) == 0 {
		v.refuse("%s.owners: none, so nobody could ever use the room: name pods by labelSelector, controller or object", at)
	}
	if len(s.Owners) > maxOwners {
		v.refuse("%s.owners: %d, at most %d: name pods by labelSelector", at, len(s.Owners), maxOwners)
	}
	for i := range s.Owners[:min(len(s.Owners), maxOwners)] {
		v.owner(fmt.Sprintf("%s.owners[%d]", at, i), &s.Owners[i])
	}
	if t := s.TTL; t != nil {
		switch {
		case t.Duration < 0:
			v.refuse("%s.ttl: %s is negative: give a duration as 24h, or 0 for ever", at, t.Duration)
		case t.Duration == 0 && s.Expires != nil:
			v.warn("%s.ttl: 0 is for ever, so expires does nothing: leave one of the two out", at)
		}
	}
	if s.PreAllocationPolicy != nil && !s.PreAllocation {
		v.warn("%s.preAllocationPolicy: does nothing without preAllocation: true", at)
	}
	for i, t := range s.Taints {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			v.refuse("%s.taints[%d].effect: %q, want NoSchedule, PreferNoSchedule or NoExecute", at, i, t.Effect)
		}
		if t.Key == "" {
			v.refuse("%s.taints[%d].key: missing", at, i)
		}
	}
}

// template checks amounts: a limit below a request, or less than nothing, would never be scheduled.
func (v *verdict) template(at string, p *corev1.PodTemplateSpec) {
	asks := false
	for _, list := range []struct {
		name string
		all  []corev1.Container
	}{{"initContainers", p.Spec.InitContainers}, {"containers", p.Spec.Containers}} {
		for i := range list.all {
			r := &list.all[i].Resources
			where := fmt.Sprintf("%s.spec.%s[%d].resources", at, list.name, i)
			asks = asks || len(r.Requests)+len(r.Limits) > 0
			v.amounts(where+".requests", r.Requests)
			v.amounts(where+".limits", r.Limits)
			for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
				request := r.Requests[name]
				if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
					v.refuse("%s: %s asks for %s, above its limit %s", where, name, request.String(), limit.String())
				}
			}
		}
	}
	if r := p.Spec.Resources; r != nil && len(r.Requests) > 0 {
		asks = true
		v.amounts(at+".spec.resources.requests", r.Requests)
	}
	if !asks {
		v.warn("%s: asks for nothing, so no room is kept: give its containers resources.requests", at)
	}
}

func (v *verdict) amounts(at string, l corev1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if q := l[name]; q.Sign() < 0 {
			v.refuse("%s: %s is %s: must not be negative", at, name, q.String())
		}
	}
}

func (v *verdict) owner(at string, o *schedulingv1alpha1.ReservationOwner) {
	if o.Object == nil && o.Controller == nil && o.LabelSelector == nil {
		v.warn("%s: says nothing, so every pod of the cluster may use the room: name pods by labelSelector, controller or object", at)
	}
	if err := selector.Check(o.LabelSelector); err != nil {
		v.refuse("%s.labelSelector: %v", at, err)
	}
	if c := o.Controller; c != nil && c.Name == "" && c.UID == "" {
		v.refuse("%s.controller: has neither name nor uid: say which %s it is", at, or(c.Kind, "controller"))
	}
	if r := o.Object; r != nil {
		if r.Kind != "" && r.Kind != "Pod" {
			v.refuse("%s.object.kind: %s, want Pod: owners of another kind go into controller", at, r.Kind)
		}
		if r.Name == "" && r.UID == "" {
			v.refuse("%s.object: has neither name nor uid: say which pod it is", at)
		}
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// CheckChange says what of a change is refused. What a reservation has been placed by cannot change while it stands on a node, for the
// room is booked: the template and how it is allocated. Who may use it, how long and whether at all may change at any time. What was
// wrong before is not refused again.
func CheckChange(now, was *schedulingv1alpha1.Reservation) (refused, warned []string) {
	var v, before verdict
	v.spec("spec", &now.Spec)
	before.spec("spec", &was.Spec)
	out := slices.DeleteFunc(v.refused, func(s string) bool { return slices.Contains(before.refused, s) })
	node := was.Status.NodeName
	if node == "" {
		return out, v.warned
	}
	for _, f := range []struct {
		name     string
		now, was any
	}{
		{"template", now.Spec.Template, was.Spec.Template},
		{"preAllocation", now.Spec.PreAllocation, was.Spec.PreAllocation},
		{"preAllocationPolicy", now.Spec.PreAllocationPolicy, was.Spec.PreAllocationPolicy},
		{"allocatePolicy", now.Spec.AllocatePolicy, was.Spec.AllocatePolicy},
	} {
		if !apiequality.Semantic.DeepEqual(f.now, f.was) {
			out = append(out, fmt.Sprintf("spec.%s: cannot change, for the room is booked on node %s: delete the reservation and create it anew", f.name, node))
		}
	}
	return out, v.warned
}

// CheckTrust refuses what only the scheduler may say: on which CPUs and devices the room is. Its owners would get them.
func CheckTrust(at string, now, was map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if old, had := was[key]; protocol.SchedulerOwned(key) && (!had || old != now[key]) {
			out = append(out, fmt.Sprintf("%s: annotation %s: only the scheduler may set or change it: leave it out", at, key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if _, has := now[key]; protocol.SchedulerOwned(key) && !has {
			out = append(out, fmt.Sprintf("%s: annotation %s: only the scheduler may remove it: keep it", at, key))
		}
	}
	return out
}
