// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Reapply brings labels and annotations of a pod that still waits for a node to what the profiles that are kept up say now: set and mapped
// ones. What a pod cannot change once it is made stays: QoS class, priorities, scheduler, requests, and what a patch says. So do labels of
// a profile with suffixes, which nobody could take off again. A profile takes nothing back that it no longer says.
//
// Unlike at admission a profile without a selector reaches no pod (upstream): one line too few must not rewrite a cluster. A draw that
// was made at admission stands; draw, the pod's UID, decides for a profile that the pod has not met.
//
// It changes p and reports profiles that could not be used.
func Reapply(p *Pod, namespace Namespace, profiles []Profile, draw string) []Problem {
	var problems []Problem
	earlier := readRecord(p.Annotations[protocol.AnnotationProfiles])
	fixed := maps.Clone(p.Labels)
	for _, f := range sorted(profiles) {
		taken, err := f.again(p, namespace, earlier[f.Name], draw)
		switch {
		case err != nil:
			problems = append(problems, Problem{At: "profile " + f.Name, Reason: err.Error() + "; it is not applied"})
		case taken:
			problems = append(problems, f.renew(p)...)
		}
	}
	for _, key := range fixedLabels() {
		if was, had := fixed[key]; had {
			p.label(key, was)
		} else {
			delete(p.Labels, key)
		}
	}
	return problems
}

// fixedLabels are those that [CheckUpdate] lets nobody change.
func fixedLabels() []string {
	return []string{protocol.LabelQoSClass, protocol.LabelPriorityClass, protocol.LabelPriority, protocol.LabelQuotaPreemptible}
}

// again reports whether a profile holds for a pod that was made before.
func (f *Profile) again(p *Pod, namespace Namespace, was outcome, draw string) (bool, error) {
	percent, err := f.check()
	if err != nil {
		return false, err
	}
	if f.Pods == nil || percent == 0 {
		return false, nil
	}
	if selected, err := f.selects(p, namespace); err != nil || !selected {
		return false, err
	}
	switch {
	case percent == 100 || was == applied:
		return true, nil
	case was == leftOut:
		return false, nil
	}
	return drawn(draw, f.Name) < percent, nil
}

// renew does what a profile says of labels and annotations.
func (f *Profile) renew(p *Pod) []Problem {
	problems := Application{Profile: f, Again: true}.labels(p)
	for key, value := range f.Annotations {
		p.Annotate(key, value)
	}
	for _, from := range slices.Sorted(maps.Keys(f.AnnotationKeysMapping)) {
		p.Annotate(f.AnnotationKeysMapping[from], p.Annotations[from])
	}
	return problems
}

// Changes are the labels or annotations of now that the old ones lack or have otherwise, nil for none. The record of admission, and keys that
// only the scheduler writes, are none of them: an error.
func Changes(old, now map[string]string) (map[string]string, error) {
	var out map[string]string
	var refused []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if was, had := old[key]; had && was == now[key] {
			continue
		}
		if key == protocol.AnnotationProfiles || key == protocol.AnnotationReservePod || key == protocol.AnnotationExtendedResource || protocol.SchedulerOwned(key) {
			refused = append(refused, key)
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = now[key]
	}
	if len(refused) > 0 {
		return out, errors.New("a profile must not write " + strings.Join(refused, ", ") + " of pods that are made: take it out of the profile")
	}
	return out, nil
}
