// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// stockScheduler is what the API server writes where a pod names none.
const stockScheduler = "default-scheduler"

// Reservation is a Reservation object as far as it says whose it is.
type Reservation struct {
	Name string
	// Owners: one of them is enough.
	Owners []Owner
}

// Owner is one entry of a reservation's owners; all of its parts must match, and none set matches every pod.
type Owner struct {
	Object     *ObjectRef
	Controller *ControllerRef
	Pods       *Selector
}

// ObjectRef names a pod; empty fields match everything.
type ObjectRef struct{ Namespace, Name, UID string }

// ControllerRef names a pod's controller; empty fields match everything.
type ControllerRef struct {
	Namespace string
	Controller
}

// Surroundings are what lies around a pod, asked only when the pod itself does not decide: an answer can cost a look at many
// objects. Nil functions know nothing.
type Surroundings struct {
	// Quota reports whether the pod's namespace has an ElasticQuota.
	Quota func() (bool, error)
	// Reservations are those of the cluster.
	Reservations func() ([]Reservation, error)
}

// Schedule gives a pod to our scheduler when it needs it: it would be placed without regard to its reservation, quota, devices or
// the node's load otherwise. A pod that names another scheduler keeps it, and so does one that says so by
// [protocol.KeyKeepScheduler]. It reports why, which is written on the pod, "" when nothing is changed.
func Schedule(p *Pod, name string, around Surroundings) (reason string, err error) {
	if name == "" || name == stockScheduler || p.SchedulerName != "" && p.SchedulerName != stockScheduler || p.keepsScheduler() {
		return "", nil
	}
	reason = p.own()
	if reason == "" && around.Reservations != nil {
		list, err := around.Reservations()
		if err != nil {
			return "", err
		}
		reason = p.reserved(list)
	}
	if reason == "" && around.Quota != nil {
		quota, err := around.Quota()
		if err != nil {
			return "", err
		}
		if quota {
			reason = "quota in the namespace"
		}
	}
	if reason != "" {
		p.SchedulerName = name
		p.Annotate(protocol.AnnotationSchedulerReason, reason)
	}
	return reason, nil
}

// own is what of the pod itself asks for our scheduler.
func (p *Pod) own() string {
	if class, _ := protocol.ParsePriorityClass(p.PriorityClassName); class != protocol.PriorityNone {
		return "priority class " + p.PriorityClassName
	}
	first := ""
	for key := range p.Labels {
		if protocol.Koordinators(key) && (first == "" || key < first) {
			first = key
		}
	}
	if first != "" {
		return "label " + first
	}
	for _, containers := range [][]Container{p.Init, p.Main} {
		for i := range containers {
			for name := range containers[i].Requests {
				if protocol.DeviceResource(name) && (first == "" || name < first) {
					first = name
				}
			}
		}
	}
	if first != "" {
		return "device " + first
	}
	return ""
}

// reserved names the first reservation, in order of names, that the pod owns.
func (p *Pod) reserved(list []Reservation) string {
	owned := slices.DeleteFunc(slices.Clone(list), func(r Reservation) bool { return !p.owns(r) })
	if len(owned) == 0 {
		return ""
	}
	return "reservation " + slices.MinFunc(owned, func(a, b Reservation) int { return cmp.Compare(a.Name, b.Name) }).Name
}

func (p *Pod) owns(r Reservation) bool {
	return slices.ContainsFunc(r.Owners, func(o Owner) bool {
		return o.Object.matches(p) && o.Controller.matches(p) && o.Pods.check() == nil && o.Pods.matches(p.Labels)
	})
}

// matches: a pod that is being created has no UID yet, so an owner that asks for one is not it.
func (o *ObjectRef) matches(p *Pod) bool {
	return o == nil || (o.UID == "" && fits(o.Namespace, p.Namespace) && fits(o.Name, p.Name))
}

func (c *ControllerRef) matches(p *Pod) bool {
	if c == nil {
		return true
	}
	own := p.Controller
	return own != nil && fits(c.Namespace, p.Namespace) && fits(c.Kind, own.Kind) && fits(c.Name, own.Name) && fits(c.UID, own.UID) &&
		fits(c.APIVersion, own.APIVersion)
}

// fits: nothing asked fits everything.
func fits(asked, is string) bool { return asked == "" || asked == is }
