// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"maps"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Asker is who creates or changes a pod, and what its namespace allows.
type Asker struct {
	// Scheduler: one of the configured schedulers.
	Scheduler bool
	// Namespace is the namespace's name, Limits what its pods may carry.
	Namespace string
	Limits    protocol.PodLimits
}

// CheckTrust refuses annotations that their writer has no right to: the scheduler's, from anybody else, and those that move a
// node's knobs, where the namespace does not allow them. Only what differs from the old pod, nil when there is none, is looked
// at. extended-resource-spec is what this admission wrote: nobody changes it afterwards.
func CheckTrust(annotations, old map[string]string, by Asker) []Problem {
	var out []Problem
	for _, key := range changed(annotations, old) {
		value, there := annotations[key]
		reason := ""
		switch {
		case key == protocol.AnnotationReservePod && there:
			reason = "is reserved for the scheduler's own bookkeeping: remove it"
		case protocol.SchedulerOwned(key) && !by.Scheduler:
			reason = "only the scheduler may set, change or remove it: leave it out of the pod and of its template"
		case key == protocol.AnnotationExtendedResource && old != nil:
			reason = "follows the pod's requests and cannot be changed"
		case there:
			if why := by.Limits.Check(key, value); why != "" {
				reason = why + ": ask who runs the cluster for the annotation " + protocol.AnnotationPodLimits + " on namespace " + by.Namespace
			}
		}
		if reason != "" {
			out = append(out, Problem{At: "annotation " + key, Reason: reason})
		}
	}
	return out
}

// Concerned reports whether CheckTrust needs to know what the namespace allows.
func Concerned(annotations, old map[string]string) bool {
	for key, value := range annotations {
		if protocol.LimitName(key) != "" {
			if was, ok := old[key]; !ok || was != value {
				return true
			}
		}
	}
	return false
}

// CheckExtended refuses a new pod whose extended-resource-spec says something else than its requests: written past our own
// mutation, it would give the pod another limit on the node than the scheduler counts.
func CheckExtended(p *Pod) []Problem {
	was, ok := p.Annotations[protocol.AnnotationExtendedResource]
	if !ok {
		return nil
	}
	at := "annotation " + protocol.AnnotationExtendedResource
	want, err := Extended(p)
	switch {
	case err != nil:
		return []Problem{{At: at, Reason: err.Error()}}
	case !sameExtended(was, want):
		return []Problem{{At: at, Reason: "differs from the pod's requests: leave it out, it is written at admission"}}
	}
	return nil
}

// changed are the keys that are new, differ or are gone, sorted.
func changed(now, old map[string]string) []string {
	keys := map[string]struct{}{}
	for key, value := range now {
		if was, ok := old[key]; !ok || was != value {
			keys[key] = struct{}{}
		}
	}
	for key := range old {
		if _, ok := now[key]; !ok {
			keys[key] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}
